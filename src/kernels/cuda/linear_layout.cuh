// Reading packed weights (linear_layout.h) on the device.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/linear_layout.h"

namespace snug::kernels::cuda {

// Where unit `index` of a tile begins, and its super-block's head.
template <quant::Format F>
__host__ __device__ constexpr std::int64_t unit_offset(std::int64_t index) {
  constexpr UnitShape kUnit = unit_shape(F);
  return index * kUnit.bytes + (index / 4 + 1) * kUnit.head_bytes;
}
template <quant::Format F>
__host__ __device__ constexpr std::int64_t head_offset(std::int64_t index) {
  constexpr UnitShape kUnit = unit_shape(F);
  return index / 4 * (4 * kUnit.bytes + kUnit.head_bytes);
}

// The column, inside a block of 32, of a lane's element 0 … 7.
template <quant::Format F>
__host__ __device__ constexpr int column_of(int t, int element) {
  if (F == quant::Format::q6_k) return 4 * t + element % 4 + element / 4 * 16;
  return 8 * t + element;
}

__device__ __forceinline__ float float_from_half_bits(std::uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

// A lane's 8 elements in one block (0, 1) of a unit, of row g (half = 0) or g + 8 (half = 1), decoded to
// float32.
template <quant::Format F>
__device__ __forceinline__ void decode_lane(const std::byte* unit, const std::byte* head, int lane, int block,
                                            int half, float (&v)[8]) {
  using quant::Format;
  const int g = lane / 4;
  const auto half_at = [](const std::byte* at) {
    return float_from_half_bits(*reinterpret_cast<const std::uint16_t*>(at));
  };
  const auto byte_at = [](const std::byte* at) { return static_cast<float>(static_cast<std::uint8_t>(*at)); };
  if constexpr (F == Format::q8_0) {
    const float d = half_at(unit + 1024 + g * 8 + block * 4 + half * 2);
    const auto* words = reinterpret_cast<const std::uint32_t*>(unit + block * 512 + lane * 16 + half * 8);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const std::uint32_t bits = words[e / 4] >> (e % 4 / 2 * 8 + e % 2 * 16);
      v[e] = d * static_cast<float>(static_cast<std::int8_t>(bits & 0xFFu));
    }
  } else {
    const std::uint32_t word =
        *reinterpret_cast<const std::uint32_t*>(unit + lane * 16 + block * 8 + half * 4);
    int q[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) q[e] = static_cast<int>((word >> (e / 2 * 4 + e % 2 * 16)) & 15u);
    if constexpr (F == Format::q4_0) {
      const float d = half_at(unit + 512 + g * 8 + block * 4 + half * 2);
#pragma unroll
      for (int e = 0; e < 8; ++e) v[e] = d * static_cast<float>(q[e] - 8);
    } else if constexpr (F == Format::q4_k) {
      const float scale =
          half_at(head + g * 8 + half * 4) * byte_at(unit + 512 + g * 8 + block * 4 + half * 2);
      const float min =
          half_at(head + g * 8 + half * 4 + 2) * byte_at(unit + 513 + g * 8 + block * 4 + half * 2);
#pragma unroll
      for (int e = 0; e < 8; ++e) v[e] = scale * static_cast<float>(q[e]) - min;
    } else {
      static_assert(F == Format::q6_k);
      const std::uint32_t high = *reinterpret_cast<const std::uint32_t*>(unit + 512 + lane * 8 + block * 4);
      const float d = half_at(head + g * 4 + half * 2);
      const float low_scale = d * (byte_at(unit + 768 + g * 8 + block * 4 + half) - 128.0f);
      const float high_scale = d * (byte_at(unit + 768 + g * 8 + block * 4 + 2 + half) - 128.0f);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int bits = static_cast<int>((high >> (half * 8 + e / 2 * 2 + e % 2 * 16)) & 3u);
        v[e] = (e < 4 ? low_scale : high_scale) * static_cast<float>((q[e] | bits << 4) - 32);
      }
    }
  }
}

}  // namespace snug::kernels::cuda
