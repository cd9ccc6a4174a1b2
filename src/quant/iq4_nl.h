// iq4_nl: 32 elements in 18 bytes (4.5 bits each), sixteen unevenly spaced levels.
//
// x[i] = d * kIq4Levels[q[i]]. Byte j of qs holds q[j] in its low and q[j + 16] in its high four bits.
#pragma once

#include <cstdint>

namespace snug::quant {

struct BlockIQ4NL {
  static constexpr int kElems = 32;
  std::uint16_t d;  // binary16
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockIQ4NL) == 18);

void decode_iq4_nl(const void* blocks, float* out, std::int64_t n);
void encode_iq4_nl(const float* in, void* blocks, std::int64_t n);

}  // namespace snug::quant
