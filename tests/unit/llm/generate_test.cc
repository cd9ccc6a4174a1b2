// Text generation end to end, over a tiny GGUF model of random weights with a real tokenizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "llm/llm.h"

namespace snug::llm {
namespace {

class Generate : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto path = std::filesystem::path(SNUG_GOLDEN_DIR) / "gguf" / "tiny-q8_0.gguf";
    if (!std::filesystem::exists(path)) return;
    auto skeleton = open_skeleton(path.string());
    ASSERT_TRUE(skeleton.ok()) << skeleton.error().to_string();
    LoadOptions options;
    options.precision = kernels::Precision::exact;
    options.budget.host = 1ll << 30;
    options.wishes = {.max_model_len = 256, .max_num_seqs = 4, .kv_dtype = DType::f32, .threads = 1};
    auto llm = LLM::load(std::move(*skeleton), options);
    ASSERT_TRUE(llm.ok()) << llm.error().to_string();
    llm_ = llm->release();
  }
  static void TearDownTestSuite() {
    delete llm_;
    llm_ = nullptr;
  }
  void SetUp() override {
    if (llm_ == nullptr) GTEST_SKIP() << "there is no gguf/tiny-q8_0.gguf in " << SNUG_GOLDEN_DIR;
  }
  void TearDown() override {
    if (llm_ == nullptr) return;
    EXPECT_TRUE(llm_->engine().idle());
    EXPECT_TRUE(llm_->engine().check().ok());
  }

  static GenerateRequest request_of(std::uint64_t seed, int max_tokens = 48) {
    GenerateRequest request;
    auto ids = llm_->skeleton().encode("an ant in the mind of the thing");
    EXPECT_TRUE(ids.ok());
    request.prompt = *ids;
    request.params.seed = seed;
    request.params.max_tokens = max_tokens;
    request.params.ignore_eos = true;
    return request;
  }
  static GenerateResult generate(const GenerateRequest& request, const TextSink& sink = {}) {
    auto result = llm_->generate(request, sink);
    EXPECT_TRUE(result.ok()) << result.error().to_string();
    return result.ok() ? *result : GenerateResult{};
  }

  static LLM* llm_;
};
LLM* Generate::llm_ = nullptr;

TEST_F(Generate, StreamedPiecesAreTheText) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    std::string streamed;
    const auto result = generate(request_of(seed), [&](int index, std::string_view piece) {
      EXPECT_EQ(index, 0);
      EXPECT_FALSE(piece.empty());
      streamed += piece;
      return true;
    });
    ASSERT_EQ(result.completions.size(), 1u);
    const Completion& answer = result.completions[0];
    EXPECT_EQ(streamed, answer.text);
    EXPECT_FALSE(answer.text.empty());
    EXPECT_EQ(answer.token_ids.size(), 48u);
    EXPECT_EQ(answer.finish_reason, engine::FinishReason::length);
    EXPECT_EQ(result.completion_tokens, 48);
    EXPECT_EQ(result.prompt_tokens, std::ssize(request_of(seed).prompt));
  }
}

TEST_F(Generate, TheSameSeedGivesTheSameText) {
  const auto first = generate(request_of(11)).completions[0];
  EXPECT_EQ(generate(request_of(11)).completions[0].token_ids, first.token_ids);
  EXPECT_NE(generate(request_of(12)).completions[0].token_ids, first.token_ids);
}

// Case A14: nothing of a stop string is sent, wherever tokens cut it.
TEST_F(Generate, StopStringsOverTokens) {
  int tried = 0;
  for (const std::uint64_t seed : {1, 2, 3}) {
    GenerateRequest request = request_of(seed);
    const std::string full = generate(request).completions[0].text;
    for (std::size_t begin = 5; begin + 9 < full.size(); begin += 11) {
      const std::string stop = full.substr(begin, 7);
      // Only whole characters can be asked for.
      if (std::ranges::any_of(stop, [](unsigned char c) { return c >= 0x80; })) continue;
      ++tried;
      request.params.stop = {"never in any text", stop};
      std::string streamed;
      const auto result = generate(request, [&](int, std::string_view piece) {
        streamed += piece;
        return true;
      });
      const Completion& answer = result.completions[0];
      EXPECT_EQ(answer.text, full.substr(0, full.find(stop))) << "stop \"" << stop << '"';
      EXPECT_EQ(streamed, answer.text);
      EXPECT_EQ(answer.finish_reason, engine::FinishReason::stop);
      EXPECT_LT(answer.token_ids.size(), 48u);
    }
  }
  EXPECT_GT(tried, 3);
}

TEST_F(Generate, AnUnfinishedStopStringIsText) {
  GenerateRequest request = request_of(2);
  const std::string full = generate(request).completions[0].text;
  request.params.stop = {full.substr(full.size() - 1) + "~~ goes on"};
  const auto answer = generate(request).completions[0];
  EXPECT_EQ(answer.text, full);
  EXPECT_EQ(answer.finish_reason, engine::FinishReason::length);
}

