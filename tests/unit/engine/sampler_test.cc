#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

namespace snug::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::uint64_t fresh_seed() {
  const std::uint64_t seed = std::random_device{}();
  printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

std::vector<float> random_logits(std::mt19937_64& random, int count, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> logits(static_cast<std::size_t>(count));
  for (float& logit : logits) logit = normal(random);
  return logits;
}

Sampled sample(Sampler& sampler, std::vector<float> logits, const SamplingParams& params,
               std::uint64_t seed = 1, std::uint64_t step = 0, const TokenCounts& counts = {},
               int usable = -1) {
  auto result = sampler.sample(logits, params, counts, seed, step,
                               usable < 0 ? static_cast<int>(logits.size()) : usable);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : Sampled{-1, 0, {}};
}

// The distribution by the definitions, with a full sort, in double.
std::vector<double> reference(const std::vector<float>& logits, const SamplingParams& params,
                              const TokenCounts& counts) {
  std::vector<double> values(logits.begin(), logits.end());
  for (const auto& [id, count] : counts.counts()) {
    if (id < 0 || id >= static_cast<int>(values.size())) continue;
    double& v = values[static_cast<std::size_t>(id)];
    v = v > 0 ? v / params.repetition_penalty : v * params.repetition_penalty;
    if (count.output > 0) v -= params.frequency_penalty * count.output + params.presence_penalty;
  }
  for (const auto& [id, bias] : params.logit_bias) values[static_cast<std::size_t>(id)] += bias;
  for (double& v : values) v /= params.temperature;
  const double highest = *std::max_element(values.begin(), values.end());
  std::vector<double> p(values.size());
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = std::exp(values[i] - highest);
  for (double& x : p) x = x < params.min_p ? 0 : x;
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return p[a] > p[b]; });
  if (params.top_k > 0) {
    for (std::size_t i = static_cast<std::size_t>(params.top_k); i < order.size(); ++i) p[order[i]] = 0;
  }
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  double before = 0;  // the share of all more likely tokens
  for (const std::size_t i : order) {
    const double share = p[i] / total;
    if (before >= params.top_p) p[i] = 0;
    before += share;
  }
  const double left = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= left;
  return p;
}

void expect_distribution(const std::vector<float>& logits, const SamplingParams& params,
                         const TokenCounts& counts, std::uint64_t seed) {
  constexpr int kDraws = 20000;
  const std::vector<double> p = reference(logits, params, counts);
  std::vector<int> seen(p.size());
  Sampler sampler;
  for (int step = 0; step < kDraws; ++step) {
    ++seen[static_cast<std::size_t>(
        sample(sampler, logits, params, seed, static_cast<std::uint64_t>(step), counts).token)];
  }
  // Pearson's statistic; cells that expect few draws are put together. Mean = degrees of freedom k, deviation
  // sqrt(2k): k + 6 sqrt(2k) + 12 is passed by chance far less than once in a million runs.
  double statistic = 0, rare_expected = 0, rare_seen = 0;
  int cells = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(seen[i], 0) << "token " << i << " was filtered out";
      continue;
    }
    const double expected = p[i] * kDraws;
    if (expected < 8) {
      rare_expected += expected;
      rare_seen += seen[i];
      continue;
    }
    statistic += (seen[i] - expected) * (seen[i] - expected) / expected;
    ++cells;
  }
  if (rare_expected >= 8) {
    statistic += (rare_seen - rare_expected) * (rare_seen - rare_expected) / rare_expected;
    ++cells;
  }
  ASSERT_GT(cells, 0);
  EXPECT_LT(statistic, cells + 6 * std::sqrt(2.0 * cells) + 12) << cells << " cells";
}

