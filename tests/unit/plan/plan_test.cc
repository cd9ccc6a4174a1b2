#include "plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/bytes.h"
#include "model/format_mix.h"

namespace snug::plan {
namespace {

constexpr std::int64_t kProcess = 10 << 20;

// A model to plan for; no weight exists.
struct Subject {
  model::Config config;
  std::vector<model::PlacedWeight> weights;
  bool mapped = true;

  Result<Plan> plan(std::int64_t budget, const Wishes& wishes) const {
    return make_plan(config, weights, mapped, {.host = budget, .host_available = 1ll << 50}, wishes,
                     {.host = kProcess});
  }
};

Subject subject(const char* type, bool mapped = true, const char* name = "qwen2.5-0.5b") {
  Subject s{*model::config_by_name(name), {}, mapped};
  s.weights = model::place_weights(*model::weights_of_type(s.config, type));
  return s;
}

TEST(Plan, FitsWithTheWholeContext) {
  const Subject s = subject("q4_0");
  const auto plan = s.plan(8ll << 30, {});
  ASSERT_TRUE(plan.ok()) << plan.error().to_string();
  EXPECT_EQ(plan->max_model_len, 32768);
  EXPECT_EQ(plan->kv_blocks, 1024);
  EXPECT_EQ(plan->kv_block_size, kKvBlockSize);
  EXPECT_EQ(plan->limits.tokens, 512);
  EXPECT_EQ(plan->budget_host, 8ll << 30);
  EXPECT_LE(plan->predicted_host, plan->budget_host);
  EXPECT_GT(model::total_bytes(plan->rows, Device::host, model::Lifetime::run), 346'000'000);
}

TEST(Plan, WithoutABudgetTheMachineSetsIt) {
  const Subject s = subject("q4_0");
  const auto plan =
      make_plan(s.config, s.weights, true, {.host_available = 3ll << 30}, {}, {.host = kProcess});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->budget_host, 3ll << 30);
}

TEST(Plan, KvBlocksHoldEverySequence) {
  const Subject s = subject("q4_0");
  for (const std::int64_t length : {1, 31, 32, 33, 1000}) {
    const auto plan = s.plan(8ll << 30, {.max_model_len = length, .max_num_seqs = 3});
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->kv_blocks, 3 * ((length + 31) / 32));
    EXPECT_EQ(plan->limits.sequences, 3);
    EXPECT_GE(plan->limits.logit_rows, 3);
    EXPECT_GE(plan->limits.tokens, 3);
    EXPECT_LE(plan->limits.tokens, std::max<std::int64_t>(3 * length, 3));
  }
}

TEST(Plan, TakesASmallerChunkBeforeAShorterContext) {
  const Subject s = subject("q4_0");
  const auto wide = s.plan(8ll << 30, {});
  ASSERT_TRUE(wide.ok());
  const auto narrower = s.plan(wide->predicted_host - 1, {});
  ASSERT_TRUE(narrower.ok()) << narrower.error().to_string();
  EXPECT_EQ(narrower->limits.tokens, 256);
  EXPECT_EQ(narrower->max_model_len, 32768);

  const auto shorter = s.plan(wide->predicted_host - (100 << 20), {});
  ASSERT_TRUE(shorter.ok()) << shorter.error().to_string();
  EXPECT_EQ(shorter->limits.tokens, 32);
  EXPECT_LT(shorter->max_model_len, 32768);
  EXPECT_GE(shorter->max_model_len, 1024);
  EXPECT_LE(shorter->predicted_host, shorter->budget_host);
  // And not much shorter than needed: three blocks more do not fit.
  EXPECT_FALSE(
      s.plan(shorter->budget_host, {.max_model_len = shorter->max_model_len + 3 * kKvBlockSize}).ok());
}

