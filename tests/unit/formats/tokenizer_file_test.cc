#include "formats/tokenizer_file.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "base/process.h"
#include "text/stream_decoder.h"

namespace snug::formats {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<text::TokenId>;

// A folder that goes away with the test.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (fs::temp_directory_path() / "snug-tokenizer-XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~TempFolder() { fs::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const fs::path& path() const { return path_; }
  void write(const std::string& name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  fs::path path_;
};

text::Tokenizer make_tokenizer(Result<TokenizerFiles> files) {
  EXPECT_TRUE(files.ok()) << files.error().to_string();
  auto tokenizer = text::Tokenizer::create(std::move(files->spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  return std::move(tokenizer).value();
}

// --- agreement with Hugging Face on Qwen2.5's vocabulary ---

enum class Kind { tokenizer_json, vocab_and_merges };

class Qwen25 : public testing::TestWithParam<Kind> {
 protected:
  const fs::path source_ = fs::path(SNUG_SHARED_TOKENIZER_DIR) / "qwen2.5";
  const fs::path golden_ = fs::path(SNUG_GOLDEN_DIR) / "tokenizer";
  const TempFolder folder_;

  void SetUp() override {
    if (!fs::exists(source_) || !fs::exists(golden_))
      GTEST_SKIP() << "no " << source_ << " or no " << golden_;
    fs::create_symlink(source_ / "tokenizer_config.json", folder_.path() / "tokenizer_config.json");
    if (GetParam() == Kind::vocab_and_merges) {
      for (const char* name : {"vocab.json", "merges.txt"}) {
        fs::create_symlink(source_ / name, folder_.path() / name);
      }
    } else {
      const std::string command = "gzip -dc '" + (source_ / "tokenizer.json.gz").string() + "' > '" +
                                  (folder_.path() / "tokenizer.json").string() + "'";
      ASSERT_EQ(std::system(command.c_str()), 0);
    }
  }
  std::vector<Json> golden(const char* name) const {
    std::ifstream in(golden_ / name);
    std::vector<Json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
    return lines;
  }
};

TEST_P(Qwen25, EncodesAndDecodesAsHuggingFace) {
  const text::Tokenizer t = make_tokenizer(read_tokenizer_folder(folder_.path()));
  EXPECT_EQ(t.vocab_size(), 151665);
  EXPECT_EQ(t.eos(), 151645);
  EXPECT_EQ(t.bos(), -1);
  const auto encode = golden("encode.jsonl");
  ASSERT_GE(encode.size(), 460u);
  for (const Json& line : encode) {
    const Ids ids = t.encode(line["text"].get<std::string>());
    EXPECT_EQ(ids, line["ids"].get<Ids>()) << line.dump();
    EXPECT_EQ(t.decode(ids, false), line["decoded"]) << line.dump();
    EXPECT_EQ(t.decode(ids, true), line["decoded_skip"]) << line.dump();
  }
  const auto decode = golden("decode.jsonl");
  ASSERT_GE(decode.size(), 300u);
  for (const Json& line : decode) {
    EXPECT_EQ(t.decode(line["ids"].get<Ids>(), false), line["text"]) << line.dump();
  }
}

TEST_P(Qwen25, StreamsTheTextOfRandomTokens) {
  const text::Tokenizer t = make_tokenizer(read_tokenizer_folder(folder_.path()));
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    Ids ids;
    for (int i = 0; i < 60; ++i) {
      ids.push_back(
          std::uniform_int_distribution<int>(0, random() % 2 == 0 ? 255 : t.vocab_size() - 1)(random));
    }
    ids.push_back(t.id_of("."));
    for (const bool skip : {false, true}) {
      text::StreamDecoder decoder(t, skip);
      std::string joined;
      for (const text::TokenId id : ids) joined += decoder.push(id);
      ASSERT_EQ(joined + decoder.finish(), t.decode(ids, skip));
    }
  }
}

TEST_P(Qwen25, StaysSmallInMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is in the way";
#endif
  const std::int64_t before = resident_bytes();
  const text::Tokenizer t = make_tokenizer(read_tokenizer_folder(folder_.path()));
  EXPECT_GT(t.vocab_size(), 0);
  EXPECT_LT(peak_resident_bytes() - before, std::int64_t{45} << 20);
  EXPECT_LT(resident_bytes() - before, std::int64_t{25} << 20);
}

TEST_P(Qwen25, ReadsTheChatTemplate) {
  const auto files = read_tokenizer_folder(folder_.path());
  ASSERT_TRUE(files.ok()) << files.error().to_string();
  EXPECT_THAT(files->chat_template, HasSubstr("<|im_start|>"));
  EXPECT_THAT(files->chat_template_name, HasSubstr("tokenizer_config.json"));
  EXPECT_EQ(files->eos_token, "<|im_end|>");
  EXPECT_EQ(files->bos_token, "");
}

INSTANTIATE_TEST_SUITE_P(Files, Qwen25, testing::Values(Kind::tokenizer_json, Kind::vocab_and_merges),
                         [](const auto& test) {
                           return test.param == Kind::tokenizer_json ? "TokenizerJson" : "VocabAndMerges";
                         });

// --- small files ---

Json small_json() {
  return Json::parse(R"({
    "added_tokens": [{"id": 6, "content": "<s>", "special": true}, {"id": 7, "content": "<t>"}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"String": "a.b"}, "behavior": "Isolated", "invert": false},
      {"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [6], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "unk_token": null, "byte_fallback": false,
      "merges": [["a", "b"], "Ġ ab"], "vocab": {"a": 0, "b": 1, "ab": 3, "Ġ": 4, "Ġab": 5, ".": 8}}})");
}

