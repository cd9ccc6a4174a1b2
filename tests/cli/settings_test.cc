// Flags, environment, --config file: their order and their faults.
#include <gmock/gmock.h>

#include "cli/hub_files.h"
#include "cli/model_files.h"

namespace snug::program {
namespace {

using testing::HasSubstr;

TEST(Flags, VersionAndHelp) {
  const Outcome version = run_snug({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, testing::MatchesRegex("snug [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  const Outcome help = run_snug({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const std::string command : {"run", "chat", "eval", "tokenize", "inspect", "bench", "pull"}) {
    EXPECT_THAT(help.out, HasSubstr("\n  " + command + " "));
    const Outcome own = run_snug({command, "--help"});
    EXPECT_EQ(own.exit_code, 0) << command;
    EXPECT_THAT(own.out, HasSubstr("--json")) << command;
  }
}

TEST(Flags, WhatIsNotUnderstoodIsNamed) {
  struct Case {
    std::vector<std::string> args;
    const char* named;
  };
  for (const auto& [args, named] : std::vector<Case>{
           {{}, "subcommand"},
           {{"wibble"}, "wibble"},
           {{"run"}, "MODEL"},
           {{"run", "random:qwen2.5-0.5b:q4_0", "--temprature", "1"}, "--temprature"},
           {{"run", "random:qwen2.5-0.5b:q4_0", "--token-ids", "5", "more"}, "more"},
           {{"run", "random:qwen2.5-0.5b:q4_0", "--max-tokens", "many"}, "--max-tokens"},
           {{"run", "random:qwen2.5-0.5b:q4_0", "--max-tokens", "99999999999"}, "--max-tokens"},
           {{"run", "random:qwen2.5-0.5b:q4_0", "--threads", "-1"}, "--threads"},
           {{"run", "random:qwen2.5-9b", "--token-ids", "5"}, "9b"},
           {{"run", "random:qwen2.5-0.5b:q9_9", "--token-ids", "5"}, "q9_9"},
           {{"run", "random:qwen2.5-0.5b:q4_0", "--token-ids", "5", "--host-memory", "12XB"}, "12XB"},
           {{"run", "random:qwen2.5-0.5b:q4_0", "--token-ids", "5", "--device", "cuda"}, "cuda"},
           {{"bench", "random:qwen2.5-0.5b:q4_0", "--prompt", "0"}, "--prompt"},
           {{"eval", "random:qwen2.5-0.5b:q4_0"}, "--token-ids"}}) {
    auto with_json = args;
    with_json.emplace_back("--json");
    const Outcome outcome = run_snug(with_json);
    SCOPED_TRACE(outcome.err);
    EXPECT_EQ(outcome.exit_code, 2);
    const Json error = outcome.json()["error"];
    EXPECT_EQ(error["code"], 2);
    EXPECT_THAT(error["message"].get<std::string>() + error["remedy"].get<std::string>(), HasSubstr(named));
    EXPECT_NE(error["remedy"], "");
    EXPECT_THAT(outcome.err, HasSubstr(named));
    EXPECT_EQ(run_snug(args).out, "") << "a result is on stdout, an error is not";
  }
}

class Settings : public testing::Test {
 protected:
  void SetUp() override { SNUG_NEEDS_GOLDEN_MODELS(); }

  Outcome run(std::vector<std::string> more, std::map<std::string, std::string> env = {}) {
    std::vector<std::string> args = {"run", golden_model("qwen2-mha"), "--token-ids", "5,6,7",
                                     "--ignore-eos"};
    args.insert(args.end(), more.begin(), more.end());
    return run_snug(args, {.env = std::move(env)});
  }
  int tokens(std::vector<std::string> more, std::map<std::string, std::string> env = {}) {
    more.emplace_back("--json");
    const Outcome outcome = run(std::move(more), std::move(env));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.json()["usage"]["completion_tokens"].get<int>();
  }
  const TempFolder folder_;
};

TEST_F(Settings, AFlagWinsOverTheEnvironmentOverTheFile) {
  const std::string file = folder_ / "c.json";
  write_file(file, R"({"max-tokens": 3})");
  EXPECT_EQ(tokens({"--config", file}), 3);
  EXPECT_EQ(tokens({}, {{"SNUG_CONFIG", file}}), 3);
  EXPECT_EQ(tokens({"--config", file}, {{"SNUG_MAX_TOKENS", "4"}}), 4);
  EXPECT_EQ(tokens({}, {{"SNUG_MAX_TOKENS", "4"}}), 4);
  EXPECT_EQ(tokens({"--config", file, "--max-tokens", "5"}, {{"SNUG_MAX_TOKENS", "4"}}), 5);
  EXPECT_EQ(tokens({"--config", file, "--max-tokens=6"}, {{"SNUG_MAX_TOKENS", "4"}}), 6);
  write_file(file,
             R"({"max_tokens": 2, "temperature": 0.25, "seed": null, "json": true, "stop": ["x", "y"]})");
  const Outcome outcome = run({"--config", file});
  const Json out = outcome.json();
  EXPECT_EQ(out["usage"]["completion_tokens"], 2) << "underscores will do";
  EXPECT_EQ(out["sampling"]["temperature"], 0.25);
}

TEST_F(Settings, FaultsNameTheFileAndTheKey) {
  const std::string file = folder_ / "c.json";
  struct Case {
    const char* text;
    int exit_code;
    const char* named;
  };
  for (const auto& [text, exit_code, named] :
       {Case{R"({"max-tokns": 3})", 2, "max-tokns"}, Case{R"({"max-tokens": {"a": 1}})", 2, "max-tokens"},
        Case{R"([1, 2])", 2, "object"}, Case{R"({"max-tokens": )", 4, "JSON"}}) {
    write_file(file, text);
    const Outcome outcome = run({"--config", file});
    EXPECT_EQ(outcome.exit_code, exit_code) << text;
    EXPECT_THAT(outcome.err, HasSubstr(file));
    EXPECT_THAT(outcome.err, HasSubstr(named));
  }
  // An empty value is a value: it does not swallow what follows.
  write_file(file, R"({"stop": "", "max-tokens": 2})");
  EXPECT_THAT(run({"--config", file}).err, HasSubstr("stop must be"));
  EXPECT_THAT(run({"--config", folder_ / "none.json"}).err, HasSubstr("none.json"));
  EXPECT_THAT(run({}, {{"SNUG_MAX_TOKENS", "many"}}).err, HasSubstr("many"));
}

TEST_F(Settings, JsonFromTheEnvironmentHoldsForErrorsToo) {
  const Outcome outcome = run({"--max-tokens", "0"}, {{"SNUG_JSON", "true"}});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.json()["error"]["code"], 2);
}

// What `snug pull` left in the cache is found by its id.
TEST_F(Settings, APulledModelIsFoundByItsId) {
  const fs::path cache = folder_ / "cache", model = cache / "org" / "tiny";
  fs::create_directories(model);
  copy_model("qwen2-mha", model);
  const std::vector<std::string> args = {"inspect", "org/tiny", "--json"};
  Outcome outcome = run_snug(args, {.env = {{"SNUG_CACHE", cache}}});
  EXPECT_EQ(outcome.exit_code, 4) << "a pull that has not recorded any file is not a model";
  EXPECT_EQ(outcome.json()["error"]["remedy"], "if it is a hub id, fetch it with: snug pull org/tiny");

  cli::Manifest manifest;
  for (const char* name : {"config.json", "model.safetensors"}) {
    manifest.files[name] = {name, static_cast<std::int64_t>(fs::file_size(model / name)),
                            std::string(40, 'a')};
  }
  ASSERT_TRUE(cli::write_manifest(model, manifest, "org/tiny", "main").ok());
  outcome = run_snug(args, {.env = {{"SNUG_CACHE", cache}}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["config"]["hidden_size"], 128);
}

}  // namespace
}  // namespace snug::program
