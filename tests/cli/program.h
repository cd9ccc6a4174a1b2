// Runs the built program as a child process.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"

extern char** environ;

namespace snug::program {

namespace fs = std::filesystem;

// Resident sizes say nothing about the program where a sanitizer keeps shadow memory.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// A folder of its own for each test, removed at its end.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (fs::temp_directory_path() / "snug-test-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TempFolder() {
    std::error_code code;
    fs::remove_all(path_, code);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const fs::path& path() const { return path_; }
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

inline std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

inline void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << bytes;
  EXPECT_TRUE(out.flush().good()) << path;
}

struct Outcome {
  int exit_code = -1;  // minus the signal's number where one ended it
  bool timed_out = false;
  std::string out, err;
  std::int64_t peak_bytes = 0;  // most resident at any time

  // What stdout holds: exactly one JSON object.
  Json json() const {
    Json value = Json::parse(out, nullptr, false);
    EXPECT_TRUE(value.is_object()) << "stdout: " << out << "\nstderr: " << err;
    return value.is_object() ? value : Json::object();
  }
};

struct Surroundings {
  std::string in;                          // stdin
  std::map<std::string, std::string> env;  // added to the environment, from which all SNUG_* are taken
  std::chrono::seconds limit{120};
};

// The program with `args`. Its output goes through files, so no pipe can fill up. The cache folder of pulled
// models is an empty one unless `env` says otherwise.
inline Outcome run_snug(const std::vector<std::string>& args, const Surroundings& around = {}) {
  const TempFolder folder;
  write_file(folder / "in", around.in);
  const std::string in = folder / "in", out = folder / "out", err = folder / "err";

  std::vector<std::string> variables = {"SNUG_CACHE=" + (folder / "cache").string()};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("SNUG_")) variables.emplace_back(*entry);
  }
  for (const auto& [name, value] : around.env) {
    std::erase_if(variables, [&](const auto& v) { return v.starts_with(name + "="); });
    variables.push_back(name + "=" + value);
  }
  std::vector<std::string> words = {SNUG_PROGRAM};
  words.insert(words.end(), args.begin(), args.end());
  const auto pointers = [](std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (auto& s : strings) result.push_back(s.data());
    result.push_back(nullptr);
    return result;
  };

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, in.c_str(), O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  ::posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t pid = -1;
  const int failure = ::posix_spawn(&pid, SNUG_PROGRAM, &actions, nullptr, pointers(words).data(),
                                    pointers(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  Outcome outcome;
  EXPECT_EQ(failure, 0) << SNUG_PROGRAM << " cannot be started";
  if (failure != 0) return outcome;

  const auto end = std::chrono::steady_clock::now() + around.limit;
  int status = 0;
  struct rusage usage {};
  while (::wait4(pid, &status, WNOHANG, &usage) == 0) {
    if (!outcome.timed_out && std::chrono::steady_clock::now() > end) {
      outcome.timed_out = true;
      ::kill(pid, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_FALSE(outcome.timed_out) << "ended after " << around.limit.count() << " s";
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  outcome.out = read_file(out);
  outcome.err = read_file(err);
  outcome.peak_bytes = static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
  return outcome;
}

// With --json added, the object it prints; the run must succeed.
inline Json run_json(std::vector<std::string> args, const Surroundings& around = {}) {
  args.emplace_back("--json");
  const Outcome outcome = run_snug(args, around);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.json();
}

}  // namespace snug::program
