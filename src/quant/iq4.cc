#include "quant/iq4.h"

#include "quant/codec.h"
#include "quant/fit.h"

namespace snug::quant {

int iq4_nearest(float x) {
  int index = 0;  // levels whose lower boundary lies below x
  for (int k = 1; k < 16; ++k) {
    const float boundary = 0.5f * static_cast<float>(kIq4Levels[k - 1] + kIq4Levels[k]);
    index += x > boundary ? 1 : 0;
  }
  return index;
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
  float best_error = iq4_error(x, best);
  for (const float level : kTries) {
    const float inv = inverse(peak / level);
    double xq = 0, qq = 0;
    for (int i = 0; i < 32; ++i) {
      const double q = kIq4Levels[iq4_nearest(x[i] * inv)];
      xq += x[i] * q;
      qq += q * q;
    }
    const auto scale = static_cast<float>(xq / qq);  // least squares for these levels; none of them is 0
    const float error = iq4_error(x, scale);
    if (error < best_error) {
      best_error = error;
      best = scale;
    }
  }
  return best;
}

}  // namespace snug::quant
