// Rope against the papers' formulas in double precision.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

#include "kernels/elementwise.h"

#include "support/tiny_model.h"

namespace snug::model {
namespace {

using formats::RopeConfig;

Config with_rope(RopeConfig rope, std::int64_t head_dim = 128, std::int64_t max_positions = 32768) {
  Config config = test::tiny_config();
  config.head_dim = head_dim;
  config.max_positions = max_positions;
  config.rope = rope;
  return config;
}

double plain_frequency(double theta, std::size_t i, std::size_t half) {
  return std::exp(-std::log(theta) * static_cast<double>(i) / static_cast<double>(half));
}

TEST(Rope, PlainAndLinearFrequencies) {
  const RopeConfig plain{.theta = 1e6};
  const RopeConfig linear{.type = RopeConfig::Type::linear, .theta = 1e6, .factor = 4};
  const auto a = make_rope(with_rope(plain)), b = make_rope(with_rope(linear));
  ASSERT_EQ(a.inverse_frequencies.size(), 64u);
  EXPECT_EQ(a.attention_factor, 1.0f);
  EXPECT_EQ(b.attention_factor, 1.0f);
  for (std::size_t i = 0; i < 64; ++i) {
    const double expected = plain_frequency(1e6, i, 64);
    EXPECT_NEAR(a.inverse_frequencies[i] / expected, 1, 1e-6) << i;
    EXPECT_NEAR(b.inverse_frequencies[i] * 4 / expected, 1, 1e-6) << i;
  }
}

// Section 3.2: dimensions that turn more than beta_fast times over the original context keep their frequency,
// those that turn less than beta_slow times are stretched by the factor, those between blend; and
// section 3.3's temperature. The blend is linear in the dimension, between whole dimensions, as Qwen's
// checkpoints are used.
TEST(Rope, YarnFollowsThePaper) {
  for (const double theta : {1e4, 1e6}) {
    for (const double factor : {2.0, 4.0, 16.0}) {
      const RopeConfig yarn{
          .type = RopeConfig::Type::yarn, .theta = theta, .factor = factor, .original_max_positions = 32768};
      const auto table = make_rope(with_rope(yarn));
      EXPECT_NEAR(table.attention_factor, 0.1 * std::log(factor) + 1, 1e-6);
      const auto turns = [&](std::size_t i) {
        return 32768 * plain_frequency(theta, i, 64) / (2 * std::numbers::pi);
      };
      // The last dimension with more than 32 turns, and the first with less than 1.
      std::size_t first_slow = 0, last_fast = 0;
      for (std::size_t i = 0; i < 64; ++i) {
        if (turns(i) > 32) last_fast = i;
        if (turns(63 - i) < 1) first_slow = 63 - i;
      }
      ASSERT_GT(first_slow, last_fast);
      for (std::size_t i = 0; i < 64; ++i) {
        const double plain = plain_frequency(theta, i, 64), stretched = plain / factor;
        const double blend = std::clamp((static_cast<double>(i) - static_cast<double>(last_fast)) /
                                            static_cast<double>(first_slow - last_fast),
                                        0.0, 1.0);
        EXPECT_NEAR(table.inverse_frequencies[i] / (stretched * blend + plain * (1 - blend)), 1, 1e-6)
            << "theta " << theta << " factor " << factor << " dimension " << i;
      }
    }
  }
}

TEST(Rope, YarnTakesAStatedAttentionFactor) {
  const RopeConfig yarn{
      .type = RopeConfig::Type::yarn, .factor = 4, .original_max_positions = 32768, .attention_factor = 1.25};
  EXPECT_EQ(make_rope(with_rope(yarn)).attention_factor, 1.25f);
}

// Case B14: the same YaRN, however the file states the longest position.
TEST(Rope, YarnDoesNotDependOnTheStatedMaximum) {
  const auto config_of = [](std::int64_t max_positions) {
    Json json = test::tiny_config_json(test::tiny_config());
    json["max_position_embeddings"] = max_positions;
    json["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
    formats::Checkpoint checkpoint;
    auto parsed = formats::parse_hf_config(json, "config.json");
    EXPECT_TRUE(parsed.ok()) << parsed.error().to_string();
    checkpoint.config = *parsed;
    auto config = config_from(checkpoint);
    EXPECT_TRUE(config.ok());
    return *config;
  };
  const Config a = config_of(32768), b = config_of(131072);
  EXPECT_EQ(make_rope(a).inverse_frequencies, make_rope(b).inverse_frequencies);
  EXPECT_EQ(make_rope(a).attention_factor, make_rope(b).attention_factor);
  EXPECT_EQ(a.max_positions, 131072);
  EXPECT_EQ(b.max_positions, 131072);
}

TEST(Rope, CosinesAndSines) {
  const auto seed = std::random_device{}();
  printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto table = make_rope(with_rope(
      {.type = RopeConfig::Type::yarn, .theta = 1e6, .factor = 4, .original_max_positions = 32768}, 16));
  std::vector<std::int32_t> positions = {0, 1, 131071};
  for (int i = 0; i < 20; ++i) positions.push_back(static_cast<std::int32_t>(random() % 131072));
  std::vector<float> cos_sin(positions.size() * 16);
  kernels::cpu::rope_angles({.inverse_frequencies = table.inverse_frequencies,
                             .factor = table.attention_factor,
                             .positions = positions.data(),
                             .tokens = std::ssize(positions),
                             .cos_sin = cos_sin.data()});
  for (std::size_t t = 0; t < positions.size(); ++t) {
    for (std::size_t i = 0; i < 8; ++i) {
      const double angle =
          static_cast<double>(positions[t]) * static_cast<double>(table.inverse_frequencies[i]);
      const double factor = static_cast<double>(table.attention_factor);
      // The angle is a float32: half a unit in its last place.
      const double tolerance = factor * (angle * 0x1p-24 + 2e-7);
      EXPECT_NEAR(cos_sin[t * 16 + i], factor * std::cos(angle), tolerance) << positions[t] << " " << i;
      EXPECT_NEAR(cos_sin[t * 16 + 8 + i], factor * std::sin(angle), tolerance) << positions[t] << " " << i;
    }
  }
}

}  // namespace
}  // namespace snug::model
