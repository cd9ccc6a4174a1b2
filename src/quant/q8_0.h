// q8_0: 32 elements in 34 bytes (8.5 bits each), symmetric.
//
// x[i] = d * qs[i], qs in -127..127 as encoded here (-128 decodes too).
#pragma once

#include <cstdint>

namespace snug::quant {

struct BlockQ8_0 {
  static constexpr int kElems = 32;
  std::uint16_t d;  // binary16
  std::int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

void decode_q8_0(const void* blocks, float* out, std::int64_t n);
void encode_q8_0(const float* in, void* blocks, std::int64_t n);

}  // namespace snug::quant
