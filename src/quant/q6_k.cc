#include "quant/q6_k.h"

#include "quant/codec.h"
#include "quant/fit.h"

namespace snug::quant {
namespace {

void decode_block(const BlockQ6K& b, float* y) {
  const float d = f32_from_f16(b.d);
  for (int s = 0; s < 16; ++s) {
    const float scale = d * static_cast<float>(b.scales[s]);
    const int h = s / 8, g = s % 8 / 2, first = s % 2 * 16;
    const std::uint8_t* ql = b.ql + 64 * h + 32 * (g % 2) + first;
    const std::uint8_t* qh = b.qh + 32 * h + first;
    for (int l = 0; l < 16; ++l) {
      const int q = ((ql[l] >> (g / 2 * 4)) & 15) | ((qh[l] >> (2 * g)) & 3) << 4;
      y[16 * s + l] = scale * static_cast<float>(q - 32);
    }
  }
}

void encode_block(const float* x, BlockQ6K& b) {
  const SymmetricCodes codes = choose_symmetric_codes(x, {.q_half = 32, .code_half = 128});
  b.d = codes.d;
  for (int s = 0; s < 16; ++s) b.scales[s] = codes.scale[s];
  std::uint8_t q[kSuperBlock];
  quantise_symmetric(x, codes, {.q_half = 32}, q);
  for (int h = 0; h < 2; ++h) {
    for (int l = 0; l < 32; ++l) {
      const std::uint8_t* p = q + 128 * h + l;
      b.ql[64 * h + l] = static_cast<std::uint8_t>((p[0] & 15) | (p[64] & 15) << 4);
      b.ql[64 * h + 32 + l] = static_cast<std::uint8_t>((p[32] & 15) | (p[96] & 15) << 4);
      b.qh[32 * h + l] =
          static_cast<std::uint8_t>(p[0] >> 4 | p[32] >> 4 << 2 | p[64] >> 4 << 4 | p[96] >> 4 << 6);
    }
  }
}

}  // namespace

void decode_q6_k(const void* blocks, float* out, std::int64_t n) {
  decode_blocks<BlockQ6K>(blocks, out, n, decode_block);
}

void encode_q6_k(const float* in, void* blocks, std::int64_t n) {
  encode_blocks<BlockQ6K>(in, blocks, n, encode_block);
}

}  // namespace snug::quant
