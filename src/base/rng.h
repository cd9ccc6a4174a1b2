// Counter-based random numbers: the value at (seed, stream, index) needs no state, so a sequence draws the
// same numbers whatever else runs beside it. The mixer is SplitMix64 (Steele, Lea, Flood 2014).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace snug {

inline std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return mix64(mix64(mix64(seed) ^ stream) ^ index);
}

// Uniform in [0, 1), 53 bits.
inline double random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return static_cast<double>(random_bits(seed, stream, index) >> 11) * 0x1p-53;
}

// Standard normal (Box–Muller, one of the pair).
inline float random_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const double u = 1.0 - random_uniform(seed, stream, 2 * index);
  const double v = random_uniform(seed, stream, 2 * index + 1);
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

}  // namespace snug
