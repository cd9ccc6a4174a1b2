#include "quant/q2_k.h"

#include "quant/codec.h"
#include "quant/fit.h"

namespace snug::quant {
namespace {

void decode_block(const BlockQ2K& b, float* y) {
  const float d = f32_from_f16(b.d), dmin = f32_from_f16(b.dmin);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int h = i / 128, shift = i % 128 / 32 * 2;
    const float scale = d * static_cast<float>(b.scales[i / 16] & 15);
    const float min = dmin * static_cast<float>(b.scales[i / 16] >> 4);
    const float q = static_cast<float>((b.qs[32 * h + i % 32] >> shift) & 3);
    y[i] = scale * q - min;
  }
}

void encode_block(const float* x, BlockQ2K& b) {
  const AffineCodes codes =
      choose_affine_codes(x, {.sub_blocks = 16, .q_top = 3, .code_top = 15, .search = true});
  b.d = codes.d;
  b.dmin = codes.dmin;
  for (int s = 0; s < 16; ++s) {
    b.scales[s] = static_cast<std::uint8_t>(codes.scale[s] | codes.min[s] << 4);
  }
  std::uint8_t q[kSuperBlock];
  quantise_affine(x, codes, {.sub_blocks = 16, .q_top = 3}, q);
  for (int i = 0; i < kSuperBlock; ++i) {
    b.qs[32 * (i / 128) + i % 32] |= static_cast<std::uint8_t>(q[i] << (i % 128 / 32 * 2));
  }
}

}  // namespace

void decode_q2_k(const void* blocks, float* out, std::int64_t n) {
  decode_blocks<BlockQ2K>(blocks, out, n, decode_block);
}

void encode_q2_k(const float* in, void* blocks, std::int64_t n) {
  encode_blocks<BlockQ2K>(in, blocks, n, encode_block);
}

}  // namespace snug::quant
