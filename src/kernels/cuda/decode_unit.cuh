// One unit of weights times one token: as in skinny_unit.cuh, with what a single token allows. All 8 columns
// of a product are that token, so every lane has rows g and g + 8 of the result. And the offset of quantised
// levels leaves through sums of the activations that were made once for all rows.
#pragma once

#include "kernels/cuda/skinny_unit.cuh"

namespace snug::kernels::cuda {

// c = a * b. A zero that the compiler sees costs no registers, where one that is added to would.
__device__ __forceinline__ void mma_start(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                          std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %10, %10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0f));
}

// The products of a block's 32 nibbles in rows g and g + 8, each level plus 128.
__device__ __forceinline__ void nibble_products(float (&c)[4], std::uint32_t low, std::uint32_t high,
                                                const uint4& b, std::uint32_t base) {
  mma_start(c, nibbles<0>(low, base), nibbles<0>(high, base), nibbles<1>(low, base), nibbles<1>(high, base),
            b.x, b.y);
  mma_bf16(c, nibbles<2>(low, base), nibbles<2>(high, base), nibbles<3>(low, base), nibbles<3>(high, base),
           b.z, b.w);
}

// y (rows g and g + 8) += unit * x. b: for each block of 32 columns the lane's 8 activations in the order of
// column_of(). s: the sums of each 16 activations. `base` is opaque(kPair128), for Q8_0 opaque(kPairOne).
template <quant::Format F>
struct OneToken;

template <>
struct OneToken<quant::Format::bf16> {
  // The lane's 8 columns of rows g and g + 8: y has those rows in elements 0 and 2.
  __device__ __forceinline__ static void multiply(const uint4& low, const uint4& high, const uint4& b,
                                                  float (&y)[4]) {
    mma_bf16(y, low.x, high.x, low.y, high.y, b.x, b.y);
    mma_bf16(y, low.z, high.z, low.w, high.w, b.z, b.w);
  }
};

template <>
struct OneToken<quant::Format::q4_0> {
  static constexpr std::uint32_t kBase = kPair128;
  using Weights = Unit<quant::Format::q4_0>;
  __device__ __forceinline__ static void multiply(const Weights& w, const uint4 (&b)[2], const float4& s,
                                                  std::uint32_t base, float (&y)[2]) {
    block(w.levels.x, w.levels.y, w.scales.x, b[0], s.x + s.y, base, y);
    block(w.levels.z, w.levels.w, w.scales.y, b[1], s.z + s.w, base, y);
  }
  __device__ __forceinline__ static void block(std::uint32_t low, std::uint32_t high, std::uint32_t d,
                                               const uint4& b, float sum, std::uint32_t base, float (&y)[2]) {
    float c[4];
    nibble_products(c, low, high, b, base);
    y[0] = fmaf(low_half(d), fmaf(-136.0f, sum, c[0]), y[0]);
    y[1] = fmaf(high_half(d), fmaf(-136.0f, sum, c[2]), y[1]);
  }
};

template <>
struct OneToken<quant::Format::q8_0> {
  static constexpr std::uint32_t kBase = kPairOne;
  using Weights = Unit<quant::Format::q8_0>;
  __device__ __forceinline__ static void multiply(const Weights& w, const uint4 (&b)[2], const float4& s,
                                                  std::uint32_t base, float (&y)[2]) {
    block(w.levels[0], w.scales.x, b[0], s.x + s.y, base, y);
    block(w.levels[1], w.scales.y, b[1], s.z + s.w, base, y);
  }
  __device__ __forceinline__ static void block(const uint4& q, std::uint32_t d, const uint4& b, float sum,
                                               std::uint32_t base, float (&y)[2]) {
    float c[4];
    mma_start(c, Weights::pair(q.x, base), Weights::pair(q.z, base), Weights::pair(q.x >> 8, base),
              Weights::pair(q.z >> 8, base), b.x, b.y);
    mma_bf16(c, Weights::pair(q.y, base), Weights::pair(q.w, base), Weights::pair(q.y >> 8, base),
             Weights::pair(q.w >> 8, base), b.z, b.w);
    y[0] = fmaf(128.0f * low_half(d), c[0] - sum, y[0]);
    y[1] = fmaf(128.0f * high_half(d), c[2] - sum, y[1]);
  }
};