Result<text::TokenizerSpec> parse(const Json& json) {
  return parse_tokenizer_json(json.dump(), "T/tokenizer.json");
}

TEST(TokenizerJson, ReadsEveryPart) {
  auto spec = parse(small_json());
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_TRUE(spec->nfc);
  EXPECT_TRUE(spec->add_bos);
  EXPECT_FALSE(spec->add_eos);
  EXPECT_EQ(spec->bos, 6);
  EXPECT_THAT(spec->tokens, ElementsAre("a", "b", "", "ab", "Ġ", "Ġab", "", "", "."));
  ASSERT_EQ(spec->merges.size(), 2u);
  EXPECT_EQ(spec->merges[1].left, 4);
  EXPECT_EQ(spec->merges[1].right, 3);
  EXPECT_EQ(spec->merges[1].result, 5);
  EXPECT_EQ(spec->split_patterns.size(), 3u);
  ASSERT_EQ(spec->added.size(), 2u);
  EXPECT_TRUE(spec->added[0].special);
  EXPECT_FALSE(spec->added[1].special);
  const auto t = text::Tokenizer::create(std::move(*spec));
  ASSERT_TRUE(t.ok());
  EXPECT_THAT(t->encode("ab ab<t>a.bx"), ElementsAre(6, 3, 5, 7, 0, 8, 1));
}

// A change to the small file, and what the error must name.
struct Broken {
  const char* pointer;
  const char* value;
  const char* named;
};

