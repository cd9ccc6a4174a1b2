#include "quant/iq4.h"

#include <array>
#include <cstddef>

#include "quant/codec.h"
#include "quant/fit.h"

namespace snug::quant {

namespace {

// The boundaries between levels are multiples of one half, so the half-integer cell [k / 2, (k + 1) / 2) that
// x falls in decides. Cell 0 begins at -127.
constexpr int kCells = 2 * (127 + 113) + 1;

constexpr std::array<std::uint8_t, kCells> nearest_of_cells() {
  std::array<std::uint8_t, kCells> table{};
  int index = 0;
  for (int cell = 0; cell < kCells; ++cell) {
    const int twice_x = cell - 2 * 127;
    while (index < 15 && kIq4Levels[index] + kIq4Levels[index + 1] <= twice_x) ++index;
    table[static_cast<std::size_t>(cell)] = static_cast<std::uint8_t>(index);
  }
  return table;
}

constexpr auto kNearest = nearest_of_cells();

}  // namespace

int iq4_nearest(float x) {
  x = x > -127.0f ? x : -127.0f;  // NaN too
  x = x < 113.0f ? x : 113.0f;
  return kNearest[static_cast<std::size_t>((x + 127.0f) * 2.0f)];
}

float iq4_error(const float* x, float scale) {
  const float inv = inverse(scale);
  float sum = 0;
  for (int i = 0; i < 32; ++i) {
    const float e = scale * static_cast<float>(kIq4Levels[iq4_nearest(x[i] * inv)]) - x[i];
    sum += e * e;
  }
  return sum;
}

float iq4_fit(const float* x) {
  // The element of largest magnitude may take any of the outer levels, or be clipped a little.
  constexpr float kTries[] = {-127, -104, 113,  89,  -134, -131, -124, -121,
                              -118, -114, -110, 105, 109,  117,  121};
  const float peak = extreme(x, 32);
  if (peak == 0) return 0;
  float best = peak / kTries[0];
  double best_gain = 0;  // by how much levels * scale lowers the sum of squares, at the least-squares scale
  for (const float level : kTries) {
    const float inv = inverse(peak / level);
    double xq = 0, qq = 0;
    for (int i = 0; i < 32; ++i) {
      const double q = kIq4Levels[iq4_nearest(x[i] * inv)];
      xq += x[i] * q;
      qq += q * q;  // never 0: no level is
    }
    if (xq * xq / qq > best_gain) {
      best_gain = xq * xq / qq;
      best = static_cast<float>(xq / qq);
    }
  }
  return best;
}

}  // namespace snug::quant
