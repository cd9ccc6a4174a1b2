#include "kernels/ceiling.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

#include "base/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/ceiling.cc"
#include "kernels/cpu/targets.h"
// Highway compiles this file once for each instruction set.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace snug::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

float SumOf(const float* x, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (std::int64_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    a = hn::Add(a, hn::Load(d, x + i));
    b = hn::Add(b, hn::Load(d, x + i + lanes));
    c = hn::Add(c, hn::Load(d, x + i + 2 * lanes));
    e = hn::Add(e, hn::Load(d, x + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

// `rounds` of ten independent fused multiply-adds; returns floating point operations done.
double MultiplyAdds(std::int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, *sink), y = hn::Set(d, 0.5f);
  auto a0 = x, a1 = x, a2 = x, a3 = x, a4 = x, a5 = x, a6 = x, a7 = x, a8 = x, a9 = x;
  for (std::int64_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, y, x), a1 = hn::MulAdd(a1, y, x), a2 = hn::MulAdd(a2, y, x),
    a3 = hn::MulAdd(a3, y, x);
    a4 = hn::MulAdd(a4, y, x), a5 = hn::MulAdd(a5, y, x), a6 = hn::MulAdd(a6, y, x),
    a7 = hn::MulAdd(a7, y, x);
    a8 = hn::MulAdd(a8, y, x), a9 = hn::MulAdd(a9, y, x);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)),
                           hn::Add(hn::Add(hn::Add(a4, a5), hn::Add(a6, a7)), hn::Add(a8, a9)));
  *sink = hn::GetLane(hn::SumOfLanes(d, sum));
  return 20.0 * static_cast<double>(rounds) * static_cast<double>(hn::Lanes(d));
}

}  // namespace snug::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace snug::kernels::cpu {
namespace {

HWY_EXPORT(SumOf);
HWY_EXPORT(MultiplyAdds);

double seconds(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Ceiling measure_ceiling(const Stream& stream) {
  constexpr std::int64_t kFloats = 64 << 20;  // 256 MiB
  constexpr int kRepeats = 5;
  const std::unique_ptr<float[]> memory(new float[kFloats]);
  std::fill(memory.get(), memory.get() + kFloats, 1.0f);
  Ceiling best;
  std::atomic<float> kept{0};  // so that the sums are not optimised away
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    stream.pool->parallel_for(kFloats, 1 << 20, [&](std::int64_t begin, std::int64_t end, int) {
      kept.fetch_add(HWY_DYNAMIC_DISPATCH(SumOf)(memory.get() + begin, end - begin));
    });
    best.read_gbps = std::max(best.read_gbps, static_cast<double>(kFloats) * 4e-9 / seconds(start));
  }
  constexpr std::int64_t kRounds = 4'000'000;
  for (int i = 0; i < kRepeats; ++i) {
    std::atomic<double> operations{0};
    const auto start = std::chrono::steady_clock::now();
    stream.pool->run([&](int) {
      float value = 0.25f;
      operations.fetch_add(HWY_DYNAMIC_DISPATCH(MultiplyAdds)(kRounds, &value));
      kept.fetch_add(value);
    });
    best.fma_tflops = std::max(best.fma_tflops, operations.load() * 1e-12 / seconds(start));
  }
  return best;
}

}  // namespace snug::kernels::cpu
#endif  // HWY_ONCE
