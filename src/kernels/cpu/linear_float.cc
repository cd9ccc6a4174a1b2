// Float32 products: weights kept as numbers (f32, f16, bf16), and every format when exact results are asked
// for.
//
// Few tokens: dot products along k, straight from the weights. Many tokens: 2 vectors of rows are turned into
// a panel (columns, panel_rows) once and multiplied by one broadcast activation at a time.

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/linear_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_float.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/linear_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace snug::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
constexpr int kPanelRows = 2 * kLanes;
// Tokens times 2 vectors of accumulators, 2 weights and 1 activation must fit the registers.
constexpr int kTileTokens = HWY_TARGET == HWY_AVX2 ? 6 : HWY_TARGET == HWY_SCALAR ? 2 : 12;

// Element types of weights: how one vector and one element are read as float32.
struct F32 {
  static constexpr int kBytes = 4;
  static HWY_INLINE VF load(const std::byte* p) { return hn::LoadU(DF(), reinterpret_cast<const float*>(p)); }
  static float one(const std::byte* p) {
    float v;
    std::memcpy(&v, p, 4);
    return v;
  }
};
struct F16 {
  static constexpr int kBytes = 2;
  static HWY_INLINE VF load(const std::byte* p) {
    const hn::Rebind<hwy::float16_t, DF> d;
    return hn::PromoteTo(DF(), hn::LoadU(d, reinterpret_cast<const hwy::float16_t*>(p)));
  }
  static float one(const std::byte* p) {
    std::uint16_t v;
    std::memcpy(&v, p, 2);
    return f32_from_f16(v);
  }
};
struct BF16 {
  static constexpr int kBytes = 2;
  static HWY_INLINE VF load(const std::byte* p) {
    const hn::Rebind<hwy::bfloat16_t, DF> d;
    return hn::PromoteTo(DF(), hn::LoadU(d, reinterpret_cast<const hwy::bfloat16_t*>(p)));
  }
  static float one(const std::byte* p) {
    std::uint16_t v;
    std::memcpy(&v, p, 2);
    return f32_from_bf16(v);
  }
};

// fn(type) for the element type of `dtype`.
template <class Fn>
void with_type(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::f32:
      return fn(F32());
    case DType::f16:
      return fn(F16());
    case DType::bf16:
      return fn(BF16());
  }
}

// ---- few tokens

