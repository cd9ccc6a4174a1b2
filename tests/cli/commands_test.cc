// snug eval, tokenize, inspect, bench and chat as a user meets them.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "cli/model_files.h"
#include "formats/safetensors.h"

namespace snug::program {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// One tensor of a safetensors file as float32.
std::vector<float> read_tensor(const fs::path& path, const std::string& name,
                               std::vector<std::int64_t>* shape) {
  const std::string bytes = read_file(path);
  const auto entries = formats::parse_safetensors(std::as_bytes(std::span(bytes)), path.string());
  EXPECT_TRUE(entries.ok()) << entries.error().to_string();
  for (const auto& entry : *entries) {
    if (entry.name != name) continue;
    EXPECT_EQ(entry.format, quant::Format::f32);
    *shape = entry.shape;
    std::vector<float> values(static_cast<std::size_t>(entry.bytes) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + entry.offset, static_cast<std::size_t>(entry.bytes));
    return values;
  }
  ADD_FAILURE() << name << " is not in " << path;
  return {};
}

TEST(Eval, PerplexityFollowsFromTheLogitsItWrites) {
  SNUG_NEEDS_GOLDEN_MODELS();
  const TempFolder folder;
  const Json cases = Json::parse(read_file(golden_model("qwen2-mha") / "golden.json"))["cases"];
  const Json lists = {cases[3]["prompt"], cases[4]["prompt"]};  // 17 and 64 ids
  write_file(folder / "ids.json", lists.dump());
  const Json out = run_json({"eval", golden_model("qwen2-mha"), "--token-ids", folder / "ids.json", "--dtype",
                             "float32", "--logits-out", folder / "l.safetensors"});
  const double expected = cases[3]["nll_sum"].get<double>() + cases[4]["nll_sum"].get<double>();
  EXPECT_NEAR(out["nll_sum"].get<double>(), expected, 1e-4 * expected);
  EXPECT_EQ(out["tokens"], 17 + 64);
  EXPECT_EQ(out["scored"], 16 + 63);
  EXPECT_NEAR(out["perplexity"].get<double>(), std::exp(out["nll_sum"].get<double>() / (16 + 63)),
              1e-6 * std::exp(9));

  double nll = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    std::vector<std::int64_t> shape;
    const auto logits = read_tensor(folder / "l.safetensors", "logits." + std::to_string(i), &shape);
    const auto ids = lists[i].get<std::vector<std::size_t>>();
    ASSERT_THAT(shape, ElementsAre(ids.size(), 1000));
    for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
      const float* row = logits.data() + t * 1000;
      const double most = *std::max_element(row, row + 1000);
      double sum = 0;
      for (std::size_t v = 0; v < 1000; ++v) sum += std::exp(row[v] - most);
      nll += std::log(sum) + most - row[ids[t + 1]];
    }
  }
  EXPECT_NEAR(nll, out["nll_sum"].get<double>(), 1e-6 * nll);
}

TEST(Eval, AListAListOfListsAndATextGiveTheSame) {
  SNUG_NEEDS_GOLDEN_MODELS();
  const TempFolder folder;
  chat_model(folder.path());
  const std::string text = "The quick brown fox.";
  write_file(folder / "t.txt", text);
  write_file(folder / "one.json", Json(byte_ids(text)).dump());
  write_file(folder / "lists.json", Json::array({byte_ids(text)}).dump());
  const auto nll = [&](const char* flag, const char* file) {
    const Json out = run_json({"eval", folder.path(), flag, folder / file});
    EXPECT_EQ(out["tokens"], text.size()) << file;
    return out["nll_sum"].get<double>();
  };
  const double expected = nll("--text", "t.txt");
  EXPECT_GT(expected, 0);
  EXPECT_EQ(nll("--token-ids", "one.json"), expected);
  EXPECT_EQ(nll("--token-ids", "lists.json"), expected);

  // Windows of 8 tokens: the last one of each predicts nothing.
  const Json cut = run_json({"eval", folder.path(), "--text", folder / "t.txt", "--max-model-len", "8"});
  EXPECT_EQ(cut["tokens"], text.size());
  EXPECT_EQ(cut["scored"], 7 + 7 + 3);
}