TEST_F(Generate, SeveralAnswers) {
  GenerateRequest request = request_of(21);
  const auto one = generate(request).completions[0];
  request.params.n = 3;
  std::map<int, std::string> streamed;
  const auto result = generate(request, [&](int index, std::string_view piece) {
    streamed[index] += piece;
    return true;
  });
  ASSERT_EQ(result.completions.size(), 3u);
  EXPECT_EQ(result.completions[0].token_ids, one.token_ids);
  EXPECT_NE(result.completions[1].token_ids, one.token_ids);
  EXPECT_NE(result.completions[2].token_ids, result.completions[1].token_ids);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(streamed[i], result.completions[static_cast<std::size_t>(i)].text);
  EXPECT_EQ(result.completion_tokens, 3 * 48);
  // More answers than run at once: they wait for a place.
  request.params.n = 9;
  request.params.max_tokens = 4;
  EXPECT_EQ(generate(request).completions.size(), 9u);
}

TEST_F(Generate, ASinkThatSaysNoEndsItsAnswerAlone) {
  GenerateRequest request = request_of(31);
  request.params.n = 2;
  int pieces = 0;
  const auto result =
      generate(request, [&](int index, std::string_view) { return index != 0 || ++pieces < 3; });
  EXPECT_EQ(pieces, 3);
  EXPECT_EQ(result.completions[0].finish_reason, engine::FinishReason::stop);
  EXPECT_LT(result.completions[0].token_ids.size(), 48u);
  EXPECT_EQ(result.completions[1].finish_reason, engine::FinishReason::length);
  EXPECT_EQ(result.completions[1].token_ids.size(), 48u);
}

TEST_F(Generate, Logprobs) {
  GenerateRequest request = request_of(41, 12);
  EXPECT_TRUE(generate(request).completions[0].logprobs.empty());
  const auto plain = generate(request).completions[0];
  request.params.logprobs = 3;
  const auto answer = generate(request).completions[0];
  EXPECT_EQ(answer.token_ids, plain.token_ids);
  ASSERT_EQ(answer.logprobs.size(), answer.token_ids.size());
  ASSERT_EQ(answer.logprob_texts.size(), answer.token_ids.size());
  for (std::size_t i = 0; i < answer.logprobs.size(); ++i) {
    const auto& entry = answer.logprobs[i];
    EXPECT_EQ(entry.token, answer.token_ids[i]);
    EXPECT_LE(entry.logprob, 0);
    EXPECT_EQ(answer.logprob_texts[i], llm_->skeleton().tokenizer->token_bytes(entry.token));
    ASSERT_EQ(entry.top.size(), 3u);
    double total = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      total += std::exp(static_cast<double>(entry.top[k].logprob));
      EXPECT_LE(entry.top[k].logprob, entry.top[k == 0 ? 0 : k - 1].logprob);
    }
    EXPECT_LE(total, 1 + 1e-5);
    EXPECT_GE(entry.top[0].logprob, entry.logprob - 1e-6f);
  }
  request.params.logprobs = 0;
  EXPECT_TRUE(generate(request).completions[0].logprobs[0].top.empty());
}

TEST_F(Generate, RefusesBadRequests) {
  const auto refused = [&](auto change, const std::string& words) {
    GenerateRequest request = request_of(51);
    change(request);
    const auto result = llm_->generate(request);
    ASSERT_FALSE(result.ok()) << words;
    EXPECT_EQ(result.error().code, ErrorCode::usage) << words;
    EXPECT_NE(result.error().message.find(words), std::string::npos) << result.error().message;
  };
  refused([](GenerateRequest& r) { r.params.max_tokens = 0; }, "max_tokens");
  refused([](GenerateRequest& r) { r.params.top_p = 0; }, "top_p");
  refused([](GenerateRequest& r) { r.params.temperature = NAN; }, "temperature");
  refused([](GenerateRequest& r) { r.params.n = 0; }, "n must");
  refused([](GenerateRequest& r) { r.params.stop = {""}; }, "stop");
  refused([](GenerateRequest& r) { r.params.logprobs = 100; }, "logprobs");
  refused(
      [](GenerateRequest& r) {
        r.params.logit_bias = {{llm_->skeleton().usable_vocab(), 1.0f}};
      },
      "logit_bias");
  refused([](GenerateRequest& r) { r.prompt.clear(); }, "empty");
  refused([](GenerateRequest& r) { r.prompt.assign(256, 1); }, "256");
  refused([](GenerateRequest& r) { r.prompt.push_back(1 << 20); }, "vocabulary");
  // And goes on with good ones.
  EXPECT_EQ(generate(request_of(51)).completions[0].token_ids.size(), 48u);
}

// An answer that would pass the end of the context ends there.
TEST_F(Generate, TheContextEndsAnAnswer) {
  const auto request = request_of(61, 10'000);
  const auto answer = generate(request).completions[0];
  EXPECT_EQ(answer.token_ids.size(), 256 - request.prompt.size());
  EXPECT_EQ(answer.finish_reason, engine::FinishReason::length);
}

}  // namespace
}  // namespace snug::llm
