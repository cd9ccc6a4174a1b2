#include "quant/q8_0.h"

#include <cmath>

#include "quant/codec.h"
#include "quant/fit.h"

namespace snug::quant {
namespace {

void decode_block(const BlockQ8_0& b, float* y) {
  const float d = f32_from_f16(b.d);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(b.qs[i]);
}

void encode_block(const float* x, BlockQ8_0& b) {
  b.d = f16_scale(std::fabs(extreme(x, 32)) / 127.0f);
  const float inv = inverse(f32_from_f16(b.d));
  for (int i = 0; i < 32; ++i) {
    b.qs[i] = static_cast<std::int8_t>(static_cast<int>(round_clamp(x[i] * inv, -127, 127)));
  }
}

}  // namespace

void decode_q8_0(const void* blocks, float* out, std::int64_t n) {
  decode_blocks<BlockQ8_0>(blocks, out, n, decode_block);
}

void encode_q8_0(const float* in, void* blocks, std::int64_t n) {
  encode_blocks<BlockQ8_0>(in, blocks, n, encode_block);
}

}  // namespace snug::quant
