#include "quant/fit.h"

#include <algorithm>

namespace snug::quant {
namespace {

constexpr int kLanes = 8;  // independent partial results, so that loops vectorise; divides every sub-block

// x = scale * q - min with 0 <= q <= top; scale and min are not negative.
struct Affine {
  float scale, min;
};

float affine_error(const float* x, int n, Affine a, float top) {
  const float inv = inverse(a.scale);
  float sum[kLanes] = {};
  for (int i = 0; i < n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float q = round_clamp((x[i + j] + a.min) * inv, 0, top);
      const float e = a.scale * q - a.min - x[i + j];
      sum[j] += e * e;
    }
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

// Least squares for the levels that `a` gives, and the squared error that is left with those levels.
struct AffineRefit {
  Affine affine;
  double error;
};

AffineRefit refit(const float* x, int n, Affine a, float top) {
  const float inv = inverse(a.scale);
  double sx = 0, sxx = 0, sq = 0, sqq = 0, sqx = 0;
  for (int i = 0; i < n; ++i) {
    const double q = round_clamp((x[i] + a.min) * inv, 0, top), v = x[i];
    sx += v;
    sxx += v * v;
    sq += q;
    sqq += q * q;
    sqx += q * v;
  }
  const double det = n * sqq - sq * sq;
  double scale = det > 0 ? (n * sqx - sq * sx) / det : 0;
  double min = (scale * sq - sx) / n;
  if (min < 0) {
    min = 0;
    scale = sqq > 0 ? sqx / sqq : 0;
  }
  const double error =
      sxx + scale * scale * sqq + n * min * min - 2 * scale * sqx + 2 * min * (sx - scale * sq);
  return {{static_cast<float>(scale), static_cast<float>(min)}, error};
}

Affine fit_affine(const float* x, int n, float top, bool search) {
  const Range range = range_of(x, n);
  const float lo = std::min(0.0f, range.lo);
  const float width = range.hi - lo;
  Affine best{width / top, -lo};
  if (!search || !(width > 0)) return best;
  double best_error = affine_error(x, n, best, top);
  for (int t = 0; t < 20; ++t) {  // from somewhat stretched to clipping the ends
    const float step = width / (top - 0.5f + 0.1f * static_cast<float>(t));
    const AffineRefit tried = refit(x, n, {step, -lo}, top);
    if (tried.affine.scale > 0 && tried.error < best_error) {
      best_error = tried.error;
      best = tried.affine;
    }
  }
  return best;
}

// x = scale * q with -half <= q < half; scale of either sign.
float symmetric_error(const float* x, int n, float scale, float half) {
  const float inv = inverse(scale);
  float sum[kLanes] = {};
  for (int i = 0; i < n; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float e = scale * round_clamp(x[i + j] * inv, -half, half - 1) - x[i + j];
      sum[j] += e * e;
    }
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

float fit_symmetric(const float* x, int n, float half, bool search) {
  const float peak = extreme(x, n);
  float best = peak / -half;  // level -half is the only one without a mirror image
  if (!search || peak == 0) return best;
  double best_gain = 0;  // by how much q * scale lowers the sum of squares, at the least-squares scale
  for (int t = -9; t <= 9; ++t) {
    const float inv = inverse(peak / -(half + 0.1f * static_cast<float>(t)));
    double qx = 0, qq = 0;
    for (int i = 0; i < n; ++i) {
      const double q = round_clamp(x[i] * inv, -half, half - 1);
      qx += q * x[i];
      qq += q * q;
    }
    if (qq > 0 && qx * qx / qq > best_gain) {
      best_gain = qx * qx / qq;
      best = static_cast<float>(qx / qq);
    }
  }
  return best;
}

}  // namespace

Range range_of(const float* x, int n) {
  Range range{x[0], x[0]};
  for (int i = 1; i < n; ++i) {
    range.lo = x[i] < range.lo ? x[i] : range.lo;
    range.hi = x[i] > range.hi ? x[i] : range.hi;
  }
  return range;
}

float extreme(const float* x, int n) {
  float lo = 0, hi = 0;
  for (int i = 0; i < n; ++i) {
    lo = x[i] < lo ? x[i] : lo;
    hi = x[i] > hi ? x[i] : hi;
  }
  return -lo > hi ? lo : hi;
}

AffineCodes choose_affine_codes(const float* x, const AffineShape& shape) {
  const int n = kSuperBlock / shape.sub_blocks;
  const auto top = static_cast<float>(shape.q_top), code_top = static_cast<float>(shape.code_top);
  Affine fit[16];
  float max_scale = 0, max_min = 0;
  for (int s = 0; s < shape.sub_blocks; ++s) {
    fit[s] = fit_affine(x + n * s, n, top, shape.search);
    max_scale = std::max(max_scale, fit[s].scale);
    max_min = std::max(max_min, fit[s].min);
  }
  AffineCodes codes;
  codes.d = f16_scale(max_scale / code_top);
  codes.dmin = f16_scale(max_min / code_top);
  const float d = f32_from_f16(codes.d), dmin = f32_from_f16(codes.dmin);
  for (int s = 0; s < shape.sub_blocks; ++s) {
    const float* sub = x + n * s;
    const auto error = [&](int scale, int min) {
      return affine_error(sub, n, {d * static_cast<float>(scale), dmin * static_cast<float>(min)}, top);
    };
    // The sub-blocks that set d and dmin keep their codes, so that encoding decoded values finds the same d
    // and dmin.
    const float scale_guess = fit[s].scale * inverse(d), min_guess = fit[s].min * inverse(dmin);
    int code = nearest_code(scale_guess, 0, shape.code_top),
        min_code = nearest_code(min_guess, 0, shape.code_top);
    if (fit[s].scale != max_scale) {
      code = best_code(scale_guess, 0, shape.code_top, [&](int c) { return error(c, min_code); });
    }
    if (shape.search && fit[s].min != max_min) {
      min_code = best_code(min_guess, 0, shape.code_top, [&](int c) { return error(code, c); });
    }
    codes.scale[s] = static_cast<std::uint8_t>(code);
    codes.min[s] = static_cast<std::uint8_t>(min_code);
  }
  return codes;
}

void quantise_affine(const float* x, const AffineCodes& codes, const AffineShape& shape, std::uint8_t* q) {
  const int n = kSuperBlock / shape.sub_blocks;
  const float d = f32_from_f16(codes.d), dmin = f32_from_f16(codes.dmin);
  const auto top = static_cast<float>(shape.q_top);
  for (int s = 0; s < shape.sub_blocks; ++s) {
    const float inv = inverse(d * static_cast<float>(codes.scale[s]));
    const float min = dmin * static_cast<float>(codes.min[s]);
    for (int i = n * s; i < n * (s + 1); ++i) {
      q[i] = static_cast<std::uint8_t>(static_cast<int>(round_clamp((x[i] + min) * inv, 0, top)));
    }
  }
}

SymmetricCodes choose_symmetric_codes(const float* x, const SymmetricShape& shape) {
  constexpr int kSubBlocks = 16, kN = kSuperBlock / kSubBlocks;
  const auto half = static_cast<float>(shape.q_half);
  float fit[kSubBlocks];
  for (int s = 0; s < kSubBlocks; ++s) fit[s] = fit_symmetric(x + kN * s, kN, half, shape.search);
  SymmetricCodes codes;
  const float largest = extreme(fit, kSubBlocks);
  codes.d = f16_scale(largest / static_cast<float>(-shape.code_half));
  const float d = f32_from_f16(codes.d);
  for (int s = 0; s < kSubBlocks; ++s) {
    const float guess = fit[s] * inverse(d);
    const auto error = [&](int c) {
      return symmetric_error(x + kN * s, kN, d * static_cast<float>(c), half);
    };
    const int lo = -shape.code_half, hi = shape.code_half - 1;
    const int code = fit[s] == largest ? nearest_code(guess, lo, hi) : best_code(guess, lo, hi, error);
    codes.scale[s] = static_cast<std::int8_t>(code);
  }
  return codes;
}

void quantise_symmetric(const float* x, const SymmetricCodes& codes, const SymmetricShape& shape,
                        std::uint8_t* q) {
  const float d = f32_from_f16(codes.d);
  const auto half = static_cast<float>(shape.q_half);
  for (int s = 0; s < 16; ++s) {
    const float inv = inverse(d * static_cast<float>(codes.scale[s]));
    for (int i = 16 * s; i < 16 * (s + 1); ++i) {
      q[i] = static_cast<std::uint8_t>(static_cast<int>(round_clamp(x[i] * inv, -half, half - 1) + half));
    }
  }
}

}  // namespace snug::quant