TEST(TokenizerJson, RefusesWhatItDoesNotSupportByName) {
  const Broken cases[] = {
      {"/normalizer", R"({"type": "Lowercase"})", "normalizer \"Lowercase\""},
      {"/normalizer", "3", "normalizer must be"},
      {"/normalizer", R"({"type": 3})", "normalizer.type"},
      {"/pre_tokenizer", "null", "pre_tokenizer"},
      {"/pre_tokenizer", R"({"type": "Metaspace"})", "\"Metaspace\""},
      {"/pre_tokenizer/pretokenizers", "{}", "pre_tokenizer.pretokenizers"},
      {"/pre_tokenizer/pretokenizers/0/behavior", "\"Removed\"", "behavior \"Removed\""},
      {"/pre_tokenizer/pretokenizers/0/invert", "true", "behavior"},
      {"/pre_tokenizer/pretokenizers/0/pattern", "{}", "pattern must be"},
      {"/pre_tokenizer/pretokenizers/2/add_prefix_space", "true", "add_prefix_space"},
      {"/pre_tokenizer/pretokenizers/0", R"({"type": "ByteLevel"})", "after ByteLevel"},
      {"/decoder", "null", "decoder"},
      {"/decoder/type", "\"WordPiece\"", "decoder \"WordPiece\""},
      {"/post_processor", R"({"type": "BertProcessing"})", "\"BertProcessing\""},
      {"/post_processor/special_tokens", "{}", "post_processor.special_tokens"},
      {"/post_processor/special_tokens/<s>/ids", "[6, 7]", "post_processor.special_tokens"},
      {"/post_processor/single", "[3]", "post_processor.single"},
      {"/added_tokens", "{\"a\": 1}", "added_tokens must be"},
      {"/added_tokens/1/id", "2147483648", "added_tokens[1]: id"},
      {"/added_tokens/1/id", "null", "added_tokens[1]: id"},
      {"/added_tokens/1/content", "\"\"", "added_tokens[1]: content"},
      {"/added_tokens/1/special", "1", "added_tokens[1]: special"},
      {"/model", "[]", "model must be"},
      {"/model/type", "\"Unigram\"", "model.type \"Unigram\""},
      {"/model/byte_fallback", "true", "model.byte_fallback"},
      {"/model/fuse_unk", "true", "model.fuse_unk"},
      {"/model/dropout", "0.1", "model.dropout"},
      {"/model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix"},
      {"/model/unk_token", "\"<none>\"", "model.unk_token"},
      {"/model/vocab", "{}", "model.vocab"},
      {"/model/vocab", "7", "model.vocab"},
      {"/model/vocab/a", "-1", "vocab: the id of \"a\""},
      {"/model/vocab/a", "1", "vocab: id 1 is both"},
      {"/model/vocab/a", "1.5", "vocab: the id of \"a\""},
      {"/model/vocab/a", "\"0\"", "vocab: the id of \"a\""},
      {"/model/vocab/a", "{}", "vocab: the id of \"a\""},
      {"/model/vocab/a", "2147483648", "vocab: the id of \"a\""},
      {"/model/vocab/a", "18446744073709551615", "vocab: the id of \"a\""},
      {"/model/vocab/a", "16000000", "out of all proportion"},
      {"/model/merges/0", "\"ab\"", "merges: merge 0"},
      {"/model/merges/0", "\"a b c\"", "merges: merge 0"},
      {"/model/merges/0", "[\"a\"]", "merges: merge 0"},
      {"/model/merges/0", "[\"a\", \"b\", \"c\"]", "merges: merge 0"},
      {"/model/merges/0", "[\"a\", 3]", "merges: merge 0"},
      {"/model/merges/0", "[\"a\", [\"b\"]]", "merges: merge 0"},
      {"/model/merges/0", "{}", "merges: merge 0"},
      {"/model/merges/1", "\"b a\"", "\"ba\", which is not in the vocabulary"},
  };
  for (const Broken& broken : cases) {
    SCOPED_TRACE(testing::Message() << broken.pointer << " = " << broken.value);
    Json json = small_json();
    json[Json::json_pointer(broken.pointer)] = Json::parse(broken.value);
    const auto spec = parse(json);
    ASSERT_FALSE(spec.ok());
    EXPECT_EQ(spec.error().code, ErrorCode::bad_file);
    EXPECT_THAT(spec.error().message, AllOf(HasSubstr("T/tokenizer.json"), HasSubstr(broken.named)));
    EXPECT_FALSE(spec.error().remedy.empty());
  }
}

TEST(TokenizerJson, RefusesBrokenJson) {
  const std::string whole = small_json().dump();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto spec = parse_tokenizer_json(whole.substr(0, size), "T");
    ASSERT_FALSE(spec.ok()) << size;
    ASSERT_EQ(spec.error().code, ErrorCode::bad_file);
  }
  for (const std::string& text : {std::string(100'000, '['), std::string("null"), std::string("[]"),
                                  whole + "x", std::string("{\"model\": {\"vocab\": {\"\xFF\": 1}}}")}) {
    EXPECT_FALSE(parse_tokenizer_json(text, "T").ok()) << text.substr(0, 40);
  }
}

// Random damage: an error or a tokenizer that works, never a crash.
TEST(TokenizerJson, SurvivesRandomDamage) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string whole = small_json().dump();
  int good = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = whole;
    for (auto n = random() % 3; n > 0; --n) text[random() % text.size()] = "09\"{}[],:aT<\\"[random() % 13];
    auto spec = parse_tokenizer_json(text, "T");
    if (!spec.ok()) continue;
    const auto t = text::Tokenizer::create(std::move(*spec));
    if (!t.ok()) continue;
    ++good;
    t->decode(t->encode("ab ab<t>a.b"), true);
  }
  EXPECT_GT(good, 100);
}

// --- folders ---

constexpr const char* kConfig = R"({"tokenizer_class": "GPT2Tokenizer", "eos_token": {"content": "<e>"},
  "bos_token": "<e>", "add_bos_token": true,
  "added_tokens_decoder": {"9": {"content": "<e>", "special": true}},
  "chat_template": [{"name": "tools", "template": "T"}, {"name": "default", "template": "D"}]})";