template <>
struct OneToken<quant::Format::q4_k> {
  static constexpr std::uint32_t kBase = kPair128;
  using Weights = Unit<quant::Format::q4_k>;
  __device__ __forceinline__ static void multiply(const Weights& w, const uint4 (&b)[2], const float4& s,
                                                  std::uint32_t base, float (&y)[2]) {
    const float d[4] = {low_half(w.head.x), high_half(w.head.x), low_half(w.head.y), high_half(w.head.y)};
    block(w.levels.x, w.levels.y, w.scales.x, d, b[0], s.x + s.y, base, y);
    block(w.levels.z, w.levels.w, w.scales.y, d, b[1], s.z + s.w, base, y);
  }
  __device__ __forceinline__ static void block(std::uint32_t low, std::uint32_t high, std::uint32_t scale,
                                               const float (&d)[4], const uint4& b, float sum,
                                               std::uint32_t base, float (&y)[2]) {
    float c[4];
    nibble_products(c, low, high, b, base);
    // d * (2^23 + scale) - d * 2^23 is exact in one fused step.
    const float s0 = fmaf(d[0], offset_byte<0>(scale), -0x1p23f * d[0]);
    const float m0 = fmaf(d[1], offset_byte<1>(scale), -0x1p23f * d[1]);
    const float s1 = fmaf(d[2], offset_byte<2>(scale), -0x1p23f * d[2]);
    const float m1 = fmaf(d[3], offset_byte<3>(scale), -0x1p23f * d[3]);
    y[0] = fmaf(-m0, sum, fmaf(s0, fmaf(-128.0f, sum, c[0]), y[0]));
    y[1] = fmaf(-m1, sum, fmaf(s1, fmaf(-128.0f, sum, c[2]), y[1]));
  }
};

template <>
struct OneToken<quant::Format::q6_k> {
  static constexpr std::uint32_t kBase = kPair128;
  using Weights = Unit<quant::Format::q6_k>;
  __device__ __forceinline__ static void multiply(const Weights& w, const uint4 (&b)[2], const float4& s,
                                                  std::uint32_t base, float (&y)[2]) {
    const float d[2] = {low_half(w.head), high_half(w.head)};
    block(w.levels.x, w.levels.y, w.high_bits.x, w.scales.x, d, b[0], s.x, s.y, base, y);
    block(w.levels.z, w.levels.w, w.high_bits.y, w.scales.y, d, b[1], s.z, s.w, base, y);
  }
  __device__ __forceinline__ static void block(std::uint32_t low, std::uint32_t high, std::uint32_t bits,
                                               std::uint32_t scale, const float (&d)[2], const uint4& b,
                                               float first, float second, std::uint32_t base, float (&y)[2]) {
    constexpr float kOffset = 0x1p23f + 128.0f;
    float c[4], e[4];
    mma_start(c, Weights::pair<0, 0>(low, bits, base), Weights::pair<1, 0>(high, bits, base),
              Weights::pair<0, 1>(low, bits, base), Weights::pair<1, 1>(high, bits, base), b.x, b.y);
    mma_start(e, Weights::pair<0, 2>(low, bits, base), Weights::pair<1, 2>(high, bits, base),
              Weights::pair<0, 3>(low, bits, base), Weights::pair<1, 3>(high, bits, base), b.z, b.w);
    y[0] = fmaf(d[0] * (offset_byte<0>(scale) - kOffset), fmaf(-160.0f, first, c[0]), y[0]);
    y[1] = fmaf(d[1] * (offset_byte<1>(scale) - kOffset), fmaf(-160.0f, first, c[2]), y[1]);
    y[0] = fmaf(d[0] * (offset_byte<2>(scale) - kOffset), fmaf(-160.0f, second, e[0]), y[0]);
    y[1] = fmaf(d[1] * (offset_byte<3>(scale) - kOffset), fmaf(-160.0f, second, e[2]), y[1]);
  }
};

}  // namespace snug::kernels::cuda
