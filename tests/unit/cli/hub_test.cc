// The hub client against a hub of our own on 127.0.0.1 (fake_hub.py), which misbehaves by repository name.
#include "cli/hub.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "base/json.h"
#include "cli/hub_files.h"
#include "cli/hub_http.h"

extern char** environ;

namespace snug::cli {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

void write_all(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

fs::path new_folder() {
  std::string name = (fs::temp_directory_path() / "snug-hub-XXXXXX").string();
  return ::mkdtemp(name.data()) == nullptr ? fs::path() : fs::path(name);
}

// fake_hub.py as a child process; it ends when our end of its stdin closes, whatever becomes of us.
class FakeHub {
 public:
  explicit FakeHub(const fs::path& log) {
    std::array<int, 2> in{}, out{};
    if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::string python = "python3", script = SNUG_TEST_DATA "/../unit/cli/fake_hub.py",
                log_name = log.string();
    std::array<char*, 4> arguments = {python.data(), script.data(), log_name.data(), nullptr};
    if (::posix_spawnp(&pid_, "python3", &actions, nullptr, arguments.data(), environ) != 0) pid_ = -1;
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    stdin_ = in[1];
    std::FILE* lines = ::fdopen(out[0], "r");
    if (pid_ < 0 || std::fscanf(lines, "%d %d", &hub_port_, &other_port_) != 2) hub_port_ = 0;
    std::fclose(lines);
  }
  FakeHub(const FakeHub&) = delete;
  FakeHub& operator=(const FakeHub&) = delete;
  ~FakeHub() {
    if (stdin_ >= 0) ::close(stdin_);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }

  bool running() const { return hub_port_ > 0; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(hub_port_); }

 private:
  pid_t pid_ = -1;
  int stdin_ = -1, hub_port_ = 0, other_port_ = 0;
};

// One hub for all tests, each with a cache folder of its own. The hub counts drops by repository, so tests
// that need the same mischief take names that differ in a final digit.
class HubTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ::setenv("no_proxy", "127.0.0.1", 1);  // libcurl reads the proxies' variables itself
    suite_folder_ = new_folder();
    hub_ = std::make_unique<FakeHub>(suite_folder_ / "log");
  }
  static void TearDownTestSuite() {
    hub_.reset();
    fs::remove_all(suite_folder_);
  }
  void SetUp() override {
    if (!hub_->running()) GTEST_SKIP() << "python3 could not be started: no hub to test against";
    root_ = new_folder();
    requests();
  }
  void TearDown() override { fs::remove_all(root_); }

  PullOptions options(const std::string& repo) {
    PullOptions o;
    o.endpoint = hub_->url();
    o.repo = repo;
    o.cache_dir = root_ / "cache";
    o.backoff = std::chrono::milliseconds(1);
    return o;
  }
  fs::path folder(const std::string& repo) const { return root_ / "cache" / repo; }

