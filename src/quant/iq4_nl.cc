#include "quant/iq4_nl.h"

#include "quant/codec.h"
#include "quant/iq4.h"

namespace snug::quant {
namespace {

void decode_block(const BlockIQ4NL& b, float* y) {
  const float d = f32_from_f16(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(kIq4Levels[b.qs[j] & 15]);
    y[j + 16] = d * static_cast<float>(kIq4Levels[b.qs[j] >> 4]);
  }
}

void encode_block(const float* x, BlockIQ4NL& b) {
  b.d = f16_scale(iq4_fit(x));
  const float inv = inverse(f32_from_f16(b.d));
  for (int j = 0; j < 16; ++j) {
    b.qs[j] = static_cast<std::uint8_t>(iq4_nearest(x[j] * inv) | iq4_nearest(x[j + 16] * inv) << 4);
  }
}

}  // namespace

void decode_iq4_nl(const void* blocks, float* out, std::int64_t n) {
  decode_blocks<BlockIQ4NL>(blocks, out, n, decode_block);
}

void encode_iq4_nl(const float* in, void* blocks, std::int64_t n) {
  encode_blocks<BlockIQ4NL>(in, blocks, n, encode_block);
}

}  // namespace snug::quant
