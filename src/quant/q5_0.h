// q5_0: 32 elements in 22 bytes (5.5 bits each), symmetric.
//
// x[i] = d * (q[i] - 16), q in 0..31. Byte j of qs holds the low four bits of q[j] in its low and of q[j +
// 16] in its high half. Bit i of the little-endian 32-bit number in qh is bit 4 of q[i].
#pragma once

#include <cstdint>

namespace snug::quant {

struct BlockQ5_0 {
  static constexpr int kElems = 32;
  std::uint16_t d;  // binary16
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

void decode_q5_0(const void* blocks, float* out, std::int64_t n);
void encode_q5_0(const float* in, void* blocks, std::int64_t n);

}  // namespace snug::quant