TEST(Sampler, DrawsTheDistributionOfEachFilter) {
  std::mt19937_64 random(fresh_seed());
  const auto logits = random_logits(random, 40, 2);
  TokenCounts counts;
  counts.add_prompt(std::vector<std::int32_t>{0, 1, 2, 5});
  for (const int id : {2, 3, 3, 3, 7}) counts.add_output(id);
  const auto with = [](auto&& change) {
    SamplingParams params;
    change(params);
    return params;
  };
  const SamplingParams all[] = {
      {},
      with([](auto& p) { p.temperature = 0.5; }),
      with([](auto& p) { p.temperature = 3; }),
      with([](auto& p) { p.top_k = 5; }),
      with([](auto& p) { p.top_k = 1000; }),
      with([](auto& p) { p.top_p = 0.6; }),
      with([](auto& p) { p.top_p = 0.999; }),
      with([](auto& p) { p.min_p = 0.1; }),
      with([](auto& p) { p.repetition_penalty = 1.5; }),
      with([](auto& p) { p.presence_penalty = 1.2; }),
      with([](auto& p) { p.frequency_penalty = 0.7; }),
      with([](auto& p) {
        p.logit_bias = {{3, 2.0f}, {9, -100.0f}};
      }),
      with([](auto& p) { p.top_k = 10, p.top_p = 0.8; }),
      with([](auto& p) {
        p.temperature = 0.7, p.top_k = 20, p.top_p = 0.8, p.min_p = 0.05, p.repetition_penalty = 1.1;
      }),
      with([](auto& p) {
        p.temperature = 1.4, p.top_p = 0.9, p.frequency_penalty = -0.5, p.presence_penalty = 0.5;
        p.logit_bias = {{1, 1.5f}};
      }),
  };
  for (std::size_t i = 0; i < std::size(all); ++i) {
    SCOPED_TRACE(i);
    expect_distribution(logits, all[i], counts, random());
  }
}

