// q4_k: 256 elements in 144 bytes (4.5 bits each), affine, 8 sub-blocks of 32.
//
// Element i of sub-block s = i / 32: x[i] = d * sc[s] * q[i] - dmin * m[s], q in 0..15, sc and m in 0..63.
// Byte 32 g + l of qs (g = 0..3, l = 0..31) holds q[64 g + l] in its low and q[64 g + l + 32] in its high
// four bits. scales, for s < 4: sc[s] = scales[s] & 63, m[s] = scales[s + 4] & 63; for s >= 4: the low four
// bits of sc[s] are scales[s + 4] & 15, of m[s] scales[s + 4] >> 4; their high two bits are scales[s - 4] >>
// 6 and scales[s] >> 6.
#pragma once

#include <cstdint>

namespace snug::quant {

struct BlockQ4K {
  static constexpr int kElems = 256;
  std::uint16_t d, dmin;    // binary16
  std::uint8_t scales[12];  // 8 scales and 8 minima of 6 bits
  std::uint8_t qs[128];
};
static_assert(sizeof(BlockQ4K) == 144);

// The scales and minima of the 8 sub-blocks, 0..63; the same packing in q4_k and q5_k.
inline void unpack_scales(const std::uint8_t scales[12], std::uint8_t sc[8], std::uint8_t m[8]) {
  for (int s = 0; s < 4; ++s) {
    sc[s] = scales[s] & 63;
    m[s] = scales[s + 4] & 63;
    sc[s + 4] = static_cast<std::uint8_t>((scales[s + 8] & 15) | (scales[s] >> 6) << 4);
    m[s + 4] = static_cast<std::uint8_t>((scales[s + 8] >> 4) | (scales[s + 4] >> 6) << 4);
  }
}

// The inverse of unpack_scales.
inline void pack_scales(const std::uint8_t sc[8], const std::uint8_t m[8], std::uint8_t scales[12]) {
  for (int s = 0; s < 4; ++s) {
    scales[s] = static_cast<std::uint8_t>(sc[s] | (sc[s + 4] >> 4) << 6);
    scales[s + 4] = static_cast<std::uint8_t>(m[s] | (m[s + 4] >> 4) << 6);
    scales[s + 8] = static_cast<std::uint8_t>((sc[s + 4] & 15) | (m[s + 4] & 15) << 4);
  }
}

void decode_q4_k(const void* blocks, float* out, std::int64_t n);
void encode_q4_k(const float* in, void* blocks, std::int64_t n);

}  // namespace snug::quant
