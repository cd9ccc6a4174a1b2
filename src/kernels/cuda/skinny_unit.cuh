// One unit of weights (linear_layout.h) times up to 8 tokens on the tensor cores, for each format.
//
// Everything is an m16n8k16 product in bfloat16 with float32 sums: 16 weight rows by 8 tokens. Quantised
// levels become bfloat16 exactly, without any conversion: a level put into the mantissa of 128 (or of 1) is
// 128 + level, and the offset leaves again through a product of the same activations with a constant, which
// starts the sum.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/linear_layout.cuh"

namespace snug::kernels::cuda {

__device__ __forceinline__ void mma_bf16(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                         std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// A value that the compiler does not know, and so keeps.
__device__ __forceinline__ std::uint32_t opaque(std::uint32_t value) {
  std::uint32_t result;
  asm volatile("mov.b32 %0, %1;" : "=r"(result) : "r"(value));
  return result;
}

// An A that is the same constant everywhere: c += constant * Σ x. The compiler must not know the value, or it
// makes the four registers anew for every product.
struct ConstantA {
  std::uint32_t a[4];
  __device__ __forceinline__ explicit ConstantA(std::uint32_t pair) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = opaque(pair);
  }
  __device__ __forceinline__ void multiply(float (&c)[4], std::uint32_t b0, std::uint32_t b1) const {
    mma_bf16(c, a[0], a[1], a[2], a[3], b0, b1);
  }
};

// Pairs of equal bfloat16.
inline constexpr std::uint32_t kPair128 = 0x43004300u;       // 128
inline constexpr std::uint32_t kPairOne = 0x3F803F80u;       // 1
inline constexpr std::uint32_t kPairMinusOne = 0xBF80BF80u;  // -1
inline constexpr std::uint32_t kPairMinus136 = 0xC308C308u;  // -(128 + 8)
inline constexpr std::uint32_t kPairMinus160 = 0xC320C320u;  // -(128 + 32)

// (word & Mask) | bits in one operation.
template <std::uint32_t Mask>
__device__ __forceinline__ std::uint32_t and_or(std::uint32_t word, std::uint32_t bits) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(word), "n"(Mask), "r"(bits));
  return result;
}

// Pair `P` of a word of nibbles, as 128 + level.
template <int P>
__device__ __forceinline__ std::uint32_t nibbles(std::uint32_t word, std::uint32_t pair128) {
  return and_or<0x000F000Fu>(word >> (4 * P), pair128);
}

// Byte `i` of a word as float32 + 2^23.
template <int I>
__device__ __forceinline__ float offset_byte(std::uint32_t word) {
  return __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7540 + I));
}

__device__ __forceinline__ float low_half(std::uint32_t word) {
  return float_from_half_bits(word & 0xFFFFu);
}
__device__ __forceinline__ float high_half(std::uint32_t word) {
  return float_from_half_bits(word >> 16);
}

__device__ __forceinline__ void scale_add(float (&y)[4], float d0, float d1, const float (&c)[4]) {
  y[0] = fmaf(d0, c[0], y[0]);
  y[1] = fmaf(d0, c[1], y[1]);
  y[2] = fmaf(d1, c[2], y[2]);
  y[3] = fmaf(d1, c[3], y[3]);
}

// silu(gate) * up
__device__ __forceinline__ float gated_value(float gate, float up) {
  return gate / (1.0f + __expf(-gate)) * up;
}

template <class T>
__device__ __forceinline__ T load_as(const std::byte* at) {
  return *reinterpret_cast<const T*>(at);
}

// What a lane holds throughout, per format.
template <quant::Format F>
struct UnitConstants {};
template <>
struct UnitConstants<quant::Format::q4_0> {
  ConstantA minus_offset{kPairMinus136};
  std::uint32_t base = opaque(kPair128);
};
template <>
struct UnitConstants<quant::Format::q8_0> {
  ConstantA minus_offset{kPairMinusOne};
  std::uint32_t base = opaque(kPairOne);
};
template <>
struct UnitConstants<quant::Format::q4_k> {
  ConstantA one{kPairOne};
  std::uint32_t base = opaque(kPair128);
};
template <>
struct UnitConstants<quant::Format::q6_k> {
  ConstantA minus_offset{kPairMinus160};
  std::uint32_t base = opaque(kPair128);
};

// What a lane holds of a unit; load() takes it from shared memory, where unit and head lie as in the packed
// layout, multiply() adds its products to y: rows g and g + 8 by tokens 2t and 2t + 1. b is
// token g's activations: for each block of 32 columns the lane's 8 in the order of column_of().
template <quant::Format F>
struct Unit;