TEST(Tokenize, LinesOfTextIdsAndMessages) {
  const TempFolder folder;  // nothing but tokenizer files
  add_byte_tokenizer(folder.path());
  const Outcome outcome = run_snug({"tokenize", folder.path()}, {.in = R"({"text": "Hi\u00e9<|im_end|>"}
{"ids": [72, 105, 257]}

{"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": true}
{"messages": [{"role": "user", "content": "a"}]}
)"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::vector<Json> out;
  for (std::string line; std::getline(lines, line);) out.push_back(Json::parse(line));
  ASSERT_EQ(out.size(), 4u);
  EXPECT_EQ(out[0], (Json{{"ids", {72, 105, 0xC3, 0xA9, kChatEnd}}}));
  EXPECT_EQ(out[1], (Json{{"text", "Hi<|im_end|>"}}));
  const std::string user = "<|im_start|>user\na<|im_end|>\n";
  EXPECT_EQ(out[2]["text"], user + "<|im_start|>assistant\n");
  EXPECT_EQ(out[2]["ids"].size(), 1u + 5 + 1 + 1 + 1 + 1 + 10);
  EXPECT_EQ(out[3]["text"], user);

  const auto with = [&](const char* flag, const char* line) {
    return Json::parse(run_snug({"tokenize", folder.path(), flag}, {.in = line}).out);
  };
  EXPECT_EQ(with("--no-special", R"({"text": "<|im_end|>"})")["ids"], Json(byte_ids("<|im_end|>")));
  EXPECT_EQ(with("--skip-special", R"({"ids": [72, 257]})")["text"], "H");
}

TEST(Tokenize, ABadLineGetsAnErrorInItsPlaceAndTheOthersAnAnswer) {
  const TempFolder folder;
  add_byte_tokenizer(folder.path());
  for (const std::string bad :
       {R"({"text": 3})", R"({"ids": [258]})", R"({"ids": [-1]})", R"({"ids": ["a"]})", "[1]", R"({"text": )",
        R"({"messages": "no"})", R"({"messages": [{"role": 5}]})"}) {
    const Outcome outcome =
        run_snug({"tokenize", folder.path()}, {.in = "{\"text\": \"a\"}\n" + bad + "\n{\"text\": \"b\"}\n"});
    SCOPED_TRACE(bad + " " + outcome.err);
    EXPECT_EQ(outcome.exit_code, 2);
    std::istringstream lines(outcome.out);
    std::vector<Json> out;
    for (std::string line; std::getline(lines, line);) out.push_back(Json::parse(line));
    ASSERT_EQ(out.size(), 3u) << outcome.out;
    EXPECT_EQ(out[0], (Json{{"ids", {97}}}));
    EXPECT_EQ(out[1]["error"]["code"], 2);
    EXPECT_EQ(out[2], (Json{{"ids", {98}}}));
    if (bad.find("messages") == std::string::npos) {
      EXPECT_THAT(outcome.err, HasSubstr("line 2"));
    }
  }
}

TEST(Inspect, ListsConfigurationTensorsAndBytes) {
  SNUG_NEEDS_GOLDEN_MODELS();
  const Json out = run_json({"inspect", golden_model("qwen2-h128")});
  EXPECT_EQ(out["config"]["model_type"], "qwen2");
  EXPECT_EQ(out["config"]["hidden_size"], 256);
  EXPECT_EQ(out["config"]["num_hidden_layers"], 4);
  EXPECT_EQ(out["config"]["head_dim"], 128);
  EXPECT_EQ(out["config"]["tie_word_embeddings"], false);
  EXPECT_EQ(out["tensors"].size(), 4u * 12 + 3);
  EXPECT_EQ(out["parameters"], 4002048);
  EXPECT_EQ(out["bytes"], 8004096);
  std::int64_t sum = 0;
  for (const Json& tensor : out["tensors"]) {
    std::int64_t elements = 1;
    for (const auto& n : tensor["shape"]) elements *= n.get<std::int64_t>();
    EXPECT_EQ(tensor["dtype"], "bf16");
    EXPECT_EQ(tensor["bytes"], 2 * elements) << tensor["name"];
    sum += tensor["bytes"].get<std::int64_t>();
  }
  EXPECT_EQ(sum, 8004096);
  EXPECT_EQ(out["warnings"], Json::array());
  EXPECT_EQ(out["tokenizer"], Json());
  const Outcome plain = run_snug({"inspect", golden_model("qwen2-h128"), "--tensors"});
  EXPECT_EQ(plain.exit_code, 0);
  EXPECT_THAT(plain.out, HasSubstr("model.layers.3.mlp.down_proj.weight"));
}

TEST(Bench, EveryFigureIsThereAndPositive) {
  SNUG_NEEDS_GOLDEN_MODELS();
  const std::vector<std::string> args = {
      "bench", golden_model("qwen2-mha"), "--prompt", "16", "--generate", "4", "--repeat", "1", "--batch",
      "2"};
  const Json out = run_json(args);
  for (const char* field : {"prefill_tok_s", "decode_tok_s"}) EXPECT_GT(out[field].get<double>(), 0) << field;
  for (const char* group : {"achieved", "ceiling"}) {
    for (const char* field : {"GBps", "TFLOPs"})
      EXPECT_GT(out[group][field].get<double>(), 0) << group << field;
  }
  EXPECT_GT(out["ratio"]["decode"].get<double>(), 0);
  EXPECT_GT(out["ratio"]["prefill"].get<double>(), 0);
  EXPECT_THAT(out["logits_hash"].get<std::string>(), testing::MatchesRegex("[0-9a-f]{16}"));
  EXPECT_EQ(run_json(args)["logits_hash"], out["logits_hash"]);
  // Measuring the ceiling takes memory that is not the model's.
  if (!kSanitized) {
    EXPECT_LE(out["memory"]["peak"]["host"].get<std::int64_t>(),
              out["memory"]["predicted"]["host"].get<std::int64_t>());
  }
}

class Chat : public testing::Test {
 protected:
  void SetUp() override {
    SNUG_NEEDS_GOLDEN_MODELS();
    chat_model(folder_.path());
  }
  Outcome chat(const std::string& lines, std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"chat", folder_.path(), "--temperature", "0", "--max-tokens",
                                     "5",    "--logit-bias", R"({"98": 100})"};  // answers "bbbbb"
    args.insert(args.end(), more.begin(), more.end());
    return run_snug(args, {.in = lines});
  }
  Json saved(const char* name) { return Json::parse(read_file(folder_ / name)); }
  const TempFolder folder_;
};

