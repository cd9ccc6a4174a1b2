// q5_1: 32 elements in 24 bytes (6 bits each), affine.
//
// x[i] = d * q[i] + m, q in 0..31. Byte j of qs holds the low four bits of q[j] in its low and of q[j + 16]
// in its high half. Bit i of the little-endian 32-bit number in qh is bit 4 of q[i].
#pragma once

#include <cstdint>

namespace snug::quant {

struct BlockQ5_1 {
  static constexpr int kElems = 32;
  std::uint16_t d, m;  // binary16
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

void decode_q5_1(const void* blocks, float* out, std::int64_t n);
void encode_q5_1(const float* in, void* blocks, std::int64_t n);

}  // namespace snug::quant
