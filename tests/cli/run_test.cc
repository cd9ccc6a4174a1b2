// snug run: the fields of its JSON, what ends an answer, where sampling values come from.
#include <gmock/gmock.h>

#include <cmath>

#include "cli/model_files.h"

namespace snug::program {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Json golden_case(const std::string& model, std::size_t index) {
  return Json::parse(read_file(golden_model(model) / "golden.json"))["cases"][index];
}

// Greedy and exact: the reference's tokens come out.
std::vector<std::string> greedy_args(const std::string& model, const std::vector<int>& prompt,
                                     int max_tokens) {
  return {"run",
          model,
          "--token-ids",
          joined(prompt),
          "--temperature",
          "0",
          "--dtype",
          "float32",
          "--max-tokens",
          std::to_string(max_tokens),
          "--kv-cache-dtype",
          "float32"};
}

TEST(Run, TokensEqualTheReferenceAndEveryFieldIsThere) {
  SNUG_NEEDS_GOLDEN_MODELS();
  for (const std::string model : {"qwen2-mha", "qwen2-h128"}) {
    const Json expected = golden_case(model, 3);
    const auto prompt = expected["prompt"].get<std::vector<int>>();
    auto args = greedy_args(golden_model(model), prompt, 24);
    args.insert(args.end(), {"--ignore-eos", "--logprobs", "2"});
    const Json out = run_json(args);
    EXPECT_EQ(out["token_ids"], expected["greedy"]) << model;
    EXPECT_EQ(out["finish_reason"], "length");
    EXPECT_TRUE(out["text"].is_string());
    EXPECT_EQ(out["usage"]["prompt_tokens"], prompt.size());
    EXPECT_EQ(out["usage"]["completion_tokens"], 24);
    EXPECT_EQ(out["dtype"]["arithmetic"], "float32");
    EXPECT_EQ(out["dtype"]["kv_cache"], "float32");
    for (const char* field : {"load_s", "prefill_s", "decode_s", "prefill_tok_s", "decode_tok_s"}) {
      ASSERT_TRUE(out["timings"][field].is_number()) << field;
      EXPECT_GT(out["timings"][field].get<double>(), 0) << field;
    }
    for (const char* what : {"budget", "predicted", "peak"}) {
      for (const char* device : {"gpu0", "host", "pinned", "disk"}) {
        ASSERT_TRUE(out["memory"][what][device].is_number_integer()) << what << ' ' << device;
      }
      EXPECT_GT(out["memory"][what]["host"].get<std::int64_t>(), 0) << what;
    }
    ASSERT_EQ(out["logprobs"]["content"].size(), 24u);
    for (const Json& token : out["logprobs"]["content"]) {
      EXPECT_LE(token["logprob"].get<double>(), 0);
      ASSERT_EQ(token["top_logprobs"].size(), 2u);
      EXPECT_EQ(token["top_logprobs"][0]["id"], token["id"]) << "greedy: the likeliest is the one taken";
      EXPECT_GE(token["top_logprobs"][0]["logprob"], token["top_logprobs"][1]["logprob"]);
    }
  }
}

TEST(Run, TheSameSeedGivesTheSameAnswersAndNGivesThatMany) {
  SNUG_NEEDS_GOLDEN_MODELS();
  const std::vector<std::string> args = {"run",          golden_model("qwen2-mha"),
                                         "--token-ids",  "5,6,7",
                                         "--n",          "3",
                                         "--max-tokens", "6",
                                         "--seed",       "7",
                                         "--ignore-eos"};
  const Json once = run_json(args), again = run_json(args);
  ASSERT_EQ(once["choices"].size(), 3u);
  EXPECT_EQ(once["choices"], again["choices"]);
  EXPECT_NE(once["choices"][0]["token_ids"], once["choices"][1]["token_ids"]);
  EXPECT_EQ(once["choices"][0]["token_ids"], once["token_ids"]);
  EXPECT_EQ(once["usage"]["completion_tokens"], 18);
  EXPECT_EQ(once["sampling"]["seed"], 7);
}

// The prompt reaches the model the same way from a flag, from standard input, from ids and as a chat.
TEST(Run, PromptsComeAsTextStandardInputIdsAndMessages) {
  SNUG_NEEDS_GOLDEN_MODELS();
  const TempFolder folder;
  chat_model(folder.path());
  const std::vector<std::string> base = {"run",          folder.path(), "--temperature", "0",
                                         "--max-tokens", "4",           "--ignore-eos"};
  const auto with = [&](std::vector<std::string> more, const std::string& in = "") {
    auto args = base;
    args.insert(args.end(), more.begin(), more.end());
    return run_json(args, {.in = in});
  };
  const Json from_flag = with({"-p", "Hi there"});
  EXPECT_EQ(from_flag["usage"]["prompt_tokens"], 8);
  EXPECT_EQ(with({}, "Hi there")["token_ids"], from_flag["token_ids"]);
  EXPECT_EQ(with({"--token-ids", joined(byte_ids("Hi there"))})["token_ids"], from_flag["token_ids"]);

  write_file(folder / "m.json", R"([{"role": "user", "content": "Hi"}])");
  write_file(folder / "wrapped.json", R"({"messages": [{"role": "user", "content": "Hi"}]})");
  const Json chat = with({"--chat", "-p", "Hi"});
  // <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n
  EXPECT_EQ(chat["usage"]["prompt_tokens"], 1 + 5 + 2 + 1 + 1 + 1 + 10);
  EXPECT_EQ(with({"--messages", folder / "m.json"})["token_ids"], chat["token_ids"]);
  EXPECT_EQ(with({"--messages", folder / "wrapped.json"})["token_ids"], chat["token_ids"]);
}

TEST(Run, WithoutJsonTheTextAloneIsOnStandardOutput) {
  SNUG_NEEDS_GOLDEN_MODELS();
  const TempFolder folder;
  chat_model(folder.path());
  const std::vector<std::string> args = {"run",           folder.path(), "-p",           "Hi",
                                         "--temperature", "0",           "--max-tokens", "8"};
  const Json json = run_json(args);
  const Outcome plain = run_snug(args);
  EXPECT_EQ(plain.exit_code, 0);
  EXPECT_EQ(plain.out, json["text"].get<std::string>() + "\n");
  EXPECT_THAT(plain.err, HasSubstr("tok/s"));
  auto quiet = args;
  quiet.emplace_back("--quiet");
  EXPECT_EQ(run_snug(quiet).err, "");
}

TEST(Run, AnAnswerEndsAtAStopTextThatIsLeftOut) {
  SNUG_NEEDS_GOLDEN_MODELS();
  const TempFolder folder;
  chat_model(folder.path());
  // Only the letters a, b and c can come, in an order that the seed decides.
  std::vector<std::string> args = {
      "run",           folder.path(), "-p",           "Hi",
      "--seed",        "3",           "--max-tokens", "64",
      "--temperature", "1",           "--logit-bias", R"({"97": 100, "98": 100, "99": 100})"};
  const std::string text = run_json(args)["text"];
  ASSERT_EQ(text.size(), 64u);
  ASSERT_EQ(text.find_first_not_of("abc"), std::string::npos) << text;
  const std::string stop = text.substr(40, 3);
  args.insert(args.end(), {"--stop", stop});
  const Json out = run_json(args);
  EXPECT_EQ(out["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(out["finish_reason"], "stop");
}

// A fine-tuned model may name its end token in one file only: all that are named count.
TEST(Run, StopsAtTheEndTokensOfEveryFile) {
  SNUG_NEEDS_GOLDEN_MODELS();
  const Json expected = golden_case("qwen2-mha", 3);
  const auto prompt = expected["prompt"].get<std::vector<int>>();
  const auto greedy = expected["greedy"].get<std::vector<int>>();
  ASSERT_GT(greedy[2], kChatEnd);
  struct Ends {
    int generation, config, tokenizer;  // indices into greedy; -1: a token that does not come
  };
  for (const auto& [generation, config, tokenizer] :
       {Ends{1, 3, 2}, Ends{3, 1, 2}, Ends{3, 4, 2}, Ends{2, -1, -1}, Ends{-1, 2, -1}, Ends{-1, -1, 2}}) {
    SCOPED_TRACE(testing::Message() << generation << ' ' << config << ' ' << tokenizer);
    const TempFolder folder;
    copy_model("qwen2-mha", folder.path());
    const auto token = [&](int index, int otherwise) {
      return index < 0 ? otherwise : greedy[static_cast<std::size_t>(index)];
    };
    set_field(folder / "generation_config.json", "eos_token_id", token(generation, 2));
    set_field(folder / "config.json", "eos_token_id", token(config, 3));
    add_byte_tokenizer(folder.path(), 1000, tokenizer < 0 ? kChatEnd : token(tokenizer, 0));
    std::size_t first = greedy.size();
    for (const int index : {generation, config, tokenizer}) {
      if (index >= 0) first = std::min(first, static_cast<std::size_t>(index));
    }
    const Json out = run_json(greedy_args(folder.path(), prompt, 24));
    EXPECT_EQ(out["finish_reason"], "stop");
    EXPECT_EQ(out["token_ids"],
              Json(std::vector<int>(greedy.begin(), greedy.begin() + static_cast<int>(first) + 1)));
    EXPECT_THAT(out["text"].get<std::string>(), testing::Not(HasSubstr("<|im_end|>")));
  }
}

TEST(Run, SamplingValuesComeFromTheCheckpointAndFlagsWin) {
  SNUG_NEEDS_GOLDEN_MODELS();
  const TempFolder folder;
  copy_model("qwen2-mha", folder.path());
  edit_json(folder / "generation_config.json", [](OrderedJson& json) {
    json.update({{"do_sample", true},
                 {"temperature", 0.7},
                 {"top_p", 0.8},
                 {"top_k", 20},
                 {"repetition_penalty", 1.05}});
  });
  std::vector<std::string> args = {"run", folder.path(), "--token-ids", "5,6,7", "--max-tokens", "2"};
  Json sampling = run_json(args)["sampling"];
  EXPECT_EQ(sampling["temperature"], 0.7);
  EXPECT_EQ(sampling["top_p"], 0.8);
  EXPECT_EQ(sampling["top_k"], 20);
  EXPECT_EQ(sampling["repetition_penalty"], 1.05);
  EXPECT_EQ(sampling["max_tokens"], 2);

  args.insert(args.end(), {"--temperature", "0.5", "--top-k=0", "--repetition-penalty", "1"});
  sampling = run_json(args)["sampling"];
  EXPECT_EQ(sampling["temperature"], 0.5);
  EXPECT_EQ(sampling["top_p"], 0.8);
  EXPECT_EQ(sampling["top_k"], 0);
  EXPECT_EQ(sampling["repetition_penalty"], 1.0);

  set_field(folder / "generation_config.json", "do_sample", false);
  EXPECT_EQ(
      run_json({"run", folder.path(), "--token-ids", "5", "--max-tokens", "1"})["sampling"]["temperature"],
      0.0);
}

TEST(Run, BothNamesOfTheTypeWorkAndTheTypeIsReported) {
  SNUG_NEEDS_GOLDEN_MODELS();
  const std::string model = golden_model("qwen2-mha");
  for (const char* flag : {"--dtype", "--torch-dtype"}) {
    for (const char* type : {"float32", "auto"}) {
      const Json out = run_json({"run", model, "--token-ids", "5", "--max-tokens", "1", flag, type});
      EXPECT_EQ(out["dtype"]["arithmetic"], type) << flag;
      EXPECT_EQ(out["dtype"]["kv_cache"], std::string(type) == "float32" ? "float32" : "float16") << flag;
    }
  }
  EXPECT_EQ(run_snug({"run", model, "--token-ids", "5", "--dtype", "float64"}).exit_code, 2);
}

TEST(Run, WhatDoesNotFitIsRefusedWithTheSumAndARemedyThatWorks) {
  SNUG_NEEDS_GOLDEN_MODELS();
  if (kSanitized) GTEST_SKIP() << "a sanitizer's shadow memory counts as the process's own";
  const std::string model = golden_model("qwen2-h128");
  const std::vector<std::string> base = {"run", model, "--token-ids", "5,6,7", "--max-tokens", "2", "--json"};
  auto args = base;
  args.insert(args.end(), {"--host-memory", "10MiB"});
  Outcome refused = run_snug(args);
  EXPECT_EQ(refused.exit_code, 3);
  Json error = refused.json()["error"];
  EXPECT_EQ(error["code"], 3);
  for (const char* part : {"process", "weights", "10.0 MiB"}) {
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(part));
  }
  std::string remedy = error["remedy"];
  ASSERT_THAT(remedy, testing::StartsWith("--host-memory "));
  args.back() = remedy.substr(14, remedy.find(' ', 14) - 14);
  EXPECT_EQ(run_snug(args).exit_code, 0) << args.back() << " was to be enough";

  // With a long context wished for, a shorter one is offered. A random model, whose KV blocks are large.
  args = {"run",    "random:qwen2.5-0.5b:q4_0", "--token-ids", "5,6,7",         "--max-tokens", "2",
          "--json", "--max-model-len",          "32768",       "--host-memory", "600MiB"};
  refused = run_snug(args);
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_LT(refused.peak_bytes, 60 << 20);
  remedy = refused.json()["error"]["remedy"];
  ASSERT_THAT(remedy, testing::StartsWith("--max-model-len "));
  args[8] = remedy.substr(16, remedy.find(' ', 16) - 16);
  const Outcome fitting = run_snug(args);
  EXPECT_EQ(fitting.exit_code, 0) << args[8] << " was to fit: " << fitting.err;
  EXPECT_LE(fitting.peak_bytes, 600ll << 20);
}

}  // namespace
}  // namespace snug::program