TEST_F(Chat, TakesTurnsAndRemembersThem) {
  const Outcome outcome = chat("hello\nand again\n/save " + (folder_ / "a.json").string() +
                               "\n/clear\n/save " + (folder_ / "b.json").string() + "\n/quit\nnot read\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "bbbbb\nbbbbb\n");
  const Json messages = saved("a.json");
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0], (Json{{"role", "user"}, {"content", "hello"}}));
  EXPECT_EQ(messages[1], (Json{{"role", "assistant"}, {"content", "bbbbb"}}));
  EXPECT_EQ(messages[2]["content"], "and again");
  EXPECT_EQ(messages[3]["role"], "assistant");
  EXPECT_EQ(saved("b.json"), Json::array());
  // <|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n is 24 tokens; the second prompt has both
  // turns.
  EXPECT_THAT(outcome.err, HasSubstr("[24 + 5 tokens"));
  EXPECT_THAT(outcome.err, HasSubstr("[" + std::to_string(24 + 5 + 2 + 6 + 9 + 2 + 11) + " + 5 tokens"));
}

TEST_F(Chat, SystemPromptsHelpAndMemory) {
  const Outcome outcome =
      chat("/help\n/memory\nfirst\n/system Be brief.\nhi\n/image x.png\n/save " +
               (folder_ / "c.json").string() + "\n/save\n/save /nonexistent/x.json\n/wibble\n\n",
           {"--system", "Be kind."});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* command : {"/system", "/clear", "/memory", "/save", "/image", "/quit"}) {
    EXPECT_THAT(outcome.err, HasSubstr(command));
  }
  for (const char* row : {"predicted", "weights", "kv", "activations"})
    EXPECT_THAT(outcome.err, HasSubstr(row));
  EXPECT_THAT(outcome.err, HasSubstr("cannot be written"));
  EXPECT_THAT(outcome.err, HasSubstr("does not read pictures"));
  EXPECT_EQ(outcome.out, "bbbbb\nbbbbb\n");
  const Json messages = saved("c.json");
  ASSERT_EQ(messages.size(), 3u) << "a new system prompt starts anew";
  EXPECT_EQ(messages[0], (Json{{"role", "system"}, {"content", "Be brief."}}));
  EXPECT_EQ(messages[1]["content"], "hi");
}

// A turn that cannot be answered is reported and forgotten; the conversation goes on.
TEST_F(Chat, GoesOnAfterATurnThatDoesNotFit) {
  const Outcome outcome = chat(std::string(100, 'x') + "\nhi\n/save " + (folder_ / "d.json").string() + "\n",
                               {"--max-model-len", "64"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("the prompt has 119 tokens"));
  EXPECT_EQ(outcome.out, "\nbbbbb\n");
  EXPECT_EQ(saved("d.json").size(), 2u);
}

TEST(ChatWithoutTemplate, IsRefusedBeforeLoading) {
  SNUG_NEEDS_GOLDEN_MODELS();
  const Outcome outcome = run_snug({"chat", golden_model("qwen2-mha")});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("no chat template"));
}

}  // namespace
}  // namespace snug::program
