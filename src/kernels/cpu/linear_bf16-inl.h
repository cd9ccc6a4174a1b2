// The loops of the BF16 kernels over a vector type V, which either wraps AVX512-BF16 or spells out what it
// does. Included where the compiler may use V's instructions, so every header it needs comes before it.
//
// V gives kLanes; Sums (kLanes float32); Pairs (kLanes pairs of bf16); zero; load, load_part (the first n
// elements, others zero) and broadcast (of one pair); multiply_add (sums + the pairs' dot products); add;
// total; add_part (to the first n of y); round (the first n of 2 kLanes float32 to bf16, the others to zero);
// prefetch.
#pragma once

#include "kernels/cpu/linear_bf16.h"

namespace snug::kernels::cpu {

template <class V>
struct Bf16Loops {
  using Sums = typename V::Sums;
  using Pairs = typename V::Pairs;
  static constexpr int kLanes = V::kLanes, kPanelRows = 2 * kLanes;
  static constexpr std::int64_t kStep = 2 * kLanes;  // elements of one vector

  // ---- few tokens: dot products along k

  // kRows rows, w_stride bytes apart, times kTokens tokens. In y the rows are y_step apart.
  template <int kRows, int kTokens>
  static void dot_tile(const std::byte* w, std::int64_t w_stride, std::int64_t columns,
                       const std::uint16_t* x, std::int64_t x_stride, float* y, std::int64_t y_step,
                       std::int64_t y_stride) {
    constexpr std::int64_t kPrefetchBytes = 512;
    constexpr int kChains = kRows * kTokens >= 8 ? 1 : kRows * kTokens >= 4 ? 2 : 4;  // hide the latency
    Sums acc[kChains][kRows][kTokens];
    for (int c = 0; c < kChains; ++c) {
      for (int r = 0; r < kRows; ++r) {
        for (int t = 0; t < kTokens; ++t) acc[c][r][t] = V::zero();
      }
    }
    std::int64_t k = 0;
    for (; k + kChains * kStep <= columns; k += kChains * kStep) {
#pragma GCC unroll 4
      for (int c = 0; c < kChains; ++c) {
        Pairs v[kRows];
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const std::byte* from = w + r * w_stride + (k + c * kStep) * 2;
          v[r] = V::load(from);
          if (kTokens == 1) V::prefetch(from + kPrefetchBytes);
        }
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          const Pairs xv = V::load(x + t * x_stride + k + c * kStep);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) acc[c][r][t] = V::multiply_add(acc[c][r][t], v[r], xv);
        }
      }
    }
    for (; k < columns; k += kStep) {
      const int count = static_cast<int>(columns - k < kStep ? columns - k : kStep);
      for (int t = 0; t < kTokens; ++t) {
        const Pairs xv = V::load_part(x + t * x_stride + k, count);
        for (int r = 0; r < kRows; ++r) {
          acc[0][r][t] = V::multiply_add(acc[0][r][t], V::load_part(w + r * w_stride + k * 2, count), xv);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTokens; ++t) {
        Sums sum = acc[0][r][t];
        for (int c = 1; c < kChains; ++c) sum = V::add(sum, acc[c][r][t]);
        y[t * y_stride + r * y_step] += V::total(sum);
      }
    }
  }

  template <int kRows>
  static void dot_rows(const std::byte* w, std::int64_t w_stride, std::int64_t columns,
                       const std::uint16_t* x, std::int64_t x_stride, std::int64_t tokens, float* y,
                       std::int64_t y_step, std::int64_t y_stride) {
    for (; tokens >= 3; tokens -= 3, x += 3 * x_stride, y += 3 * y_stride) {
      dot_tile<kRows, 3>(w, w_stride, columns, x, x_stride, y, y_step, y_stride);
    }
    if (tokens == 2) dot_tile<kRows, 2>(w, w_stride, columns, x, x_stride, y, y_step, y_stride);
    if (tokens == 1) dot_tile<kRows, 1>(w, w_stride, columns, x, x_stride, y, y_step, y_stride);
  }

  // Four streams, each through a quarter of the rows, as the float32 kernel has them.
  static void dot(const std::byte* w, std::int64_t w_stride, std::int64_t columns, const std::uint16_t* x,
                  std::int64_t x_stride, std::int64_t tokens, PanelOut out) {
    const int quarter = out.rows / 4;
    for (int r = 0; r < quarter; ++r) {
      dot_rows<4>(w + r * w_stride, quarter * w_stride, columns, x, x_stride, tokens, out.y + r, quarter,
                  out.stride);
    }
    for (int r = 4 * quarter; r < out.rows; ++r) {
      dot_rows<1>(w + r * w_stride, w_stride, columns, x, x_stride, tokens, out.y + r, 1, out.stride);
    }
  }

  // ---- many tokens: a panel times one broadcast pair of activations at a time

  template <int kTokens>
  static void multiply_tile(const std::byte* panel, std::int64_t pairs, const std::uint16_t* x,
                            std::int64_t x_stride, PanelOut out) {
    Sums acc[kTokens][2];
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) {
      acc[t][0] = acc[t][1] = V::zero();
      V::prefetch(out.y + t * out.stride);
      V::prefetch(out.y + t * out.stride + kLanes);
    }
    for (std::int64_t k = 0; k < pairs; ++k, panel += 4 * kPanelRows) {
      const Pairs w0 = V::load(panel), w1 = V::load(panel + 4 * kLanes);
#pragma GCC unroll 12
      for (int t = 0; t < kTokens; ++t) {
        const Pairs v = V::broadcast(x + t * x_stride + 2 * k);
        acc[t][0] = V::multiply_add(acc[t][0], w0, v);
        acc[t][1] = V::multiply_add(acc[t][1], w1, v);
      }
    }
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) {
      float* y = out.y + t * out.stride;
      V::add_part(y, acc[t][0], out.rows < kLanes ? out.rows : kLanes);
      if (out.rows > kLanes) V::add_part(y + kLanes, acc[t][1], out.rows - kLanes);
    }
  }

  static void multiply(const std::byte* panel, std::int64_t pairs, const std::uint16_t* x,
                       std::int64_t x_stride, std::int64_t tokens, PanelOut out) {
    while (tokens > 0) {
      const int count = tokens >= 12 ? 12 : tokens >= 4 ? 4 : tokens >= 2 ? 2 : 1;
      if (count == 12) multiply_tile<12>(panel, pairs, x, x_stride, out);
      if (count == 4) multiply_tile<4>(panel, pairs, x, x_stride, out);
      if (count == 2) multiply_tile<2>(panel, pairs, x, x_stride, out);
      if (count == 1) multiply_tile<1>(panel, pairs, x, x_stride, out);
      x += count * x_stride;
      out.y += count * out.stride;
      tokens -= count;
    }
  }

  static void round(const float* x, std::int64_t count, std::uint16_t* rounded) {
    for (std::int64_t k = 0; k < count; k += kStep) {
      V::round(x + k, static_cast<int>(count - k < kStep ? count - k : kStep), rounded + k);
    }
  }

  static constexpr Bf16Kernels kernels() {
    return {kPanelRows, round, dot, multiply};
  }
};

}  // namespace snug::kernels::cpu
