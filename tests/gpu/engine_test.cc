// The engine on a GPU over many steps: the same request gives the same tokens, and device memory stays flat.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/gpu.h"
#include "llm/llm.h"
#include "llm/skeleton.h"

namespace snug {
namespace {

constexpr int kAnswer = 24;     // tokens
constexpr int kContext = 2048;  // tokens

class GpuEngine : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { load("random:qwen2.5-0.5b:" + GetParam()); }

  void load(const std::string& model) {
    auto gpu = Gpu::open();
    if (!gpu.ok()) GTEST_SKIP() << gpu.error().to_string();
    auto skeleton = llm::open_skeleton(model);
    ASSERT_TRUE(skeleton.ok()) << skeleton.error().to_string();
    llm::LoadOptions options;
    options.gpu = std::move(*gpu);
    options.budget.host_available = options.budget.gpu_available = 8ll << 30;
    options.wishes = {
        .max_model_len = kContext, .max_num_seqs = 12, .max_num_batched_tokens = 256, .threads = 4};
    auto llm = llm::LLM::load(std::move(*skeleton), options);
    ASSERT_TRUE(llm.ok()) << llm.error().to_string();
    llm_ = std::move(*llm);
  }

  std::vector<std::int32_t> random_prompt(int tokens) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
    for (auto& id : ids) id = std::uniform_int_distribution<std::int32_t>(0, 50000)(random_);
    return ids;
  }

  static engine::SamplingParams greedy(int max_tokens) {
    engine::SamplingParams params;
    params.temperature = 0;
    params.max_tokens = max_tokens;
    params.ignore_eos = true;
    return params;
  }

  engine::RequestId submit(const std::vector<std::int32_t>& prompt, int max_tokens) {
    const auto id = llm_->engine().submit({prompt, greedy(max_tokens), 0, {}});
    EXPECT_TRUE(id.ok());
    return id.ok() ? *id : -1;
  }

  // The answers to all prompts, run together.
  std::vector<std::vector<std::int32_t>> answers(const std::vector<std::vector<std::int32_t>>& prompts) {
    std::map<engine::RequestId, std::size_t> index;
    for (std::size_t i = 0; i < prompts.size(); ++i) index[submit(prompts[i], kAnswer)] = i;
    std::vector<std::vector<std::int32_t>> all(prompts.size());
    while (!llm_->engine().idle()) {
      for (const auto& event : llm_->engine().step()) {
        EXPECT_FALSE(event.error.has_value());
        if (event.token) all[index[event.request]].push_back(event.token->token);
      }
    }
    return all;
  }

  std::unique_ptr<llm::LLM> llm_;
  unsigned seed_ = std::random_device{}();
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  std::mt19937 random_{seed_};
};

TEST_P(GpuEngine, TwiceIsTheSame) {
  std::vector<std::vector<std::int32_t>> prompts;
  for (const int tokens : {1, 3, 17, 64, 130, 300, 5, 9, 33}) prompts.push_back(random_prompt(tokens));
  const auto first = answers(prompts), second = answers(prompts);
  for (const auto& answer : first) EXPECT_EQ(answer.size(), static_cast<std::size_t>(kAnswer));
  EXPECT_EQ(first, second);
}

// In steps of 2 to 8 tokens none depends on its neighbours where weights are packed. One sequence alone has a
// kernel of its own, and what goes through cuBLASLt (larger steps, 16-bit weights) gets one by the number of
// tokens: these differ in rounding.
TEST_P(GpuEngine, NeighboursDoNotMatter) {
  if (GetParam() == "bf16")
    GTEST_SKIP() << "16-bit weights go through cuBLASLt, whose bits vary with the batch";
  std::vector<std::vector<std::int32_t>> prompts;
  for (int i = 0; i < 8; ++i) prompts.push_back(random_prompt(1));
  const auto together = answers(prompts);
  for (std::size_t i = 0; i < prompts.size(); i += 2) {
    const auto two = answers({prompts[i], prompts[i + 1]});
    EXPECT_EQ(two[0], together[i]) << "request " << i;
    EXPECT_EQ(two[1], together[i + 1]) << "request " << i + 1;
  }
}

// Draws from the most likely tokens, found on the GPU, are those from the whole row: a bias of nothing asks
// for it.
TEST_P(GpuEngine, DrawsAreTheSameFromWholeRows) {
  const auto prompt = random_prompt(40);
  const auto draw = [&](bool whole) {
    std::vector<std::int32_t> tokens;
    engine::SamplingParams params;
    params.temperature = 0.9;
    params.top_k = 20;
    params.top_p = 0.9;
    params.repetition_penalty = 1.1;
    params.max_tokens = 64;
    params.ignore_eos = true;
    if (whole) params.logit_bias[7] = 0;
    EXPECT_TRUE(llm_->engine().submit({prompt, params, seed_, {}}).ok());
    while (!llm_->engine().idle()) {
      for (const auto& event : llm_->engine().step()) {
        if (event.token) tokens.push_back(event.token->token);
      }
    }
    return tokens;
  };
  const auto likely = draw(false);
  EXPECT_EQ(likely.size(), 64U);
  EXPECT_EQ(likely, draw(true));
}