// kRows rows, w_stride bytes apart, times kTokens tokens. In y the rows are y_step apart.
template <class W, int kRows, int kTokens>
HWY_INLINE void dot_tile(const std::byte* w, std::int64_t w_stride, std::int64_t columns, const float* x,
                         std::int64_t x_stride, float* y, std::int64_t y_step, std::int64_t y_stride) {
  const DF df;
  constexpr std::int64_t kPrefetchBytes = 512;
  // One row alone needs several chains of sums to hide the latency.
  constexpr int kChains = kRows * kTokens >= 8 ? 1 : kRows * kTokens >= 4 ? 2 : 4;
  VF acc[kChains][kRows][kTokens];
  for (int c = 0; c < kChains; ++c) {
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTokens; ++t) acc[c][r][t] = hn::Zero(df);
    }
  }
  std::int64_t k = 0;
  for (; k + kChains * kLanes <= columns; k += kChains * kLanes) {
    if constexpr (kTokens == 1) {  // several tokens leave memory enough time
      HWY_UNROLL(4)
      for (int r = 0; r < kRows; ++r) hwy::Prefetch(w + r * w_stride + k * W::kBytes + kPrefetchBytes);
    }
    HWY_UNROLL(4)
    for (int c = 0; c < kChains; ++c) {
      VF v[kRows];
      HWY_UNROLL(4)
      for (int r = 0; r < kRows; ++r) v[r] = W::load(w + r * w_stride + (k + c * kLanes) * W::kBytes);
      HWY_UNROLL(4)
      for (int t = 0; t < kTokens; ++t) {
        const VF xv = hn::LoadU(df, x + t * x_stride + k + c * kLanes);
        HWY_UNROLL(4)
        for (int r = 0; r < kRows; ++r) acc[c][r][t] = hn::MulAdd(v[r], xv, acc[c][r][t]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) {
      VF sum = acc[0][r][t];
      for (int c = 1; c < kChains; ++c) sum = hn::Add(sum, acc[c][r][t]);
      float total = hn::GetLane(hn::SumOfLanes(df, sum));
      for (std::int64_t i = k; i < columns; ++i) {
        total += W::one(w + r * w_stride + i * W::kBytes) * x[t * x_stride + i];
      }
      y[t * y_stride + r * y_step] += total;
    }
  }
}

template <class W, int kRows>
HWY_INLINE void dot_rows(const std::byte* w, std::int64_t w_stride, std::int64_t columns, const float* x,
                         std::int64_t x_stride, std::int64_t tokens, float* y, std::int64_t y_step,
                         std::int64_t y_stride) {
  std::int64_t t = 0;
  const auto tile = [&](auto count) HWY_ATTR {
    dot_tile<W, kRows, count.value>(w, w_stride, columns, x + t * x_stride, x_stride, y + t * y_stride,
                                    y_step, y_stride);
  };
  for (; t + 3 <= tokens; t += 3) tile(std::integral_constant<int, 3>());
  if (tokens - t == 2) tile(std::integral_constant<int, 2>());
  if (tokens - t == 1) tile(std::integral_constant<int, 1>());
}

// Four streams, each through a quarter of the rows: a CPU follows a few long streams through memory better
// than one, and far better than many short ones, such as four neighbouring rows at a time.
void dot(DType dtype, const std::byte* w, std::int64_t w_stride, std::int64_t columns, const float* x,
         std::int64_t x_stride, std::int64_t tokens, PanelOut out) {
  with_type(dtype, [&](auto type) HWY_ATTR {
    using W = decltype(type);
    const int quarter = out.rows / 4;
    for (int r = 0; r < quarter; ++r) {
      dot_rows<W, 4>(w + r * w_stride, quarter * w_stride, columns, x, x_stride, tokens, out.y + r, quarter,
                     out.stride);
    }
    for (int r = 4 * quarter; r < out.rows; ++r) {
      dot_rows<W, 1>(w + r * w_stride, w_stride, columns, x, x_stride, tokens, out.y + r, 1, out.stride);
    }
  });
}

// ---- many tokens

template <class W>
void transpose_elements(const std::byte* w, std::int64_t w_stride, int rows, std::int64_t columns,
                        float* panel) {
  for (int r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < columns; ++k) {
      panel[k * kPanelRows + r] = W::one(w + r * w_stride + k * W::kBytes);
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
// Lanes 4i … 4i + 3 go to four neighbouring rows of column 4i of the panel.
template <class D>
HWY_INLINE void store_fours(D d, hn::Vec<D> v, float* panel) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(v, d, panel);
  } else {
    const hn::Half<D> half;
    store_fours(half, hn::LowerHalf(half, v), panel);
    store_fours(half, hn::UpperHalf(half, v), panel + hn::MaxLanes(half) * kPanelRows);
  }
}

// 4 rows x kLanes columns.
template <class W>
HWY_INLINE void transpose_tile(const std::byte* w, std::int64_t w_stride, float* panel) {
  const DF df;
  const hn::Repartition<double, DF> dd;
  const VF r0 = W::load(w), r1 = W::load(w + w_stride), r2 = W::load(w + 2 * w_stride),
           r3 = W::load(w + 3 * w_stride);
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(df, r0, r1)),
             low23 = hn::BitCast(dd, hn::InterleaveLower(df, r2, r3)),
             high01 = hn::BitCast(dd, hn::InterleaveUpper(df, r0, r1)),
             high23 = hn::BitCast(dd, hn::InterleaveUpper(df, r2, r3));
  store_fours(df, hn::BitCast(df, hn::InterleaveLower(dd, low01, low23)), panel);
  store_fours(df, hn::BitCast(df, hn::InterleaveUpper(dd, low01, low23)), panel + kPanelRows);
  store_fours(df, hn::BitCast(df, hn::InterleaveLower(dd, high01, high23)), panel + 2 * kPanelRows);
  store_fours(df, hn::BitCast(df, hn::InterleaveUpper(dd, high01, high23)), panel + 3 * kPanelRows);
}
#endif

