#include "quant/q5_0.h"

#include <cstring>

#include "quant/codec.h"
#include "quant/fit.h"

namespace snug::quant {
namespace {

void decode_block(const BlockQ5_0& b, float* y) {
  const float d = f32_from_f16(b.d);
  std::uint32_t high;
  std::memcpy(&high, b.qh, 4);
  for (int j = 0; j < 16; ++j) {
    const auto high_lo = static_cast<int>((high >> j) & 1),
               high_hi = static_cast<int>((high >> (j + 16)) & 1);
    y[j] = d * static_cast<float>(((b.qs[j] & 15) | high_lo << 4) - 16);
    y[j + 16] = d * static_cast<float>(((b.qs[j] >> 4) | high_hi << 4) - 16);
  }
}

void encode_block(const float* x, BlockQ5_0& b) {
  // The element of largest magnitude takes level -16, the only one without a mirror image.
  b.d = f16_scale(extreme(x, 32) / -16.0f);
  const float inv = inverse(f32_from_f16(b.d));
  std::uint32_t high = 0;
  for (int j = 0; j < 16; ++j) {
    const auto lo = static_cast<std::uint32_t>(static_cast<int>(round_clamp(x[j] * inv, -16, 15)) + 16);
    const auto hi = static_cast<std::uint32_t>(static_cast<int>(round_clamp(x[j + 16] * inv, -16, 15)) + 16);
    b.qs[j] = static_cast<std::uint8_t>((lo & 15) | (hi & 15) << 4);
    high |= (lo >> 4) << j | (hi >> 4) << (j + 16);
  }
  std::memcpy(b.qh, &high, 4);
}

}  // namespace

void decode_q5_0(const void* blocks, float* out, std::int64_t n) {
  decode_blocks<BlockQ5_0>(blocks, out, n, decode_block);
}

void encode_q5_0(const float* in, void* blocks, std::int64_t n) {
  encode_blocks<BlockQ5_0>(in, blocks, n, encode_block);
}

}  // namespace snug::quant
