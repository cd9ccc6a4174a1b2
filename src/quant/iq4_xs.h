// iq4_xs: 256 elements in 136 bytes (4.25 bits each), the levels of iq4_nl, 8 sub-blocks of 32.
//
// Element i of sub-block s = i / 32: x[i] = d * (sc[s] - 32) * kIq4Levels[q[i]], sc in 0..63.
// Byte 16 s + j of qs (j = 0..15) holds q[32 s + j] in its low and q[32 s + j + 16] in its high four bits.
// The low four bits of sc[s] are in byte s / 2 of scales_l (low half for even s); its high two bits are bits
// 2 s and 2 s + 1 of scales_h.
#pragma once

#include <cstdint>

namespace snug::quant {

struct BlockIQ4XS {
  static constexpr int kElems = 256;
  std::uint16_t d;  // binary16
  std::uint16_t scales_h;
  std::uint8_t scales_l[4];
  std::uint8_t qs[128];
};
static_assert(sizeof(BlockIQ4XS) == 136);

// The scale of sub-block s, -32..31.
inline int iq4_xs_scale(const BlockIQ4XS& b, int s) {
  const int low = (b.scales_l[s / 2] >> (s % 2 * 4)) & 15;
  const int high = (b.scales_h >> (2 * s)) & 3;
  return (low | high << 4) - 32;
}

void decode_iq4_xs(const void* blocks, float* out, std::int64_t n);
void encode_iq4_xs(const float* in, void* blocks, std::int64_t n);

}  // namespace snug::quant