// Steps are launched one ahead where all requests are greedy; one that asks for log-probabilities is not, so
// the host waits for each of its steps.
TEST_P(GpuEngine, StepsAheadChangeNothing) {
  const auto run = [&](const std::vector<std::vector<std::int32_t>>& prompts, bool ahead) {
    std::map<engine::RequestId, std::size_t> index;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      engine::SamplingParams params = greedy(kAnswer + static_cast<int>(i));
      if (!ahead) params.logprobs = 1;
      const auto id = llm_->engine().submit({prompts[i], params, 0, {}});
      EXPECT_TRUE(id.ok());
      index[*id] = i;
    }
    std::vector<std::vector<std::int32_t>> all(prompts.size());
    while (!llm_->engine().idle()) {
      for (const auto& event : llm_->engine().step()) {
        EXPECT_TRUE(event.token.has_value());
        all[index[event.request]].push_back(event.token->token);
      }
    }
    return all;
  };
  for (const int count : {1, 2, 5, 8}) {
    SCOPED_TRACE(std::to_string(count) + " requests");
    std::vector<std::vector<std::int32_t>> prompts;
    for (int i = 0; i < count; ++i) prompts.push_back(random_prompt(1 + 31 * i));
    EXPECT_EQ(run(prompts, true), run(prompts, false));
  }
}

// A request that ends with a token, and one that is cancelled, while the step after is under way: the others
// go on as if nothing were, and all pages come back.
TEST_P(GpuEngine, EndsWhileAStepIsUnderWay) {
  std::vector<std::vector<std::int32_t>> prompts;
  for (int i = 0; i < 4; ++i) prompts.push_back(random_prompt(30));
  const auto whole = answers(prompts);
  engine::Engine& engine = llm_->engine();
  std::vector<engine::RequestId> ids;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    engine::SamplingParams params = greedy(kAnswer);
    std::vector<std::int32_t> eos;
    if (i == 1) params.ignore_eos = false, eos = {whole[1][9]};
    const auto id = engine.submit({prompts[i], params, 0, eos});
    ASSERT_TRUE(id.ok());
    ids.push_back(*id);
  }
  std::vector<std::vector<std::int32_t>> all(prompts.size());
  const auto step = [&] {
    for (const auto& event : engine.step()) {
      ASSERT_TRUE(event.token.has_value());
      const auto index = static_cast<std::size_t>(std::ranges::find(ids, event.request) - ids.begin());
      ASSERT_LT(index, ids.size());
      all[index].push_back(event.token->token);
    }
  };
  while (all[2].size() < 15) step();
  EXPECT_TRUE(engine.cancel(ids[2]));
  const auto cancelled = all[2];
  while (!engine.idle()) step();
  EXPECT_TRUE(engine.check().ok());
  EXPECT_EQ(all[2], cancelled) << "a cancelled request went on";
  const auto first = std::ranges::find(whole[1], whole[1][9]);
  EXPECT_EQ(all[1], std::vector<std::int32_t>(whole[1].begin(), first + 1));
  if (GetParam() != "bf16") {  // as in NeighboursDoNotMatter
    for (const std::size_t i : {0, 3}) EXPECT_EQ(all[i].size(), whole[i].size());
    for (const std::size_t i : {0, 3}) EXPECT_EQ(all[i], whole[i]) << "request " << i;
  }
  // All end with a token at once: the step under way is nobody's.
  const auto alone = answers({prompts[0]});
  engine::SamplingParams params = greedy(kAnswer);
  params.ignore_eos = false;
  ASSERT_TRUE(engine.submit({prompts[0], params, 0, {alone[0][5]}}).ok());
  while (!engine.idle()) engine.step();
  EXPECT_TRUE(engine.check().ok());
  EXPECT_EQ(answers({prompts[0]}), alone);
}

