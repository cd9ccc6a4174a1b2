#include "quant/q4_0.h"

#include "quant/codec.h"
#include "quant/fit.h"

namespace snug::quant {
namespace {

void decode_block(const BlockQ4_0& b, float* y) {
  const float d = f32_from_f16(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>((b.qs[j] & 15) - 8);
    y[j + 16] = d * static_cast<float>((b.qs[j] >> 4) - 8);
  }
}

void encode_block(const float* x, BlockQ4_0& b) {
  // The element of largest magnitude takes level -8, the only one without a mirror image.
  b.d = f16_scale(extreme(x, 32) / -8.0f);
  const float inv = inverse(f32_from_f16(b.d));
  for (int j = 0; j < 16; ++j) {
    const int lo = static_cast<int>(round_clamp(x[j] * inv, -8, 7)) + 8;
    const int hi = static_cast<int>(round_clamp(x[j + 16] * inv, -8, 7)) + 8;
    b.qs[j] = static_cast<std::uint8_t>(lo | hi << 4);
  }
}

}  // namespace

void decode_q4_0(const void* blocks, float* out, std::int64_t n) {
  decode_blocks<BlockQ4_0>(blocks, out, n, decode_block);
}

void encode_q4_0(const float* in, void* blocks, std::int64_t n) {
  encode_blocks<BlockQ4_0>(in, blocks, n, encode_block);
}

}  // namespace snug::quant
