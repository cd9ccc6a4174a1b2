// Each of the GGUF types loads and runs; 8-bit activations stay near exact arithmetic.
#include <cmath>

#include "golden/golden.h"

namespace snug::golden {
namespace {

class GgufType : public testing::TestWithParam<std::string> {};

TEST_P(GgufType, RunsAndFastArithmeticIsNearExact) {
  SNUG_NEEDS_GOLDEN();
  const auto path = dir() / "gguf" / ("tiny-" + GetParam() + ".gguf");
  const auto exact = load(path, {});
  const auto fast = load(path, {.precision = kernels::Precision::fast, .kv_dtype = DType::f16});
  ASSERT_NE(exact, nullptr);
  ASSERT_NE(fast, nullptr);
  const auto ids = exact->skeleton().encode("the thing in the mind of an ant");
  ASSERT_TRUE(ids.ok()) << ids.error().to_string();
  ASSERT_GE(ids->size(), 8u);
  const auto a = all_logits(*exact, *ids), b = all_logits(*fast, *ids);
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(std::isfinite(a[i]) && std::isfinite(b[i]));
    error += (a[i] - b[i]) * (a[i] - b[i]);
    norm += a[i] * a[i];
  }
  ASSERT_GT(norm, 0);
  // Rounding activations to 8 bits is about 0.4 % of a block's largest value in each product.
  EXPECT_LE(std::sqrt(error / norm), 0.03) << GetParam();

  const auto answer = fast->generate({*ids, greedy(16)});
  ASSERT_TRUE(answer.ok()) << answer.error().to_string();
  EXPECT_EQ(answer->completions[0].token_ids.size(), 16u);
}

INSTANTIATE_TEST_SUITE_P(Golden, GgufType,
                         testing::Values("f16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k_m",
                                         "q4_k_m", "q5_k_m", "q6_k", "iq4_nl", "iq4_xs"),
                         [](const auto& parameter) { return parameter.param; });

// All types came from the same weights, so more bits must come nearer to the 16-bit model.
TEST(GgufTypes, LogitsApproachTheSixteenBitModel) {
  SNUG_NEEDS_GOLDEN();
  const auto logits_of = [](const std::string& type) {
    const auto llm = load(dir() / "gguf" / ("tiny-" + type + ".gguf"), {});
    const auto ids = llm->skeleton().encode("an ant and the other thing");
    return all_logits(*llm, *ids);
  };
  const auto reference = logits_of("f16");
  const auto distance = [&](const std::string& type) {
    const auto got = logits_of(type);
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      error += (got[i] - reference[i]) * (got[i] - reference[i]);
      norm += reference[i] * reference[i];
    }
    return std::sqrt(error / norm);
  };
  EXPECT_LT(distance("q8_0"), 0.02);
  EXPECT_LT(distance("q8_0"), distance("q6_k"));
  EXPECT_LT(distance("q6_k"), distance("q4_k_m"));
  EXPECT_LT(distance("q4_k_m"), distance("q2_k"));
}

}  // namespace
}  // namespace snug::golden
