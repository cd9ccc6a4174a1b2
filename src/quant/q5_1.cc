#include "quant/q5_1.h"

#include <algorithm>
#include <cstring>

#include "quant/codec.h"
#include "quant/fit.h"

namespace snug::quant {
namespace {

void decode_block(const BlockQ5_1& b, float* y) {
  const float d = f32_from_f16(b.d), m = f32_from_f16(b.m);
  std::uint32_t high;
  std::memcpy(&high, b.qh, 4);
  for (int j = 0; j < 16; ++j) {
    const auto high_lo = static_cast<int>((high >> j) & 1),
               high_hi = static_cast<int>((high >> (j + 16)) & 1);
    y[j] = d * static_cast<float>((b.qs[j] & 15) | high_lo << 4) + m;
    y[j + 16] = d * static_cast<float>((b.qs[j] >> 4) | high_hi << 4) + m;
  }
}

void encode_block(const float* x, BlockQ5_1& b) {
  const Range range = range_of(x, 32);
  b.m = finite_f16(range.lo);
  const float m = f32_from_f16(b.m);
  b.d = f16_scale(std::max(0.0f, (range.hi - m) / 31.0f));
  const float inv = inverse(f32_from_f16(b.d));
  std::uint32_t high = 0;
  for (int j = 0; j < 16; ++j) {
    const auto lo = static_cast<std::uint32_t>(round_clamp((x[j] - m) * inv, 0, 31));
    const auto hi = static_cast<std::uint32_t>(round_clamp((x[j + 16] - m) * inv, 0, 31));
    b.qs[j] = static_cast<std::uint8_t>((lo & 15) | (hi & 15) << 4);
    high |= (lo >> 4) << j | (hi >> 4) << (j + 16);
  }
  std::memcpy(b.qh, &high, 4);
}

}  // namespace

void decode_q5_1(const void* blocks, float* out, std::int64_t n) {
  decode_blocks<BlockQ5_1>(blocks, out, n, decode_block);
}

void encode_q5_1(const float* in, void* blocks, std::int64_t n) {
  encode_blocks<BlockQ5_1>(in, blocks, n, encode_block);
}

}  // namespace snug::quant