// 10,000 steps with 0 to 12 sequences that come and go: graphs of many sizes, eager steps, prompts in chunks.
TEST_P(GpuEngine, MemoryIsFlatOverTenThousandSteps) {
  const Gpu& gpu = *llm_->gpu();
  const std::int64_t loaded = gpu.bytes_taken(), ledger = llm_->ledger().peak(Device::gpu0);
  ASSERT_GT(loaded, 0) << "NVML does not answer";
  std::int64_t warm = 0;
  int tokens = 0;
  for (int step = 0; step < 10'000; ++step) {
    if (step == 500) warm = gpu.bytes_taken();
    const int arrivals = std::uniform_int_distribution<int>(0, 9)(random_) == 0
                             ? std::uniform_int_distribution<int>(0, 4)(random_)
                             : 0;
    for (int i = 0; i < arrivals || (i == 0 && llm_->engine().idle()); ++i) {
      submit(random_prompt(std::uniform_int_distribution<int>(1, 200)(random_)),
             std::uniform_int_distribution<int>(1, 100)(random_));
    }
    for (const auto& event : llm_->engine().step()) {
      ASSERT_FALSE(event.error.has_value()) << event.error->to_string();
      ++tokens;
    }
  }
  RecordProperty("tokens", tokens);
  RecordProperty("bytes_after_load", std::to_string(loaded));
  RecordProperty("bytes_after_500_steps", std::to_string(warm));
  EXPECT_EQ(gpu.bytes_taken(), warm);
  EXPECT_EQ(llm_->ledger().peak(Device::gpu0), ledger);
  EXPECT_EQ(warm, loaded) << "the driver took more while the first steps ran";
  EXPECT_LE(warm, llm_->plan().predicted_gpu);
}

// One sequence's decode step is one kernel; evaluation goes op by op. Their logits differ by what bfloat16
// rounds, a percent or two of their spread.
class DecodeKernel : public GpuEngine {
 protected:
  void SetUp() override { load(GetParam()); }
};

TEST_P(DecodeKernel, AgreesWithTheOps) {
  double worst = 0;
  for (const int length : {1, 2, 15, 16, 17, 127, 128, 129, 130, 500, 1023, 2000}) {
    SCOPED_TRACE("prompt of " + std::to_string(length) + " tokens");
    engine::SamplingParams params;
    params.temperature = 0;
    params.max_tokens = 2;
    params.ignore_eos = true;
    params.logprobs = 20;
    std::vector<std::int32_t> ids = random_prompt(length);
    ASSERT_TRUE(llm_->engine().submit({ids, params, 0, {}}).ok());
    std::vector<engine::Sampled> tokens;
    while (!llm_->engine().idle()) {
      for (auto& event : llm_->engine().step()) {
        ASSERT_TRUE(event.token.has_value());
        tokens.push_back(std::move(*event.token));
      }
    }
    ASSERT_EQ(tokens.size(), 2U);
    ids.push_back(tokens[0].token);
    const auto vocab = static_cast<std::size_t>(llm_->skeleton().config.vocab);
    std::vector<float> logits(vocab);
    const auto status = llm_->engine().evaluate(
        ids, [&](std::int64_t first, std::int64_t count, const float* rows) -> Status {
          if (first + count == std::ssize(ids)) {
            const float* last = rows + static_cast<std::size_t>(count - 1) * vocab;
            logits.assign(last, last + vocab);
          }
          return {};
        });
    ASSERT_TRUE(status.ok());
    double mean = 0, spread = 0, sum = 0;
    for (const float x : logits) mean += x / static_cast<double>(vocab);
    for (const float x : logits) spread += (x - mean) * (x - mean) / static_cast<double>(vocab);
    for (const float x : logits) sum += std::exp(x - mean);
    spread = std::sqrt(spread);
    ASSERT_EQ(tokens[1].top.size(), 20U);
    for (const auto& top : tokens[1].top) {
      const double want = logits[static_cast<std::size_t>(top.token)] - mean - std::log(sum);
      EXPECT_NEAR(top.logprob, want, 0.1 * spread) << "token " << top.token;
      worst = std::max(worst, std::abs(top.logprob - want) / spread);
    }
  }
  RecordProperty("worst_of_spread", std::to_string(worst));
  std::printf("worst difference: %.4f of the logits' spread\n", worst);
}

INSTANTIATE_TEST_SUITE_P(Models, DecodeKernel,
                         testing::Values("random:qwen2.5-0.5b", "random:qwen2.5-0.5b:q4_0",
                                         "random:qwen2.5-0.5b:q8_0", "random:qwen2.5-0.5b:q4_k_m",
                                         "random:qwen2.5-1.5b", "random:qwen2.5-1.5b:q4_0",
                                         "random:qwen2.5-1.5b:q8_0", "random:qwen2.5-1.5b:q4_k_m"),
                         [](const auto& parameter) {
                           std::string name = parameter.param.substr(7);
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

INSTANTIATE_TEST_SUITE_P(Types, GpuEngine, testing::Values("bf16", "q8_0", "q4_k_m"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace snug
