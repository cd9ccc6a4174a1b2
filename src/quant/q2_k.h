// q2_k: 256 elements in 84 bytes (2.625 bits each), affine, 16 sub-blocks of 16.
//
// Element i of sub-block s = i / 16: x[i] = d * (scales[s] & 15) * q[i] - dmin * (scales[s] >> 4), q in 0..3.
// Byte 32 h + l of qs (h = 0..1, l = 0..31) holds, from its lowest two bits up, q of elements
// 128 h + l, 128 h + l + 32, 128 h + l + 64 and 128 h + l + 96.
#pragma once

#include <cstdint>

namespace snug::quant {

struct BlockQ2K {
  static constexpr int kElems = 256;
  std::uint8_t scales[16];  // sub-block's scale in the low, its minimum in the high four bits
  std::uint8_t qs[64];
  std::uint16_t d, dmin;  // binary16
};
static_assert(sizeof(BlockQ2K) == 84);

void decode_q2_k(const void* blocks, float* out, std::int64_t n);
void encode_q2_k(const float* in, void* blocks, std::int64_t n);

}  // namespace snug::quant
