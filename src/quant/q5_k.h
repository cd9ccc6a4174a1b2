// q5_k: 256 elements in 176 bytes (5.5 bits each), affine, 8 sub-blocks of 32.
//
// Element i of sub-block s = i / 32: x[i] = d * sc[s] * q[i] - dmin * m[s], q in 0..31; sc and m as in q4_k.
// Byte 32 g + l of qs (g = 0..3, l = 0..31) holds the low four bits of q[64 g + l] in its low and those of
// q[64 g + l + 32] in its high half. Bit 4 of q[i] is bit i / 32 of qh[i % 32].
#pragma once

#include <cstdint>

namespace snug::quant {

struct BlockQ5K {
  static constexpr int kElems = 256;
  std::uint16_t d, dmin;    // binary16
  std::uint8_t scales[12];  // unpack_scales() of q4_k.h
  std::uint8_t qh[32];
  std::uint8_t qs[128];
};
static_assert(sizeof(BlockQ5K) == 176);

void decode_q5_k(const void* blocks, float* out, std::int64_t n);
void encode_q5_k(const float* in, void* blocks, std::int64_t n);

}  // namespace snug::quant
