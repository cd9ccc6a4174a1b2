#include "quant/q3_k.h"

#include "quant/codec.h"
#include "quant/fit.h"

namespace snug::quant {
namespace {

void decode_block(const BlockQ3K& b, float* y) {
  const float d = f32_from_f16(b.d);
  std::int8_t sc[16];
  unpack_q3_k_scales(b.scales, sc);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int low = (b.qs[32 * (i / 128) + i % 32] >> (i % 128 / 32 * 2)) & 3;
    const int high = (b.hmask[i % 32] >> (i / 32)) & 1;
    const float scale = d * static_cast<float>(sc[i / 16]);
    y[i] = scale * static_cast<float>((low | high << 2) - 4);
  }
}

void encode_block(const float* x, BlockQ3K& b) {
  const SymmetricCodes codes = choose_symmetric_codes(x, {.q_half = 4, .code_half = 32, .search = true});
  b.d = codes.d;
  for (int s = 0; s < 16; ++s) {
    const int code = codes.scale[s] + 32;
    b.scales[s % 8] |= static_cast<std::uint8_t>((code & 15) << (s / 8 * 4));
    b.scales[8 + s % 4] |= static_cast<std::uint8_t>((code >> 4) << (s / 4 * 2));
  }
  std::uint8_t q[kSuperBlock];
  quantise_symmetric(x, codes, {.q_half = 4}, q);
  for (int i = 0; i < kSuperBlock; ++i) {
    b.qs[32 * (i / 128) + i % 32] |= static_cast<std::uint8_t>((q[i] & 3) << (i % 128 / 32 * 2));
    b.hmask[i % 32] |= static_cast<std::uint8_t>((q[i] >> 2) << (i / 32));
  }
}

}  // namespace

void decode_q3_k(const void* blocks, float* out, std::int64_t n) {
  decode_blocks<BlockQ3K>(blocks, out, n, decode_block);
}

void encode_q3_k(const float* in, void* blocks, std::int64_t n) {
  encode_blocks<BlockQ3K>(in, blocks, n, encode_block);
}

}  // namespace snug::quant
