#include "kernels/cpu/targets.h"
//
#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "kernels/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/swiglu.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
//
#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace snug::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void SwigluPiece(const float* gate, const float* up, float* y, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // Only the exponential of a number that is not positive is taken, which cannot overflow:
  // sigmoid(g) = 1 / (1 + e) for g >= 0 and e / (1 + e) below, with e = exp(-|g|).
  const auto silu_times = [&](auto g, auto u) {
    const auto one = hn::Set(d, 1.0f);
    const auto e = ExpOfNonPositive(d, hn::Neg(hn::Abs(g)));
    const auto numerator = hn::IfThenElse(hn::Lt(g, hn::Zero(d)), e, one);
    return hn::Mul(hn::Mul(g, hn::Div(numerator, hn::Add(one, e))), u);
  };
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(silu_times(hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d, y + i);
  }
  if (i == n) return;
  // The last few go through the same arithmetic, so that a value does not depend on where it stands.
  HWY_ALIGN float tail[2][HWY_MAX_BYTES / sizeof(float)] = {};
  std::copy(gate + i, gate + n, tail[0]);
  std::copy(up + i, up + n, tail[1]);
  hn::StoreU(silu_times(hn::LoadU(d, tail[0]), hn::LoadU(d, tail[1])), d, tail[0]);
  std::copy(tail[0], tail[0] + (n - i), y + i);
}

}  // namespace snug::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace snug::kernels {

HWY_EXPORT(SwigluPiece);

namespace cpu {

void swiglu(const SwigluParams& p) {
  // One piece costs about as much as waking the workers.
  constexpr std::int64_t kPiece = 4096;
  const std::int64_t per_row = (p.intermediate + kPiece - 1) / kPiece;
  const auto pieces = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t t = i / per_row, column = i % per_row * kPiece;
      HWY_DYNAMIC_DISPATCH(SwigluPiece)
      (p.gate.f32() + t * p.stride + column, p.up.f32() + t * p.stride + column,
       p.y.f32() + t * p.y_stride + column, std::min(kPiece, p.intermediate - column));
    }
  };
  const std::int64_t count = p.tokens * per_row;
  if (p.stream.pool == nullptr) return pieces(0, count, 0);
  p.stream.pool->parallel_for(count, 2, pieces);
}

}  // namespace cpu
}  // namespace snug::kernels
#endif