template <>
struct Unit<quant::Format::q4_0> {
  using Constants = UnitConstants<quant::Format::q4_0>;
  uint4 levels;
  uint2 scales;
  __device__ __forceinline__ void load(const std::byte* slot, const std::byte*, int lane) {
    levels = load_as<uint4>(slot + lane * 16);
    scales = load_as<uint2>(slot + 512 + lane / 4 * 8);
  }
  __device__ __forceinline__ static void block(const Constants& k, std::uint32_t low, std::uint32_t high,
                                               std::uint32_t d, const uint4& b, float (&y)[4]) {
    float c[4] = {0, 0, 0, 0};
    k.minus_offset.multiply(c, b.x, b.y);
    k.minus_offset.multiply(c, b.z, b.w);
    mma_bf16(c, nibbles<0>(low, k.base), nibbles<0>(high, k.base), nibbles<1>(low, k.base),
             nibbles<1>(high, k.base), b.x, b.y);
    mma_bf16(c, nibbles<2>(low, k.base), nibbles<2>(high, k.base), nibbles<3>(low, k.base),
             nibbles<3>(high, k.base), b.z, b.w);
    scale_add(y, low_half(d), high_half(d), c);
  }
  __device__ __forceinline__ void multiply(const Constants& k, const uint4 (&b)[2], float (&y)[4]) const {
    block(k, levels.x, levels.y, scales.x, b[0], y);
    block(k, levels.z, levels.w, scales.y, b[1], y);
  }
};

template <>
struct Unit<quant::Format::q8_0> {
  using Constants = UnitConstants<quant::Format::q8_0>;
  uint4 levels[2];
  uint2 scales;
  __device__ __forceinline__ void load(const std::byte* slot, const std::byte*, int lane) {
    levels[0] = load_as<uint4>(slot + lane * 16);
    levels[1] = load_as<uint4>(slot + 512 + lane * 16);
    scales = load_as<uint2>(slot + 1024 + lane / 4 * 8);
  }
  // The bytes at bits 0 and 16 as 1 + level / 128: the low seven bits stand in the mantissa of 1, the sign
  // bit alone is 2^-126 as a bfloat16 and takes 1 away.
  __device__ __forceinline__ static std::uint32_t pair(std::uint32_t word, std::uint32_t one) {
    const std::uint32_t magnitude = and_or<0x007F007Fu>(word, one), sign = word & 0x00800080u;
    std::uint32_t result;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(sign), "r"(0xFE80FE80u), "r"(magnitude));
    return result;
  }
  __device__ __forceinline__ static void block(const Constants& k, const uint4& q, std::uint32_t d,
                                               const uint4& b, float (&y)[4]) {
    float c[4] = {0, 0, 0, 0};
    k.minus_offset.multiply(c, b.x, b.y);
    k.minus_offset.multiply(c, b.z, b.w);
    mma_bf16(c, pair(q.x, k.base), pair(q.z, k.base), pair(q.x >> 8, k.base), pair(q.z >> 8, k.base), b.x,
             b.y);
    mma_bf16(c, pair(q.y, k.base), pair(q.w, k.base), pair(q.y >> 8, k.base), pair(q.w >> 8, k.base), b.z,
             b.w);
    scale_add(y, 128.0f * low_half(d), 128.0f * high_half(d), c);
  }
  __device__ __forceinline__ void multiply(const Constants& k, const uint4 (&b)[2], float (&y)[4]) const {
    block(k, levels[0], scales.x, b[0], y);
    block(k, levels[1], scales.y, b[1], y);
  }
};

