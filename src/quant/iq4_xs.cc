#include "quant/iq4_xs.h"

#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/iq4.h"

namespace snug::quant {
namespace {

void decode_block(const BlockIQ4XS& b, float* y) {
  const float d = f32_from_f16(b.d);
  for (int s = 0; s < 8; ++s) {
    const float scale = d * static_cast<float>(iq4_xs_scale(b, s));
    for (int j = 0; j < 16; ++j) {
      const std::uint8_t q = b.qs[16 * s + j];
      y[32 * s + j] = scale * static_cast<float>(kIq4Levels[q & 15]);
      y[32 * s + j + 16] = scale * static_cast<float>(kIq4Levels[q >> 4]);
    }
  }
}

void encode_block(const float* x, BlockIQ4XS& b) {
  float fit[8];
  for (int s = 0; s < 8; ++s) fit[s] = iq4_fit(x + 32 * s);
  const float largest = extreme(fit, 8);
  b.d = f16_scale(largest / -32.0f);
  const float d = f32_from_f16(b.d);
  for (int s = 0; s < 8; ++s) {
    const float* sub = x + 32 * s;
    const float guess = fit[s] * inverse(d);
    const auto error = [&](int c) { return iq4_error(sub, d * static_cast<float>(c)); };
    // The sub-block that sets d keeps its code, so that encoding decoded values finds the same d.
    const int code = fit[s] == largest ? nearest_code(guess, -32, 31) : best_code(guess, -32, 31, error);
    b.scales_l[s / 2] |= static_cast<std::uint8_t>(((code + 32) & 15) << (s % 2 * 4));
    b.scales_h = static_cast<std::uint16_t>(b.scales_h | ((code + 32) >> 4) << (2 * s));
    const float inv = inverse(d * static_cast<float>(code));
    for (int j = 0; j < 16; ++j) {
      b.qs[16 * s + j] =
          static_cast<std::uint8_t>(iq4_nearest(sub[j] * inv) | iq4_nearest(sub[j + 16] * inv) << 4);
    }
  }
}

}  // namespace

void decode_iq4_xs(const void* blocks, float* out, std::int64_t n) {
  decode_blocks<BlockIQ4XS>(blocks, out, n, decode_block);
}

void encode_iq4_xs(const float* in, void* blocks, std::int64_t n) {
  encode_blocks<BlockIQ4XS>(in, blocks, n, encode_block);
}

}  // namespace snug::quant
