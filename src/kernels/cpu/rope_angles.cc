#include <cmath>
#include <cstddef>

#include "kernels/elementwise.h"

namespace snug::kernels::cpu {

void rope_angles(const RopeAnglesParams& p) {
  const std::size_t half = p.inverse_frequencies.size();
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    float* cosines = p.cos_sin + static_cast<std::size_t>(t) * 2 * half;
    float* sines = cosines + half;
    for (std::size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(p.positions[t]) * p.inverse_frequencies[i];
      cosines[i] = static_cast<float>(std::cos(static_cast<double>(angle))) * p.factor;
      sines[i] = static_cast<float>(std::sin(static_cast<double>(angle))) * p.factor;
    }
  }
}

}  // namespace snug::kernels::cpu
