// Choosing scales when encoding: ranges, least squares, and the quantised sub-scales of super-blocks.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "quant/codec.h"

namespace snug::quant {

struct Range {
  float lo, hi;
};
Range range_of(const float* x, int n);

// The element of largest magnitude, with its sign; 0 for an empty or all-zero x.
float extreme(const float* x, int n);

inline int nearest_code(float guess, int lo, int hi) {
  return static_cast<int>(round_clamp(guess, static_cast<float>(lo), static_cast<float>(hi)));
}

// The integer in [lo, hi] with the least error(code): the rounded `guess` or a neighbour. The rounding of a
// sub-scale stretches or clips a whole sub-block, so a neighbour is often better than the nearest code.
template <class Error>
int best_code(float guess, int lo, int hi, Error error) {
  const int middle = nearest_code(guess, lo, hi);
  int best = middle;
  float best_error = error(middle);
  for (const int step : {-1, 1}) {
    const int code = middle + step;
    if (code < lo || code > hi) continue;
    const float e = error(code);
    if (e < best_error) {
      best_error = e;
      best = code;
    }
  }
  return best;
}

// A super-block of 256 elements in sub-blocks: x = d * scale[s] * q - dmin * min[s], 0 <= q <= q_top.
struct AffineShape {
  int sub_blocks = 8;  // 8 or 16
  int q_top = 15;
  int code_top = 63;    // largest scale[s] and min[s]
  bool search = false;  // try more scales than the one that spans the range: slower, better for few levels
};
struct AffineCodes {
  std::uint16_t d = 0, dmin = 0;  // binary16
  std::uint8_t scale[16] = {}, min[16] = {};
};
AffineCodes choose_affine_codes(const float* x, const AffineShape& shape);
// q (256) for these codes.
void quantise_affine(const float* x, const AffineCodes& codes, const AffineShape& shape, std::uint8_t* q);

// A super-block of 256 elements in 16 sub-blocks: x = d * scale[s] * (q - q_half), 0 <= q < 2 q_half.
struct SymmetricShape {
  int q_half = 32;
  int code_half = 128;  // -code_half <= scale[s] < code_half
  bool search = false;
};
struct SymmetricCodes {
  std::uint16_t d = 0;  // binary16
  std::int8_t scale[16] = {};
};
SymmetricCodes choose_symmetric_codes(const float* x, const SymmetricShape& shape);
void quantise_symmetric(const float* x, const SymmetricCodes& codes, const SymmetricShape& shape,
                        std::uint8_t* q);

}  // namespace snug::quant
