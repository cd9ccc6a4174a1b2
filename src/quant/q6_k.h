// q6_k: 256 elements in 210 bytes (6.5625 bits each), symmetric, 16 sub-blocks of 16.
//
// Element i of sub-block s = i / 16: x[i] = d * scales[s] * (q[i] - 32), q in 0..63.
// With h = i / 128, g = i % 128 / 32, l = i % 32: the low four bits of q[i] are in byte 64 h + 32 (g % 2) + l
// of ql, in its low half for g < 2, else in its high half. The high two bits are bits 2 g and 2 g + 1 of
// qh[32 h + l].
#pragma once

#include <cstdint>

namespace snug::quant {

struct BlockQ6K {
  static constexpr int kElems = 256;
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  std::uint16_t d;  // binary16
};
static_assert(sizeof(BlockQ6K) == 210);

void decode_q6_k(const void* blocks, float* out, std::int64_t n);
void encode_q6_k(const float* in, void* blocks, std::int64_t n);

}  // namespace snug::quant
