// Linear products against the machine's roofs: one token (GB/s of weights beside what reading memory gives)
// and many (GFLOP/s beside the peak of multiply-adds and of byte products). Best of several short runs.
// Usage: linear_bench [threads] [format or all] [tokens] [rows cols] [megabytes of weights]
#include "kernels/cpu/linear_targets.h"
//
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "core/dtype.h"
#include "kernels/ceiling.h"
#include "kernels/linear.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../bench/linear_bench.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "kernels/cpu/linear_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace snug::kernels::cpu::HWY_NAMESPACE {

// Eight independent chains of byte products and sums, as 4-bit codes use them; returns the operations done.
double ByteProducts(std::int64_t rounds, int* sink) {
#if HWY_TARGET == HWY_SCALAR
  *sink = static_cast<int>(rounds);
  return 0;
#else
  const VU8 w = hn::Set(DU8(), static_cast<std::uint8_t>(*sink));
  VI8 x = hn::Set(DI8(), static_cast<std::int8_t>(*sink));
  DotUnsigned::Acc a0 = DotUnsigned::multiply(w, x), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0,
                   a7 = a0;
  const auto step = [&](DotUnsigned::Acc& acc) HWY_ATTR {
    x = in_order(x);  // a new value, as far as the compiler knows
    acc = DotUnsigned::multiply_add(acc, w, x);
  };
  for (std::int64_t r = 0; r < rounds; ++r) {
    step(a0), step(a1), step(a2), step(a3), step(a4), step(a5), step(a6), step(a7);
  }
  for (const DotUnsigned::Acc& acc : {a1, a2, a3, a4, a5, a6, a7}) a0 = DotUnsigned::add(a0, acc);
  *sink = hn::GetLane(DotUnsigned::widen(a0));
  return 2.0 * 8 * static_cast<double>(rounds) * 4 * kLanes;
#endif
}

