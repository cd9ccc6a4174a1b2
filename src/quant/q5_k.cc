#include "quant/q5_k.h"

#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/q4_k.h"

namespace snug::quant {
namespace {

void decode_block(const BlockQ5K& b, float* y) {
  const float d = f32_from_f16(b.d), dmin = f32_from_f16(b.dmin);
  std::uint8_t sc[8], m[8];
  unpack_scales(b.scales, sc, m);
  for (int s = 0; s < 8; ++s) {
    const float scale = d * static_cast<float>(sc[s]), min = dmin * static_cast<float>(m[s]);
    const std::uint8_t* qs = b.qs + s / 2 * 32;
    const int shift = s % 2 * 4;
    for (int l = 0; l < 32; ++l) {
      const int q = ((qs[l] >> shift) & 15) | ((b.qh[l] >> s) & 1) << 4;
      y[32 * s + l] = scale * static_cast<float>(q) - min;
    }
  }
}

void encode_block(const float* x, BlockQ5K& b) {
  const AffineCodes codes = choose_affine_codes(x, {.sub_blocks = 8, .q_top = 31, .code_top = 63});
  b.d = codes.d;
  b.dmin = codes.dmin;
  pack_scales(codes.scale, codes.min, b.scales);
  std::uint8_t q[kSuperBlock];
  quantise_affine(x, codes, {.sub_blocks = 8, .q_top = 31}, q);
  for (int g = 0; g < 4; ++g) {
    for (int l = 0; l < 32; ++l) {
      const int lo = q[64 * g + l], hi = q[64 * g + l + 32];
      b.qs[32 * g + l] = static_cast<std::uint8_t>((lo & 15) | (hi & 15) << 4);
      b.qh[l] |= static_cast<std::uint8_t>((lo >> 4) << (2 * g) | (hi >> 4) << (2 * g + 1));
    }
  }
}

}  // namespace

void decode_q5_k(const void* blocks, float* out, std::int64_t n) {
  decode_blocks<BlockQ5K>(blocks, out, n, decode_block);
}

void encode_q5_k(const float* in, void* blocks, std::int64_t n) {
  encode_blocks<BlockQ5K>(in, blocks, n, encode_block);
}

}  // namespace snug::quant