void transpose(DType dtype, const std::byte* w, std::int64_t w_stride, int rows, std::int64_t columns,
               float* panel) {
  with_type(dtype, [&](auto type) HWY_ATTR {
    using W = decltype(type);
    int r = 0;
#if HWY_TARGET != HWY_SCALAR
    for (; r + 4 <= rows; r += 4) {
      std::int64_t k = 0;
      for (; k + kLanes <= columns; k += kLanes) {
        transpose_tile<W>(w + r * w_stride + k * W::kBytes, w_stride, panel + k * kPanelRows + r);
      }
      transpose_elements<W>(w + r * w_stride + k * W::kBytes, w_stride, 4, columns - k,
                            panel + k * kPanelRows + r);
    }
#endif
    transpose_elements<W>(w + r * w_stride, w_stride, rows - r, columns, panel + r);
  });
}

template <int kTokens>
HWY_INLINE void multiply_tile(const float* panel, std::int64_t columns, const float* x, std::int64_t x_stride,
                              PanelOut out) {
  const DF df;
  const bool whole = out.rows == kPanelRows;
  VF acc[kTokens][2];
  HWY_UNROLL(12)
  for (int t = 0; t < kTokens; ++t) {
    acc[t][0] = acc[t][1] = hn::Zero(df);
    hwy::Prefetch(out.y + t * out.stride);
  }
  for (std::int64_t k = 0; k < columns; ++k) {
    const VF w0 = hn::LoadU(df, panel + k * kPanelRows), w1 = hn::LoadU(df, panel + k * kPanelRows + kLanes);
    HWY_UNROLL(12)
    for (int t = 0; t < kTokens; ++t) {
      const VF v = hn::Set(df, x[t * x_stride + k]);
      acc[t][0] = hn::MulAdd(w0, v, acc[t][0]);
      acc[t][1] = hn::MulAdd(w1, v, acc[t][1]);
    }
  }
  HWY_UNROLL(12)
  for (int t = 0; t < kTokens; ++t) {
    float* y = out.y + t * out.stride;
    if (whole) {
      hn::StoreU(hn::Add(acc[t][0], hn::LoadU(df, y)), df, y);
      hn::StoreU(hn::Add(acc[t][1], hn::LoadU(df, y + kLanes)), df, y + kLanes);
    } else {
      HWY_ALIGN float sums[kPanelRows];
      hn::Store(acc[t][0], df, sums);
      hn::Store(acc[t][1], df, sums + kLanes);
      for (int r = 0; r < out.rows; ++r) y[r] += sums[r];
    }
  }
}

void multiply(const float* panel, std::int64_t columns, const float* x, std::int64_t x_stride,
              std::int64_t tokens, PanelOut out) {
  const auto advance = [&](int count) {
    x += count * x_stride;
    out.y += count * out.stride;
    tokens -= count;
  };
  while (tokens >= kTileTokens) {
    multiply_tile<kTileTokens>(panel, columns, x, x_stride, out);
    advance(kTileTokens);
  }
  while (tokens >= 4) {
    multiply_tile<4>(panel, columns, x, x_stride, out);
    advance(4);
  }
  while (tokens >= 2) {
    multiply_tile<2>(panel, columns, x, x_stride, out);
    advance(2);
  }
  if (tokens == 1) multiply_tile<1>(panel, columns, x, x_stride, out);
}

FloatKernels choose_float_kernels() {
  return {hwy::TargetName(HWY_TARGET), kPanelRows, dot, transpose, multiply};
}

}  // namespace HWY_NAMESPACE
}  // namespace snug::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace snug::kernels::cpu {
HWY_EXPORT(choose_float_kernels);

FloatKernels float_kernels() {
  return HWY_DYNAMIC_DISPATCH(choose_float_kernels)();
}
}  // namespace snug::kernels::cpu
#endif  // HWY_ONCE