// Which tokens can come out at a real vocabulary's size: the same set as the reference's.
TEST(Sampler, FiltersLargeVocabularyAsReference) {
  std::mt19937_64 random(fresh_seed());
  const auto logits = random_logits(random, 20000, 3);
  for (const auto& [top_k, top_p, min_p] : std::vector<std::tuple<int, double, double>>{
           {0, 0.9, 0}, {0, 0.3, 0}, {500, 1, 0}, {300, 0.95, 0}, {0, 1, 0.02}, {1, 1, 0}, {0, 1e-9, 0}}) {
    SamplingParams params;
    params.top_k = top_k;
    params.top_p = top_p;
    params.min_p = min_p;
    const auto p = reference(logits, params, {});
    Sampler sampler;
    std::vector<std::int32_t> drawn;
    for (std::uint64_t step = 0; step < 60; ++step) {
      drawn.push_back(sample(sampler, logits, params, random(), step).token);
      EXPECT_GT(p[static_cast<std::size_t>(drawn.back())], 0) << top_k << " " << top_p << " " << min_p;
    }
    if (top_k == 1 || top_p < 0.01) {
      EXPECT_EQ(drawn, std::vector<std::int32_t>(60, drawn[0]));
      EXPECT_EQ(drawn[0], std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
  }
}

TEST(Sampler, TopPKeepsTheTokenThatCrosses) {
  // Shares 0.5, 0.25, 0.125, 0.125.
  const std::vector<float> logits = {std::log(4.0f), std::log(2.0f), 0, 0};
  for (const auto& [top_p, kept] :
       std::vector<std::pair<double, int>>{{0.4, 1}, {0.6, 2}, {0.74, 2}, {0.8, 3}, {1, 4}}) {
    SamplingParams params;
    params.top_p = top_p;
    std::vector<int> seen(4);
    Sampler sampler;
    for (std::uint64_t step = 0; step < 400; ++step) {
      ++seen[static_cast<std::size_t>(sample(sampler, logits, params, 7, step).token)];
    }
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(seen[static_cast<std::size_t>(i)] > 0, i < kept) << top_p << " token " << i;
  }
}

TEST(Sampler, GreedyTakesTheLowestOfTies) {
  SamplingParams params;
  params.temperature = 0;
  Sampler sampler;
  EXPECT_EQ(sample(sampler, {1, 5, 5, 2, 5}, params).token, 1);
  params.logit_bias = {{3, 3.0f}, {0, 4.0f}};
  EXPECT_EQ(sample(sampler, {1, 5, 5, 2, 5}, params).token, 0);
}

TEST(Sampler, GreedyComesAfterPenaltiesAndBias) {
  SamplingParams params;
  params.temperature = 0;
  Sampler sampler;
  TokenCounts counts;
  counts.add_prompt(std::vector<std::int32_t>{1});
  counts.add_output(2);
  counts.add_output(2);
  params.repetition_penalty = 2;
  EXPECT_EQ(sample(sampler, {1.1f, 2, 2, -3}, params, 1, 0, counts).token, 0);  // 2 / 2 = 1 < 1.1
  EXPECT_EQ(sample(sampler, {-3, -2, -9, -9}, params, 1, 0, counts).token, 0);  // -2 * 2 = -4 < -3
  params.repetition_penalty = 1;
  params.frequency_penalty = 0.5;  // the prompt does not count
  EXPECT_EQ(sample(sampler, {0, 1.2f, 2, 0}, params, 1, 0, counts).token, 1);
  params.frequency_penalty = 0;
  params.presence_penalty = 0.5;  // once, however often
  EXPECT_EQ(sample(sampler, {0, 1.4f, 2, 0}, params, 1, 0, counts).token, 2);
}

TEST(Sampler, SameSeedAndStepGiveTheSameToken) {
  std::mt19937_64 random(fresh_seed());
  const auto logits = random_logits(random, 1000, 1);
  SamplingParams params;
  params.top_p = 0.95;
  Sampler one, other;
  std::vector<std::int32_t> first, again, different_seed;
  for (std::uint64_t step = 0; step < 50; ++step)
    first.push_back(sample(one, logits, params, 42, step).token);
  for (std::uint64_t step = 50; step-- > 0;) again.push_back(sample(other, logits, params, 42, step).token);
  std::reverse(again.begin(), again.end());
  EXPECT_EQ(first, again);
  for (std::uint64_t step = 0; step < 50; ++step)
    different_seed.push_back(sample(one, logits, params, 43, step).token);
  EXPECT_NE(first, different_seed);
  EXPECT_GT(std::set<std::int32_t>(first.begin(), first.end()).size(), 10u);
}

TEST(Sampler, PaddedTailIsNeverDrawnAndMayHoldAnything) {
  SamplingParams params;
  Sampler sampler;
  std::vector<float> logits = {0, 0, 0, 50, kInf, std::nanf("")};
  for (std::uint64_t step = 0; step < 50; ++step) {
    EXPECT_LT(sample(sampler, logits, params, 3, step, {}, 3).token, 3);
  }
}

TEST(Sampler, IgnoresCountedIdsOutsideTheVocabulary) {
  SamplingParams params;
  params.temperature = 0;
  params.repetition_penalty = 1.05;
  TokenCounts counts;
  counts.add_prompt(std::vector<std::int32_t>{151655, -200, 1});  // image placeholders
  counts.add_output(2'000'000'000);
  Sampler sampler;
  EXPECT_EQ(sample(sampler, {1, 1, 0.5f}, params, 1, 0, counts).token, 0);
}

TEST(Sampler, NamesNonFiniteLogits) {
  Sampler sampler;
  for (const double temperature : {0.0, 1.0}) {
    SamplingParams params;
    params.temperature = temperature;
    for (std::vector<float> logits :
         std::vector<std::vector<float>>{{0, std::nanf(""), 1}, {0, kInf, 1}, {-kInf, -kInf, -kInf}}) {
      const auto result = sampler.sample(logits, params, {}, 1, 0, 3);
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().code, ErrorCode::failed);
      EXPECT_TRUE(result.error().message.starts_with("non-finite logits")) << result.error().message;
    }
  }
}

TEST(Sampler, ImpossibleTokensAreNeverDrawn) {
  SamplingParams params;
  params.temperature = 100;
  params.logit_bias = {{0, 100.0f}};
  Sampler sampler;
  for (std::uint64_t step = 0; step < 200; ++step) {
    const auto token = sample(sampler, {-kInf, 1, -kInf, 2, -kInf}, params, 5, step).token;
    EXPECT_TRUE(token == 1 || token == 3) << token;
  }
}

TEST(Sampler, ExtremeSettingsStayFinite) {
  Sampler sampler;
  TokenCounts counts;
  counts.add_prompt(std::vector<std::int32_t>{0, 1, 2});
  for (const double penalty : {1e-300, 1e300}) {
    for (const double temperature : {1e-300, 1e-6, 1e300}) {
      SamplingParams params;
      params.repetition_penalty = penalty;
      params.temperature = temperature;
      params.logprobs = 3;
      const auto result = sample(sampler, {5, -5, 0, 1}, params, 2, 0, counts);
      EXPECT_GE(result.token, 0);
      EXPECT_TRUE(std::isfinite(result.logprob));
    }
  }
}

TEST(Sampler, LogprobsAreTheModelsOwn) {
  std::mt19937_64 random(fresh_seed());
  const auto logits = random_logits(random, 200, 4);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  SamplingParams params;
  params.temperature = 0.3;
  params.top_k = 3;
  params.logit_bias = {{17, 100.0f}};
  params.logprobs = 5;
  Sampler sampler;
  const Sampled result = sample(sampler, logits, params);
  EXPECT_EQ(result.token, 17);
  EXPECT_NEAR(result.logprob, logits[17] - std::log(sum), 1e-5);
  std::vector<std::int32_t> order(200);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  ASSERT_EQ(result.top.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(result.top[i].token, order[i]);
    EXPECT_NEAR(result.top[i].logprob, logits[static_cast<std::size_t>(order[i])] - std::log(sum), 1e-5);
  }
  params.logprobs = 0;
  EXPECT_TRUE(sample(sampler, logits, params).top.empty());
  params.logprobs = 20;
  EXPECT_EQ(sample(sampler, {1, 2, 3},
                   [&] {
                     auto p = params;
                     p.logit_bias.clear();
                     return p;
                   }())
                .top.size(),
            3u);
}

// The most likely tokens alone give the same token and log-probabilities as the whole row, or say that they
// do not suffice.
TEST(Sampler, LikelyTokensGiveWhatAllGive) {
  const std::uint64_t seed = fresh_seed();
  std::mt19937_64 random(seed);
  Sampler sampler;
  int answered = 0, refused = 0;
  for (int round = 0; round < 400; ++round) {
    const int vocab = std::uniform_int_distribution<int>(300, 4000)(random);
    auto logits = random_logits(random, vocab, 3);
    if (round % 5 == 0) {
      for (float& x : logits) x = std::round(x);  // ties
    }
    SamplingParams params;
    params.temperature = round % 7 == 0 ? 0 : std::uniform_real_distribution<>(0.2, 2)(random);
    params.top_k = std::uniform_int_distribution<int>(1, 100)(random);
    params.top_p = round % 2 == 0 ? 1 : std::uniform_real_distribution<>(0.3, 1)(random);
    params.min_p = round % 3 == 0 ? 0.02 : 0;
    params.repetition_penalty = round % 4 == 0 ? 1 : std::uniform_real_distribution<>(1, 4)(random);
    params.presence_penalty = round % 4 == 1 ? 1.5 : 0;
    if (round % 2 == 0) params.logprobs = 5;
    ASSERT_TRUE(Sampler::takes_likely(params));
    // Those that the penalties hit are likely ones.
    std::vector<std::int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, std::greater{},
                      [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; });
    TokenCounts counts;
    for (int i = 0; i < (round % 2 == 0 ? 150 : 900); ++i) {
      const auto id = order[std::uniform_int_distribution<std::size_t>(0, 299)(random)];
      i % 2 == 0 ? counts.add_output(id) : counts.add_prompt(std::vector{id});
    }
    const float bound = logits[static_cast<std::size_t>(order[255])];
    std::vector<kernels::LikelyToken> likely;
    for (const auto id : order) {
      const float logit = logits[static_cast<std::size_t>(id)];
      if (logit >= bound) likely.push_back({logit, id});
    }
    std::ranges::shuffle(likely, random);
    double normalizer = 0;
    for (const float x : logits) normalizer += std::exp(static_cast<double>(x));
    normalizer = std::log(normalizer);
    const auto got = sampler.sample_likely(likely, false, normalizer, params, counts, seed, 3);
    const Sampled want = sample(sampler, logits, params, seed, 3, counts);
    if (!got) {
      ++refused;
      continue;
    }
    ++answered;
    EXPECT_EQ(got->token, want.token) << "round " << round;
    ASSERT_EQ(got->top.size(), want.top.size());
    EXPECT_NEAR(got->logprob, want.logprob, 1e-4);
    for (std::size_t i = 0; i < want.top.size(); ++i) {
      EXPECT_EQ(got->top[i].token, want.top[i].token);
      EXPECT_NEAR(got->top[i].logprob, want.top[i].logprob, 1e-4);
    }
  }
  EXPECT_GT(answered, 200);
  EXPECT_GT(refused, 0);  // where penalties take most of them below the bound
}

TEST(Sampler, LikelyTokensDoNotSufficeForEverything) {
  SamplingParams params;
  EXPECT_FALSE(Sampler::takes_likely(params));  // no top_k: the draw is from the whole vocabulary
  params.top_k = 20;
  EXPECT_TRUE(Sampler::takes_likely(params));
  const auto without = [&](auto&& change) {
    SamplingParams p = params;
    change(p);
    EXPECT_FALSE(Sampler::takes_likely(p));
  };
  without([](SamplingParams& p) { p.logit_bias[3] = 5; });
  without([](SamplingParams& p) { p.repetition_penalty = 0.9; });
  without([](SamplingParams& p) { p.presence_penalty = -1; });
  without([](SamplingParams& p) { p.frequency_penalty = -1; });
  without([](SamplingParams& p) { p.top_k = kernels::kLikelyTokens + 1; });
}

}  // namespace
}  // namespace snug::engine