// B20: the error names the file to bring.
TEST(TokenizerFolder, WithoutTokenizerNamesTokenizerJson) {
  const TempFolder folder;
  const auto files = read_tokenizer_folder(folder.path());
  ASSERT_FALSE(files.ok());
  EXPECT_EQ(files.error().code, ErrorCode::bad_file);
  EXPECT_THAT(files.error().message, AllOf(HasSubstr(folder.path().string()), HasSubstr("tokenizer.json")));
  EXPECT_THAT(files.error().remedy, HasSubstr("tokenizer.json"));
}

TEST(TokenizerFolder, ReadsVocabAndMerges) {
  const TempFolder folder;
  folder.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "Ġ": 3})");
  folder.write("merges.txt", "#version: 0.2\r\na b\r\n\n");
  folder.write("tokenizer_config.json", kConfig);
  const auto files = read_tokenizer_folder(folder.path());
  ASSERT_TRUE(files.ok()) << files.error().to_string();
  EXPECT_EQ(files->chat_template, "D");
  EXPECT_EQ(files->bos_token, "<e>");
  EXPECT_FALSE(files->spec.nfc);
  const text::Tokenizer t = make_tokenizer(files);
  EXPECT_THAT(t.encode("ab<e>b"), ElementsAre(9, 2, 9, 1));
  EXPECT_EQ(t.eos(), 9);
}

TEST(TokenizerFolder, PrefersTokenizerJsonAndSeparateTemplates) {
  const TempFolder folder;
  folder.write("vocab.json", "not read");
  folder.write("merges.txt", "not read");
  folder.write("tokenizer.json", small_json().dump());
  folder.write("tokenizer_config.json", kConfig);
  folder.write("chat_template.json", R"({"chat_template": "J"})");
  auto files = read_tokenizer_folder(folder.path());
  ASSERT_TRUE(files.ok()) << files.error().to_string();
  EXPECT_EQ(files->chat_template, "J");
  EXPECT_EQ(files->spec.added.size(), 3u);  // <e> is tokenizer_config.json's
  EXPECT_EQ(files->spec.eos, 9);
  EXPECT_EQ(files->spec.bos, 6);
  folder.write("chat_template.jinja", "{{ X }}");
  files = read_tokenizer_folder(folder.path());
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(files->chat_template, "{{ X }}");
  EXPECT_THAT(files->chat_template_name, HasSubstr("chat_template.jinja"));
}

TEST(TokenizerFolder, NamesTheFileAndFieldThatIsWrong) {
  const auto expect_refused = [](const TempFolder& folder, const char* file, const char* field) {
    const auto files = read_tokenizer_folder(folder.path());
    ASSERT_FALSE(files.ok()) << file << " " << field;
    EXPECT_EQ(files.error().code, ErrorCode::bad_file);
    EXPECT_THAT(files.error().message, AllOf(HasSubstr(file), HasSubstr(field)));
  };
  const TempFolder folder;
  folder.write("vocab.json", R"({"a": 0, "b": 1})");
  folder.write("merges.txt", "a b\n");
  expect_refused(folder, "merges.txt", "\"ab\"");
  folder.write("merges.txt", "a\n");
  expect_refused(folder, "merges.txt", "line 1");
  folder.write("merges.txt", "#version: 0.2\n");
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
  expect_refused(folder, "tokenizer_config.json", "tokenizer_class \"LlamaTokenizer\"");
  folder.write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})");
  expect_refused(folder, "tokenizer_config.json", "added_tokens_decoder.x");
  folder.write("tokenizer_config.json", R"({"added_tokens_decoder": []})");
  expect_refused(folder, "tokenizer_config.json", "added_tokens_decoder");
  folder.write("tokenizer_config.json", R"({"eos_token": 3})");
  expect_refused(folder, "tokenizer_config.json", "eos_token");
  folder.write("tokenizer_config.json", "{");
  expect_refused(folder, "tokenizer_config.json", "JSON");
  folder.write("tokenizer_config.json", "{}");
  folder.write("vocab.json", "[1]");
  expect_refused(folder, "vocab.json", "must be an object");
  folder.write("added_tokens.json", R"({"<x>": -3})");
  folder.write("vocab.json", R"({"a": 0})");
  expect_refused(folder, "added_tokens.json", "<x>");
}

}  // namespace
}  // namespace snug::formats