template <>
struct Unit<quant::Format::q4_k> {
  using Constants = UnitConstants<quant::Format::q4_k>;
  uint4 levels;
  uint2 scales;  // a block a word: scale and minimum of row g, then of row g + 8
  uint2 head;    // d and dmin of row g, then of row g + 8
  __device__ __forceinline__ void load(const std::byte* slot, const std::byte* head_at, int lane) {
    levels = load_as<uint4>(slot + lane * 16);
    scales = load_as<uint2>(slot + 512 + lane / 4 * 8);
    head = load_as<uint2>(head_at + lane / 4 * 8);
  }
  __device__ __forceinline__ static void block(const Constants& k, std::uint32_t low, std::uint32_t high,
                                               std::uint32_t scale, const float (&d)[4],
                                               const float (&offset)[4], const uint4& b, float (&y)[4]) {
    // Σ x, since every row has a minimum of its own.
    float sum[4] = {0, 0, 0, 0};
    k.one.multiply(sum, b.x, b.y);
    k.one.multiply(sum, b.z, b.w);
    float c[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) c[i] = -128.0f * sum[i];
    mma_bf16(c, nibbles<0>(low, k.base), nibbles<0>(high, k.base), nibbles<1>(low, k.base),
             nibbles<1>(high, k.base), b.x, b.y);
    mma_bf16(c, nibbles<2>(low, k.base), nibbles<2>(high, k.base), nibbles<3>(low, k.base),
             nibbles<3>(high, k.base), b.z, b.w);
    // d * (2^23 + scale) - d * 2^23 is exact in one fused step.
    const float s0 = fmaf(d[0], offset_byte<0>(scale), offset[0]);
    const float m0 = fmaf(d[1], offset_byte<1>(scale), offset[1]);
    const float s1 = fmaf(d[2], offset_byte<2>(scale), offset[2]);
    const float m1 = fmaf(d[3], offset_byte<3>(scale), offset[3]);
    scale_add(y, s0, s1, c);
    scale_add(y, -m0, -m1, sum);
  }
  __device__ __forceinline__ void multiply(const Constants& k, const uint4 (&b)[2], float (&y)[4]) const {
    const float d[4] = {low_half(head.x), high_half(head.x), low_half(head.y), high_half(head.y)};
    const float offset[4] = {-0x1p23f * d[0], -0x1p23f * d[1], -0x1p23f * d[2], -0x1p23f * d[3]};
    block(k, levels.x, levels.y, scales.x, d, offset, b[0], y);
    block(k, levels.z, levels.w, scales.y, d, offset, b[1], y);
  }
};

template <>
struct Unit<quant::Format::q6_k> {
  using Constants = UnitConstants<quant::Format::q6_k>;
  uint4 levels;
  uint2 high_bits;
  uint2 scales;  // a block a word: first 16 columns of row g, of row g + 8, second 16 columns …; plus 128
  std::uint32_t head;  // d of row g and of row g + 8
  __device__ __forceinline__ void load(const std::byte* slot, const std::byte* head_at, int lane) {
    levels = load_as<uint4>(slot + lane * 16);
    high_bits = load_as<uint2>(slot + 512 + lane * 8);
    scales = load_as<uint2>(slot + 768 + lane / 4 * 8);
    head = load_as<std::uint32_t>(head_at + lane / 4 * 4);
  }
  // Pair P of the row `Half`: four bits of one word and two of another, as 128 + level.
  template <int Half, int P>
  __device__ __forceinline__ static std::uint32_t pair(std::uint32_t word, std::uint32_t high,
                                                       std::uint32_t base) {
    constexpr int kShift = Half * 8 + P * 2 - 4;
    const std::uint32_t at = kShift >= 0 ? high >> (kShift & 31) : high << (-kShift & 31);
    return and_or<0x00300030u>(at, nibbles<P>(word, base));
  }
  __device__ __forceinline__ static void block(const Constants& k, std::uint32_t low, std::uint32_t high,
                                               std::uint32_t bits, std::uint32_t scale, const float (&d)[2],
                                               const uint4& b, float (&y)[4]) {
    constexpr float kOffset = 0x1p23f + 128.0f;
    float c[4] = {0, 0, 0, 0};
    k.minus_offset.multiply(c, b.x, b.y);
    mma_bf16(c, pair<0, 0>(low, bits, k.base), pair<1, 0>(high, bits, k.base), pair<0, 1>(low, bits, k.base),
             pair<1, 1>(high, bits, k.base), b.x, b.y);
    scale_add(y, d[0] * (offset_byte<0>(scale) - kOffset), d[1] * (offset_byte<1>(scale) - kOffset), c);
    float e[4] = {0, 0, 0, 0};
    k.minus_offset.multiply(e, b.z, b.w);
    mma_bf16(e, pair<0, 2>(low, bits, k.base), pair<1, 2>(high, bits, k.base), pair<0, 3>(low, bits, k.base),
             pair<1, 3>(high, bits, k.base), b.z, b.w);
    scale_add(y, d[0] * (offset_byte<2>(scale) - kOffset), d[1] * (offset_byte<3>(scale) - kOffset), e);
  }
  __device__ __forceinline__ void multiply(const Constants& k, const uint4 (&b)[2], float (&y)[4]) const {
    const float d[2] = {low_half(head), high_half(head)};
    block(k, levels.x, levels.y, high_bits.x, scales.x, d, b[0], y);
    block(k, levels.z, levels.w, high_bits.y, scales.y, d, b[1], y);
  }
};

}  // namespace snug::kernels::cuda