TEST(Plan, AStatedChunkIsKept) {
  const Subject s = subject("q4_0");
  const auto wide = s.plan(8ll << 30, {.max_num_batched_tokens = 512});
  ASSERT_TRUE(wide.ok());
  const auto tight = s.plan(wide->predicted_host - 1, {.max_num_batched_tokens = 512});
  ASSERT_TRUE(tight.ok()) << tight.error().to_string();
  EXPECT_EQ(tight->limits.tokens, 512);
  EXPECT_LT(tight->max_model_len, 32768);
}

TEST(Plan, AStatedLengthIsKeptOrRefused) {
  const Subject s = subject("q4_0");
  const auto wide = s.plan(8ll << 30, {.max_model_len = 20000});
  ASSERT_TRUE(wide.ok());
  int kept = 0, refused = 0;
  for (std::int64_t budget = wide->predicted_host; budget > 300 << 20; budget -= 5 << 20) {
    const auto plan = s.plan(budget, {.max_model_len = 20000});
    plan.ok() ? ++kept : ++refused;
    if (plan.ok()) {
      EXPECT_EQ(plan->max_model_len, 20000);
      EXPECT_LE(plan->predicted_host, budget);
    } else {
      EXPECT_EQ(plan.error().code, ErrorCode::does_not_fit);
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(refused, 0);
}

// The value behind a flag in a remedy, or empty.
std::string value_after(const std::string& text, const std::string& flag) {
  const auto at = text.find(flag + " ");
  if (at == std::string::npos) return {};
  const auto begin = at + flag.size() + 1;
  return text.substr(begin, text.find_first_of(" ,", begin) - begin);
}

TEST(Plan, ARefusalShowsTheSumAndARemedyThatWorks) {
  int lengths = 0, memories = 0;
  for (const bool mapped : {true, false}) {
    for (const char* type : {"q4_0", "q8_0", "bf16"}) {
      const Subject s = subject(type, mapped);
      for (const std::int64_t seqs : {1, 3}) {
        for (std::int64_t budget = 100 << 20; budget < 1200 << 20; budget += (7 << 20) + 12345) {
          Wishes wishes{.max_model_len = 32768, .max_num_seqs = seqs};
          const auto plan = s.plan(budget, wishes);
          if (plan.ok()) continue;
          const std::string context = std::string(type) + (mapped ? " mapped " : " random ") +
                                      std::to_string(budget) + ": " + plan.error().to_string();
          ASSERT_EQ(plan.error().code, ErrorCode::does_not_fit);
          for (const std::string& word :
               {std::string("process "), std::string("weights "), format_bytes(budget)}) {
            EXPECT_NE(plan.error().message.find(word), std::string::npos) << context;
          }
          const std::string length = value_after(plan.error().remedy, "--max-model-len");
          const std::string memory = value_after(plan.error().remedy, "--host-memory");
          ASSERT_NE(length.empty(), memory.empty()) << context;
          if (!length.empty()) {
            ++lengths;
            wishes.max_model_len = std::stoll(length);
            EXPECT_TRUE(s.plan(budget, wishes).ok()) << context;
          } else {
            ++memories;
            const auto bytes = parse_bytes(memory);
            ASSERT_TRUE(bytes.ok()) << context;
            EXPECT_TRUE(s.plan(*bytes, wishes).ok()) << context;
          }
        }
      }
    }
  }
  EXPECT_GT(lengths, 20);
  EXPECT_GT(memories, 20);
}

// Whatever the budget: a plan keeps within it, and more memory never gives a shorter context.
TEST(Plan, IsMonotonous) {
  const Subject s = subject("q4_0");
  std::int64_t longest = 0;
  for (std::int64_t budget = 300 << 20; budget < 1200 << 20; budget += 3'333'333) {
    const auto plan = s.plan(budget, {});
    if (!plan.ok()) {
      EXPECT_EQ(longest, 0) << budget;
      continue;
    }
    EXPECT_LE(plan->predicted_host, budget);
    EXPECT_GE(plan->max_model_len, longest) << budget;
    longest = plan->max_model_len;
  }
  EXPECT_EQ(longest, 32768);
}

}  // namespace
}  // namespace snug::plan
