// q4_1: 32 elements in 20 bytes (5 bits each), affine.
//
// x[i] = d * q[i] + m, q in 0..15. Byte j of qs holds q[j] in its low and q[j + 16] in its high four bits.
#pragma once

#include <cstdint>

namespace snug::quant {

struct BlockQ4_1 {
  static constexpr int kElems = 32;
  std::uint16_t d, m;  // binary16
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

void decode_q4_1(const void* blocks, float* out, std::int64_t n);
void encode_q4_1(const float* in, void* blocks, std::int64_t n);

}  // namespace snug::quant