  // The requests since the last call.
  std::vector<Json> requests() {
    std::ifstream in(suite_folder_ / "log");
    std::vector<Json> rows;
    std::size_t number = 0;
    for (std::string line; std::getline(in, line); ++number) {
      if (number >= seen_) rows.push_back(Json::parse(line));
    }
    seen_ = number;
    return rows;
  }
  // The ranges asked for of model.safetensors; "" where none.
  std::vector<std::string> weight_ranges() {
    std::vector<std::string> ranges;
    for (const Json& row : requests()) {
      if (!row["path"].get<std::string>().ends_with("model.safetensors")) continue;
      ranges.push_back(row["range"].is_null() ? "" : row["range"].get<std::string>());
    }
    return ranges;
  }
  void expect_whole(const std::string& repo) {
    const Manifest manifest = read_manifest(folder(repo));
    ASSERT_EQ(manifest.files.size(), 4u);
    for (const auto& [name, file] : manifest.files) {
      EXPECT_EQ(fs::file_size(folder(repo) / name), static_cast<std::uintmax_t>(file.size)) << name;
      EXPECT_EQ(hash_of(folder(repo) / name, file).value(), file.hash) << name;
      EXPECT_FALSE(fs::exists(folder(repo) / (name + ".part"))) << name;
    }
    EXPECT_EQ(manifest.files.at("model.safetensors").size, 300'000);
  }
  Error error_of(const PullOptions& o) {
    const auto result = pull(o);
    if (!result.ok()) return result.error();
    ADD_FAILURE() << "the pull of " << o.repo << " succeeded";
    return {};
  }

  static inline fs::path suite_folder_;
  static inline std::unique_ptr<FakeHub> hub_;
  fs::path root_;
  std::size_t seen_ = 0;
};

TEST_F(HubTest, PullsAModelOnce) {
  auto o = options("org/plain");
  std::map<std::string, std::int64_t> last;
  std::int64_t total = 0;
  o.progress = [&](const std::string& file, std::int64_t done, std::int64_t size) {
    EXPECT_GT(done, last[file]) << file;
    EXPECT_LE(done, size) << file;
    last[file] = done;
    if (file == "model.safetensors") total = size;
  };
  const auto path = pull(o);
  ASSERT_TRUE(path.ok()) << path.error().to_string();
  EXPECT_EQ(path.value(), folder("org/plain"));
  expect_whole("org/plain");
  EXPECT_EQ(read_all(folder("org/plain") / "config.json"), "{\"model_type\": \"qwen2\"}\n");
  EXPECT_FALSE(fs::exists(folder("org/plain") / "README.md")) << "not a model file";
  EXPECT_FALSE(fs::exists(folder("org/plain") / "onnx")) << "another format's folder";
  EXPECT_EQ(total, 300'000);
  EXPECT_EQ(last["model.safetensors"], 300'000);
  EXPECT_EQ(find_pulled(o.cache_dir, "org/plain", "main"), folder("org/plain"));
  EXPECT_EQ(requests().size(), 5u);

  ASSERT_TRUE(pull(o).ok());
  EXPECT_EQ(requests().size(), 1u) << "only the listing again";
}

TEST_F(HubTest, FetchesAgainWhatIsGoneOrChanged) {
  const auto o = options("org/plain");
  ASSERT_TRUE(pull(o).ok());
  fs::remove(folder("org/plain") / "config.json");
  write_all(folder("org/plain") / "tokenizer.json", "cut");
  requests();
  ASSERT_TRUE(pull(o).ok());
  expect_whole("org/plain");
  EXPECT_EQ(requests().size(), 3u);

  // Without the manifest the files' hashes are enough.
  fs::remove(folder("org/plain") / kManifestName);
  ASSERT_TRUE(pull(o).ok());
  expect_whole("org/plain");
  EXPECT_EQ(requests().size(), 1u);
}

TEST_F(HubTest, GoesOnAfterDroppedConnections) {
  const auto path = pull(options("org/drop"));
  ASSERT_TRUE(path.ok()) << path.error().to_string();
  expect_whole("org/drop");
  EXPECT_THAT(weight_ranges(), testing::ElementsAre("", "bytes=70000-", "bytes=140000-", "bytes=210000-"));
}

TEST_F(HubTest, GoesOnFromAnEarlierPull) {
  auto o = options("org/drop2");
  o.max_retries = 0;
  EXPECT_THAT(error_of(o).message, HasSubstr("gave up after 0 retries"));
  EXPECT_EQ(fs::file_size(folder("org/drop2") / "model.safetensors.part"), 70'000u);
  EXPECT_FALSE(fs::exists(folder("org/drop2") / "model.safetensors"));
  requests();
  o.max_retries = 5;
  ASSERT_TRUE(pull(o).ok());
  expect_whole("org/drop2");
  EXPECT_EQ(weight_ranges().front(), "bytes=70000-");
}

TEST_F(HubTest, StartsOverWhereRangesAreIgnoredWrongOrRefused) {
  for (const std::string repo : {"org/norange", "org/wrongrange", "org/full"}) {
    const auto path = pull(options(repo));
    ASSERT_TRUE(path.ok()) << repo << ": " << path.error().to_string();
    expect_whole(repo);
    EXPECT_EQ(weight_ranges()[1], "bytes=70000-") << repo;
  }
}

TEST_F(HubTest, APartOfAnotherVersionIsReplaced) {
  write_all(folder("org/plain") / "model.safetensors.part", std::string(1000, 'x'));
  write_all(folder("org/plain") / "tokenizer.json.part", std::string(5000, 'x'));  // of the right size
  write_all(folder("org/plain") / "config.json.part", std::string(500'000, 'x'));  // larger than the file
  const auto path = pull(options("org/plain"));
  ASSERT_TRUE(path.ok()) << path.error().to_string();
  expect_whole("org/plain");
  EXPECT_THAT(weight_ranges(), testing::ElementsAre("bytes=1000-", ""));
}

TEST_F(HubTest, CorruptContentIsDeletedAndNamed) {
  const Error error = error_of(options("org/corrupt"));
  EXPECT_EQ(error.code, ErrorCode::bad_file);
  EXPECT_THAT(error.message, HasSubstr("model.safetensors"));
  EXPECT_THAT(error.message, HasSubstr("checksum"));
  EXPECT_FALSE(fs::exists(folder("org/corrupt") / "model.safetensors"));
  EXPECT_FALSE(fs::exists(folder("org/corrupt") / "model.safetensors.part"));
  EXPECT_EQ(read_manifest(folder("org/corrupt")).files.count("model.safetensors"), 0u);
}

TEST_F(HubTest, MoreBytesThanListedAreRefused) {
  const Error error = error_of(options("org/toolong"));
  EXPECT_EQ(error.code, ErrorCode::bad_file);
  EXPECT_THAT(error.message, HasSubstr("model.safetensors: the hub sends more than the 100000 bytes"));
  EXPECT_FALSE(fs::exists(folder("org/toolong") / "model.safetensors.part"));
}

TEST_F(HubTest, RetriesServerErrorsAndGivesUpWithoutProgress) {
  const auto path = pull(options("org/flaky"));
  ASSERT_TRUE(path.ok()) << path.error().to_string();
  expect_whole("org/flaky");

  requests();
  EXPECT_THAT(error_of(options("org/down")).message, HasSubstr("HTTP 503 (gave up after 5 retries)"));
  EXPECT_EQ(requests().size(), 6u);

  EXPECT_THAT(error_of(options("org/stuck")).message, HasSubstr("gave up after 5 retries"));
  EXPECT_EQ(weight_ranges().size(), 6u) << "the first, which made progress, and 5 retries";

  auto nobody = options("org/plain");
  nobody.endpoint = "http://127.0.0.1:1";
  nobody.max_retries = 1;
  EXPECT_THAT(error_of(nobody).message, HasSubstr("gave up after 1 retries"));
}

TEST_F(HubTest, GatedNeedsATokenThatStaysWithTheHub) {
  auto o = options("org/gated");
  Error error = error_of(o);
  EXPECT_EQ(error.code, ErrorCode::failed);
  EXPECT_THAT(error.message, HasSubstr("org/gated: is gated (HTTP 401)"));
  EXPECT_THAT(error.remedy, HasSubstr("--token"));
  EXPECT_THAT(error_of(options("org/hidden")).message, HasSubstr("does not exist, is private or is gated"));
  o.token = "wrong";
  EXPECT_THAT(error_of(o).to_string(), Not(HasSubstr("wrong"))) << "a token does not belong in a message";

  requests();
  o.token = "secret";
  const auto path = pull(o);
  ASSERT_TRUE(path.ok()) << path.error().to_string();
  expect_whole("org/gated");
  int elsewhere = 0;
  for (const Json& row : requests()) {
    if (row["hub"].get<bool>()) {
      EXPECT_EQ(row["authorization"], "Bearer secret") << row;
    } else {
      EXPECT_TRUE(row["authorization"].is_null()) << row;
      ++elsewhere;
    }
  }
  EXPECT_EQ(elsewhere, 1);
}

TEST_F(HubTest, FollowsRedirects) {
  for (const std::string repo : {"org/redirect", "org/elsewhere"}) {
    const auto path = pull(options(repo));
    ASSERT_TRUE(path.ok()) << repo << ": " << path.error().to_string();
    expect_whole(repo);
  }
  EXPECT_THAT(error_of(options("org/loop")).message, HasSubstr("more than 10 redirects"));
}

TEST_F(HubTest, NotFound) {
  Error error = error_of(options("org/missing"));
  EXPECT_THAT(error.message, HasSubstr("org/missing: not found"));
  EXPECT_FALSE(fs::exists(folder("org/missing")));
  auto o = options("org/plain");
  o.revision = "v9";
  EXPECT_THAT(error_of(o).message, HasSubstr("has no revision \"v9\""));
}

TEST_F(HubTest, ReadsEveryPageOfTheListing) {
  ASSERT_TRUE(pull(options("org/paged")).ok());
  expect_whole("org/paged");
  EXPECT_EQ(requests().size(), 3u + 4u);
}

TEST_F(HubTest, RefusesWhatIsNotTheProtocol) {
  EXPECT_THAT(error_of(options("org/notjson")).message, HasSubstr("not JSON"));
  EXPECT_THAT(error_of(options("org/notlist")).message, HasSubstr("not a list"));
  EXPECT_THAT(error_of(options("org/nohash")).message, HasSubstr("config.json"));
  EXPECT_THAT(error_of(options("org/badsize")).message, HasSubstr("size must be"));
  EXPECT_THAT(error_of(options("org/badsize")).remedy, HasSubstr("model hub"));
  EXPECT_THAT(error_of(options("org/endless")).message, HasSubstr("does not end"));
}

TEST_F(HubTest, RefusesUnsafeNames) {
  for (const std::string repo : {"org/evil", "org/evil-absolute", "org/evil-inner", "org/evil-manifest"}) {
    auto o = options(repo);
    o.include = {"*"};
    const Error error = error_of(o);
    EXPECT_EQ(error.code, ErrorCode::bad_file) << repo;
    EXPECT_THAT(error.message, HasSubstr("unsafe file name")) << repo;
    EXPECT_FALSE(fs::exists(folder(repo))) << repo;
  }
  EXPECT_FALSE(fs::exists(root_ / "cache"));
}

TEST_F(HubTest, GgufFilesAreChosen) {
  auto o = options("org/gguf");
  const Error error = error_of(o);
  EXPECT_EQ(error.code, ErrorCode::usage);
  EXPECT_THAT(error.message, HasSubstr("small-q4_0.gguf, small-q8_0.gguf"));
  EXPECT_THAT(error.remedy, HasSubstr("--include"));
  o.include = {"*q5*"};
  EXPECT_EQ(error_of(o).code, ErrorCode::usage);
  o.include = {"*q8_0*"};
  const auto path = pull(o);
  ASSERT_TRUE(path.ok()) << path.error().to_string();
  EXPECT_EQ(path.value(), folder("org/gguf") / "small-q8_0.gguf");
  EXPECT_EQ(fs::file_size(path.value()), 4000u);
  EXPECT_EQ(find_pulled(o.cache_dir, "org/gguf", "main"), path.value());
}

TEST_F(HubTest, NamesAndRevisionsAreEscaped) {
  auto o = options("org/plain");
  o.revision = "refs/pr/1";
  o.include = {"a folder/*"};
  const auto path = pull(o);
  ASSERT_TRUE(path.ok()) << path.error().to_string();
  EXPECT_EQ(path.value(), root_ / "cache" / "org" / "plain@refs%2Fpr%2F1");
  EXPECT_EQ(read_all(path.value() / "a folder" / "sp\u00e4ce #1.json"), "[1]\n");
}

TEST_F(HubTest, AFullDiskIsNamedAsSuch) {
  fs::create_directories(folder("org/plain"));
  fs::create_symlink("/dev/full", folder("org/plain") / "model.safetensors.part");
  const Error error = error_of(options("org/plain"));
  EXPECT_EQ(error.code, ErrorCode::failed);
  EXPECT_THAT(error.message, HasSubstr("the disk is full"));
  EXPECT_THAT(error.message, HasSubstr("model.safetensors"));
}

TEST_F(HubTest, TwoPullsOfOneRepositoryDoNotMix) {
  fs::create_directories(folder("org/plain"));
  const auto lock = FolderLock::take(folder("org/plain"));
  ASSERT_TRUE(lock.ok());
  EXPECT_THAT(error_of(options("org/plain")).message, HasSubstr("another pull"));
}

TEST_F(HubTest, WrongUsage) {
  for (const char* repo :
       {"plain", "", "org/", "/plain", "org/a/b", "../x", "org/..", "org/a b", "org/a?b"}) {
    EXPECT_EQ(error_of(options(repo)).code, ErrorCode::usage) << repo;
  }
  auto o = options("org/plain");
  o.revision = "../..";
  EXPECT_EQ(error_of(o).code, ErrorCode::usage);
  for (const char* endpoint : {"", "huggingface.co", "ftp://x", "file:///etc"}) {
    o = options("org/plain");
    o.endpoint = endpoint;
    EXPECT_EQ(error_of(o).code, ErrorCode::usage) << endpoint;
  }
  o = options("org/plain");
  o.token = "a\r\nHost: b";
  EXPECT_EQ(error_of(o).code, ErrorCode::usage);
  EXPECT_TRUE(requests().empty());
}

TEST(HubNames, SafePaths) {
  for (const char* path : {"config.json", "a/b.json", "..a/b", "a..b", "a b"})
    EXPECT_TRUE(is_safe_path(path)) << path;
  for (const char* path : {"", "/a", "a/", "a//b", "..", "a/..", "../a", ".", "./a", "a\\b", "a\nb", "a.part",
                           ".snug.json", ".snug.lock"}) {
    EXPECT_FALSE(is_safe_path(path)) << path;
  }
}

TEST(HubNames, Origins) {
  EXPECT_TRUE(same_origin("https://Hub.example/a?b", "https://hub.example:443"));
  for (const char* other : {"http://hub.example", "https://hub.example:444", "https://hub.example.evil",
                            "https://evil@other", "https://hub.example@evil", "", "nonsense"}) {
    EXPECT_FALSE(same_origin("https://hub.example/a", other)) << other;
  }
}

}  // namespace
}  // namespace snug::cli
