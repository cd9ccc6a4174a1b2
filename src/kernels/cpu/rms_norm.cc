#include "kernels/cpu/targets.h"
//
#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "kernels/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace snug::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Four chains of float lanes over at most 1024 elements, those sums in double: the error stays near one
// rounding.
double SumOfSquares(const float* x, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  double total = 0;
  std::int64_t i = 0;
  while (i + 4 * lanes <= n) {
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    const std::int64_t end = std::min(n, i + 1024);
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      const auto x0 = hn::LoadU(d, x + i), x1 = hn::LoadU(d, x + i + lanes);
      const auto x2 = hn::LoadU(d, x + i + 2 * lanes), x3 = hn::LoadU(d, x + i + 3 * lanes);
      s0 = hn::MulAdd(x0, x0, s0);
      s1 = hn::MulAdd(x1, x1, s1);
      s2 = hn::MulAdd(x2, x2, s2);
      s3 = hn::MulAdd(x3, x3, s3);
    }
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)))));
  }
  for (; i < n; ++i) total += static_cast<double>(x[i]) * x[i];
  return total;
}

void RmsNormRow(const float* x, const float* weight, float* y, std::int64_t n, float eps) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const double mean = SumOfSquares(x, n) / static_cast<double>(n);
  const auto scale = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(eps)));
  const auto vscale = hn::Set(d, scale);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), vscale), hn::LoadU(d, weight + i)), d, y + i);
  }
  for (; i < n; ++i) y[i] = x[i] * scale * weight[i];
}

}  // namespace snug::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace snug::kernels {

HWY_EXPORT(RmsNormRow);

namespace cpu {

void rms_norm(const RmsNormParams& p) {
  const auto rows = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      HWY_DYNAMIC_DISPATCH(RmsNormRow)
      (p.x + (p.rows != nullptr ? p.rows[t] : t) * p.hidden, p.weight, p.y.f32() + t * p.hidden, p.hidden,
       p.eps);
    }
  };
  // Waking the workers costs about as much as this many elements.
  constexpr std::int64_t kElements = 16384;
  const std::int64_t grain = std::max<std::int64_t>(1, kElements / std::max<std::int64_t>(1, p.hidden));
  if (p.stream.pool == nullptr) return rows(0, p.tokens, 0);
  p.stream.pool->parallel_for(p.tokens, grain, rows);
}

}  // namespace cpu
}  // namespace snug::kernels
#endif
