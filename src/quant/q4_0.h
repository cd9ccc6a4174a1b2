// q4_0: 32 elements in 18 bytes (4.5 bits each), symmetric.
//
// x[i] = d * (q[i] - 8), q in 0..15. Byte j of qs holds q[j] in its low and q[j + 16] in its high four bits.
#pragma once

#include <cstdint>

namespace snug::quant {

struct BlockQ4_0 {
  static constexpr int kElems = 32;
  std::uint16_t d;  // binary16
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

void decode_q4_0(const void* blocks, float* out, std::int64_t n);
void encode_q4_0(const float* in, void* blocks, std::int64_t n);

}  // namespace snug::quant
