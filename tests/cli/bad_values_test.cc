// Values that make no sense: exit 2, the field named, before weights are read.
#include <gmock/gmock.h>

#include "cli/model_files.h"

namespace snug::program {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kSmall = 60ll << 20;  // what a refusal may take

// A gigabyte of weights that a refusal must not make.
constexpr const char* kLarge = "random:qwen2.5-0.5b:bf16";

void expect_refused(std::vector<std::string> args, const std::string& named, int exit_code = 2) {
  args.emplace_back("--json");
  const Outcome outcome = run_snug(args);
  SCOPED_TRACE(testing::PrintToString(args) + "\n" + outcome.err);
  EXPECT_EQ(outcome.exit_code, exit_code);
  const Json error = outcome.json()["error"];
  EXPECT_EQ(error["code"], exit_code);
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(named));
  EXPECT_NE(error["remedy"], "");
  if (!kSanitized) {
    EXPECT_LT(outcome.peak_bytes, kSmall);
  }
}

TEST(BadValues, OfSampling) {
  struct Case {
    const char *flag, *value, *named;
  };
  for (const auto& [flag, value, named] : {
           Case{"--temperature", "nan", "temperature"},
           Case{"--temperature", "inf", "temperature"},
           Case{"--temperature", "-0.1", "temperature"},
           Case{"--temperature", "1e999", "temperature"},
           Case{"--top-p", "0", "top_p"},
           Case{"--top-p", "1.01", "top_p"},
           Case{"--top-p", "nan", "top_p"},
           Case{"--top-k", "-2", "top_k"},
           Case{"--min-p", "-0.1", "min_p"},
           Case{"--min-p", "nan", "min_p"},
           Case{"--repetition-penalty", "0", "repetition_penalty"},
           Case{"--repetition-penalty", "-1", "repetition_penalty"},
           Case{"--repetition-penalty", "inf", "repetition_penalty"},
           Case{"--presence-penalty", "2.1", "presence_penalty"},
           Case{"--frequency-penalty", "-2.1", "frequency_penalty"},
           Case{"--frequency-penalty", "nan", "frequency_penalty"},
           Case{"--max-tokens", "0", "max_tokens"},
           Case{"--max-tokens", "-1", "max_tokens"},
           Case{"--n", "0", "n must be"},
           Case{"--n", "129", "n must be"},
           Case{"--logprobs", "21", "logprobs"},
           Case{"--logprobs", "-1", "logprobs"},
           Case{"--stop", "", "stop"},
           Case{"--seed", "-1", "--seed"},
           Case{"--logit-bias", R"({"151936": 1})", "151936"},
           Case{"--logit-bias", R"({"-1": 1})", "-1"},
           Case{"--logit-bias", R"({"5": 101})", "logit_bias"},
           Case{"--logit-bias", R"({"5": NaN})", "logit-bias"},
           Case{"--logit-bias", R"({"5": 1e999})", "logit-bias"},
           Case{"--logit-bias", R"({"5": "much"})", "logit-bias"},
           Case{"--logit-bias", R"({"five": 1})", "logit-bias"},
           Case{"--logit-bias", "[5]", "logit-bias"},
           Case{"--logit-bias", "{", "logit-bias"},
       }) {
    expect_refused({"run", kLarge, "--token-ids", "5,6,7", std::string(flag) + "=" + value}, named);
  }
}

TEST(BadValues, OfThePrompt) {
  expect_refused({"run", kLarge, "--token-ids", "5,151936"}, "151936");
  expect_refused({"run", kLarge, "--token-ids", "-5"}, "-5");
  expect_refused({"run", kLarge, "--token-ids", "5,x"}, "x");
  expect_refused({"run", kLarge, "--token-ids", "99999999999"}, "token id");
  expect_refused({"run", kLarge, "--token-ids", ""}, "prompt is empty");
  expect_refused({"run", kLarge, "--token-ids", "5", "-p", "hi"}, "more than one");
  expect_refused({"run", kLarge, "-p", "hi"}, "no tokenizer");
  expect_refused({"run", kLarge, "--token-ids", "5", "--image", "x.png"}, "--image");
  expect_refused({"run", kLarge, "--messages", "/nonexistent/m.json"}, "/nonexistent/m.json", 4);
}

TEST(BadValues, APromptLongerThanTheContext) {
  std::vector<int> ids(32768, 5);
  expect_refused({"run", kLarge, "--token-ids", joined(ids)}, "32768");
  ids.resize(64);
  expect_refused({"run", kLarge, "--token-ids", joined(ids), "--max-model-len", "64"}, "--max-model-len");
  expect_refused({"run", kLarge, "--token-ids", "5", "--max-model-len", "40000"}, "40000");
  expect_refused({"bench", kLarge, "--prompt", "32768", "--generate", "8"}, "32768");
}

TEST(BadValues, OfEval) {
  const TempFolder folder;
  const std::string file = folder / "ids.json";
  for (const char* text :
       {R"("text")", R"([5, "6"])", "[[5, 6.5]]", "[5, 151936]", "[[-1, 5]]", "[4294967301, 5]"}) {
    write_file(file, text);
    expect_refused({"eval", kLarge, "--token-ids", file}, "id");
  }
  write_file(file, "[[5, 6, 7]]");
  expect_refused({"eval", kLarge, "--token-ids", file, "--max-model-len", "2"}, "--max-model-len");
  expect_refused({"eval", kLarge, "--text", "/nonexistent/t.txt"}, "/nonexistent/t.txt", 4);
  write_file(file, "[[5, 6, ");
  expect_refused({"eval", kLarge, "--token-ids", file}, file);
}

}  // namespace
}  // namespace snug::program
