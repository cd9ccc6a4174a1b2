// q3_k: 256 elements in 110 bytes (3.4375 bits each), symmetric, 16 sub-blocks of 16.
//
// Element i of sub-block s = i / 16: x[i] = d * (sc[s] - 32) * (q[i] - 4), sc in 0..63, q in 0..7.
// Low two bits of q: byte 32 h + l of qs (h = 0..1, l = 0..31) holds, from its lowest bits up, those of
// elements 128 h + l, 128 h + l + 32, 128 h + l + 64 and 128 h + l + 96. High bit of q[i]: bit i / 32 of
// hmask[i % 32]. Low four bits of sc: scales[s] & 15 for s < 8, scales[s - 8] >> 4 for the rest. High two
// bits of sc[s]: bits 2 (s / 4) and up of scales[8 + s % 4].
#pragma once

#include <cstdint>

namespace snug::quant {

struct BlockQ3K {
  static constexpr int kElems = 256;
  std::uint8_t hmask[32];
  std::uint8_t qs[64];
  std::uint8_t scales[12];
  std::uint16_t d;  // binary16
};
static_assert(sizeof(BlockQ3K) == 110);

// The 16 sub-scales, -32..31.
inline void unpack_q3_k_scales(const std::uint8_t scales[12], std::int8_t sc[16]) {
  for (int s = 0; s < 16; ++s) {
    const int low = s < 8 ? scales[s] & 15 : scales[s - 8] >> 4;
    const int high = (scales[8 + s % 4] >> (s / 4 * 2)) & 3;
    sc[s] = static_cast<std::int8_t>((low | high << 4) - 32);
  }
}

void decode_q3_k(const void* blocks, float* out, std::int64_t n);
void encode_q3_k(const float* in, void* blocks, std::int64_t n);

}  // namespace snug::quant
