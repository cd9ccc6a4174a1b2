#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace snug::model {
namespace {

// The dimension whose wavelength makes `rotations` turns over the original context.
double correction_dim(double rotations, double dim, double base, double positions) {
  return dim * std::log(positions / (rotations * 2 * std::numbers::pi)) / (2 * std::log(base));
}

}  // namespace

RopeTable make_rope(const Config& config) {
  using Type = formats::RopeConfig::Type;
  const auto& rope = config.rope;
  const auto dim = static_cast<double>(config.head_dim);
  const int half = static_cast<int>(config.head_dim / 2);
  RopeTable table;
  table.inverse_frequencies.resize(static_cast<std::size_t>(half));
  double low = 0, high = 0;
  if (rope.type == Type::yarn) {
    const auto original = static_cast<double>(rope.original_max_positions > 0 ? rope.original_max_positions
                                                                              : config.max_positions);
    low = std::max(std::floor(correction_dim(rope.beta_fast, dim, rope.theta, original)), 0.0);
    high = std::min(std::ceil(correction_dim(rope.beta_slow, dim, rope.theta, original)), dim - 1);
    if (high <= low) high = low + 0.001;
    const double natural = rope.factor > 1 ? 0.1 * std::log(rope.factor) + 1.0 : 1.0;
    table.attention_factor = static_cast<float>(rope.attention_factor.value_or(natural));
  }
  for (int i = 0; i < half; ++i) {
    const double plain = 1.0 / std::pow(rope.theta, 2.0 * i / dim);
    double frequency = plain;
    if (rope.type == Type::linear) frequency = plain / rope.factor;
    if (rope.type == Type::yarn) {
      // High frequencies stay, low ones are stretched by the factor, those between are blended.
      const double stretched = std::clamp((i - low) / (high - low), 0.0, 1.0);
      frequency = plain / rope.factor * stretched + plain * (1.0 - stretched);
    }
    table.inverse_frequencies[static_cast<std::size_t>(i)] = static_cast<float>(frequency);
  }
  return table;
}

}  // namespace snug::model
