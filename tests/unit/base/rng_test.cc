#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace snug {
namespace {

// Values of the reference SplitMix64 for the states 0 and 1234567.
TEST(Rng, MixerIsSplitMix64) {
  EXPECT_EQ(mix64(0), 0xE220A8397B1DCDAFull);
  EXPECT_EQ(mix64(1234567), 6457827717110365317ull);
}

TEST(Rng, DependsOnEachArgumentAndNothingElse) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::uint64_t stream = 0; stream < 10; ++stream) {
      for (std::uint64_t index = 0; index < 10; ++index) {
        EXPECT_EQ(random_bits(seed, stream, index), random_bits(seed, stream, index));
        seen.insert(random_bits(seed, stream, index));
      }
    }
  }
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(Rng, UniformAndNormalHaveTheirMoments) {
  constexpr int kCount = 100'000;
  double uniform = 0, normal = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double u = random_uniform(7, 1, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    uniform += u;
    const double x = static_cast<double>(random_normal(7, 2, static_cast<std::uint64_t>(i)));
    ASSERT_TRUE(std::isfinite(x));
    normal += x;
    squares += x * x;
  }
  // Five standard errors.
  EXPECT_NEAR(uniform / kCount, 0.5, 5 * 0.289 / std::sqrt(kCount));
  EXPECT_NEAR(normal / kCount, 0.0, 5 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1.0, 5 * std::sqrt(2.0 / kCount));
}

}  // namespace
}  // namespace snug
