#include "quant/q4_1.h"

#include <algorithm>

#include "quant/codec.h"
#include "quant/fit.h"

namespace snug::quant {
namespace {

void decode_block(const BlockQ4_1& b, float* y) {
  const float d = f32_from_f16(b.d), m = f32_from_f16(b.m);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(b.qs[j] & 15) + m;
    y[j + 16] = d * static_cast<float>(b.qs[j] >> 4) + m;
  }
}

void encode_block(const float* x, BlockQ4_1& b) {
  const Range range = range_of(x, 32);
  b.m = finite_f16(range.lo);
  const float m = f32_from_f16(b.m);
  b.d = f16_scale(std::max(0.0f, (range.hi - m) / 15.0f));
  const float inv = inverse(f32_from_f16(b.d));
  for (int j = 0; j < 16; ++j) {
    const int lo = static_cast<int>(round_clamp((x[j] - m) * inv, 0, 15));
    const int hi = static_cast<int>(round_clamp((x[j + 16] - m) * inv, 0, 15));
    b.qs[j] = static_cast<std::uint8_t>(lo | hi << 4);
  }
}

}  // namespace

void decode_q4_1(const void* blocks, float* out, std::int64_t n) {
  decode_blocks<BlockQ4_1>(blocks, out, n, decode_block);
}

void encode_q4_1(const float* in, void* blocks, std::int64_t n) {
  encode_blocks<BlockQ4_1>(in, blocks, n, encode_block);
}

}  // namespace snug::quant