// Ten independent chains of multiply-adds.
double MultiplyAdds(std::int64_t rounds, int* sink) {
#if HWY_TARGET == HWY_SCALAR
  *sink = static_cast<int>(rounds);
  return 0;
#else
  const DF df;
  const VF w = hn::Set(df, static_cast<float>(*sink) * 0.3f);
  VF acc[10];
  for (int i = 0; i < 10; ++i) acc[i] = hn::Set(df, static_cast<float>(i));
  for (std::int64_t r = 0; r < rounds; ++r) {
    HWY_UNROLL(10)
    for (int i = 0; i < 10; ++i) acc[i] = hn::MulAdd(acc[i], w, w);
  }
  for (int i = 1; i < 10; ++i) acc[0] = hn::Add(acc[0], acc[i]);
  *sink = static_cast<int>(hn::GetLane(acc[0]));
  return 2.0 * 10 * static_cast<double>(rounds) * kLanes;
#endif
}

}  // namespace snug::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace snug::kernels::cpu {
HWY_EXPORT(ByteProducts);
HWY_EXPORT(MultiplyAdds);
}  // namespace snug::kernels::cpu
namespace snug::kernels {
namespace {

// Time of this thread where it works alone (others on the machine do not count), else of the clock on the
// wall.
double seconds(int threads) {
  timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Giga-operations per second of `loop` on all workers, best of many short runs.
double peak_of(ThreadPool& pool, double (*loop)(std::int64_t, int*)) {
  double best = 0;
  for (int i = 0; i < 30; ++i) {
    std::vector<double> operations(static_cast<std::size_t>(pool.size()));
    const double begin = seconds(pool.size());
    pool.run([&](int worker) {
      int sink = 3;
      operations[static_cast<std::size_t>(worker)] = loop(300000, &sink);
    });
    double sum = 0;
    for (const double o : operations) sum += o;
    best = std::max(best, sum / (seconds(pool.size()) - begin));
  }
  return best * 1e-9;
}

struct Weights {
  std::vector<std::byte> data;
  std::vector<WeightView>
      views;  // of several matrices of one shape, so that they come from memory, not from a cache
};

Weights make_weights(quant::Format format, std::int64_t rows, std::int64_t cols, std::int64_t megabytes,
                     ThreadPool& pool) {
  // A small part is encoded and repeated: the kernels do not look at values.
  std::vector<float> values(static_cast<std::size_t>(cols * 16));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = random_normal(1, 2, i);
  const std::int64_t row_bytes = quant::bytes_of(format, cols);
  std::vector<std::byte> source(static_cast<std::size_t>(row_bytes * rows));
  quant::info(format).encode(values.data(), source.data(), cols * 16);
  for (std::int64_t r = 16; r < rows; ++r) {
    std::memcpy(source.data() + r * row_bytes, source.data() + r % 16 * row_bytes,
                static_cast<std::size_t>(row_bytes));
  }
  WeightView view{format, Layout::rows, rows, cols, source.data()};
  const std::int64_t packed = cpu::packed_bytes(format, rows, cols);
  const std::int64_t bytes = packed != 0 ? packed : static_cast<std::int64_t>(source.size());
  const std::int64_t copies = std::max<std::int64_t>(1, (megabytes << 20) / bytes);
  Weights w;
  w.data.resize(static_cast<std::size_t>(copies * bytes + 64));
  std::byte* at = w.data.data() + (64 - reinterpret_cast<std::uintptr_t>(w.data.data()) % 64) % 64;
  for (std::int64_t i = 0; i < copies; ++i, at += bytes) {
    if (packed != 0) {
      cpu::pack_rows({Backend::cpu, &pool}, view, at);
    } else {
      std::memcpy(at, source.data(), source.size());
    }
    w.views.push_back({format, packed != 0 ? Layout::packed : Layout::rows, rows, cols, at});
  }
  return w;
}

// Best seconds of one product.
double time_product(const Weights& w, std::int64_t tokens, ThreadPool& pool, Precision precision) {
  const std::int64_t rows = w.views[0].rows, cols = w.views[0].cols;
  std::vector<float> x(static_cast<std::size_t>(tokens * cols)), y(static_cast<std::size_t>(tokens * rows));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = random_normal(3, 4, i);
  std::vector<std::byte> store(
      static_cast<std::size_t>(cpu::linear_workspace_bytes(tokens, cols, pool.size()) + 64));
  std::byte* workspace = store.data() + (64 - reinterpret_cast<std::uintptr_t>(store.data()) % 64) % 64;
  double best = 1e9;
  std::size_t next = 0;
  const double stop = seconds(pool.size()) + 0.4;
  const int calls = tokens > 1 ? 1 : 16;
  while (seconds(pool.size()) < stop) {
    const double begin = seconds(pool.size());
    for (int i = 0; i < calls; ++i) {
      const LinearOutput out{w.views[next++ % w.views.size()], nullptr, y.data(), rows};
      cpu::linear({{Backend::cpu, &pool},
                   x.data(),
                   cols,
                   tokens,
                   {&out, 1},
                   precision,
                   workspace,
                   static_cast<std::int64_t>(store.size()) - 64});
    }
    best = std::min(best, (seconds(pool.size()) - begin) / calls);
  }
  return best;
}

int run(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : available_cores();
  const std::string only = argc > 2 ? argv[2] : "all";
  const std::int64_t many = argc > 3 ? std::atoi(argv[3]) : 512;
  const std::int64_t megabytes = argc > 6 ? std::atoi(argv[6]) : 128;
  ThreadPool pool(threads);
  const cpu::Ceiling ceiling = cpu::measure_ceiling({Backend::cpu, &pool});
  const double fma = peak_of(pool, HWY_DYNAMIC_DISPATCH(cpu::MultiplyAdds));
  const double bytes = peak_of(pool, HWY_DYNAMIC_DISPATCH(cpu::ByteProducts));
  std::printf("%s, %d threads: reads %.1f GB/s, multiply-adds %.0f GFLOP/s, byte products %.0f GOP/s\n",
              cpu::target_name(), threads, ceiling.read_gbps, fma, bytes);
  std::printf("%-8s %12s | %9s %6s | %9s %8s %8s | %9s\n", "format", "rows x cols", "GB/s", "ratio",
              "GFLOP/s", "/ fma", "/ bytes", "pack GB/s");
  for (const quant::FormatInfo& info : quant::all_formats()) {
    if (only != "all" && only != info.name) continue;
    std::int64_t shapes[][2] = {{4864, info.block_elems == 256 ? 1024 : 896}, {896, 4864}};
    if (argc > 5)
      shapes[0][0] = shapes[1][0] = std::atoi(argv[4]), shapes[0][1] = shapes[1][1] = std::atoi(argv[5]);
    for (const auto& shape : shapes) {
      const double begin = seconds(1);
      const Weights w = make_weights(info.format, shape[0], shape[1], megabytes, pool);
      const double weight_bytes = static_cast<double>(quant::bytes_of(info.format, shape[0] * shape[1]));
      const double pack = seconds(1) - begin;
      const double one = time_product(w, 1, pool, Precision::fast);
      const double gflops = 2e-9 * static_cast<double>(shape[0] * shape[1] * many) /
                            time_product(w, many, pool, Precision::fast);
      std::printf("%-8s %5lld x %4lld | %9.1f %6.2f | %9.0f %8.2f %8.2f | %9.2f\n", info.name,
                  static_cast<long long>(shape[0]), static_cast<long long>(shape[1]),
                  1e-9 * weight_bytes / one, 1e-9 * weight_bytes / one / ceiling.read_gbps, gflops,
                  gflops / fma, gflops / bytes,
                  1e-9 * weight_bytes * static_cast<double>(w.views.size()) / pack);
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace snug::kernels

int main(int argc, char** argv) {
  return snug::kernels::run(argc, argv);
}
#endif  // HWY_ONCE
