// Attention against the machine's roof: GFLOP/s of prefill beside the multiply-add peak, GB/s of decode
// beside what reading memory gives. Usage: attention_bench [threads]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "core/dtype.h"
#include "kernels/attention.h"
#include "kernels/ceiling.h"
#include "kv/kv_cache.h"

namespace snug::bench {
namespace {

// The best of as many calls as fit in half a second: what the machine can do when nothing else runs.
template <class Fn>
double best_seconds(Fn&& fn) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  for (const auto begin = Clock::now(); Clock::now() - begin < std::chrono::milliseconds(500);) {
    const auto start = Clock::now();
    fn();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

struct Model {
  const char* name;
  int heads, kv_heads, head_dim;
};

// `layers` caches are cycled through, so that a decode step finds its KV in memory rather than in a CPU
// cache.
void measure(ThreadPool& pool, const Model& model, DType dtype, int context, int queries, int layers,
             double flops, double bytes) {
  const int block_size = 16, blocks = (context + block_size - 1) / block_size;
  kv::KvCache cache{.layers = layers,
                    .blocks = blocks,
                    .dtype = dtype,
                    .block_size = block_size,
                    .kv_heads = model.kv_heads,
                    .head_dim = model.head_dim};
  std::mt19937 rng(1);
  std::vector<std::byte> memory(static_cast<std::size_t>(cache.bytes()));
  std::normal_distribution<float> normal;
  std::vector<float> values(4099);
  for (float& x : values) x = normal(rng);
  for (std::size_t i = 0; i < memory.size() / size_of(dtype); ++i) {
    const float x = values[i % values.size()];
    const std::uint16_t half = dtype == DType::f16 ? f16_from_f32(x) : bf16_from_f32(x);
    std::memcpy(memory.data() + i * size_of(dtype),
                dtype == DType::f32 ? static_cast<const void*>(&x) : &half, size_of(dtype));
  }
  cache.base = memory.data();
  std::vector<std::int32_t> pages(static_cast<std::size_t>(blocks));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), rng);
  std::vector<float> q(static_cast<std::size_t>(queries * model.heads * model.head_dim)), out(q.size());
  for (float& x : q) x = normal(rng);
  const std::int64_t need = kernels::cpu::attention_workspace_bytes(model.heads, model.head_dim, pool.size());
  std::vector<std::byte> workspace(static_cast<std::size_t>(need) + 64);
  void* base = workspace.data();
  std::size_t space = workspace.size();
  std::align(64, static_cast<std::size_t>(need), base, space);
  const kv::SequenceView view{.page_table = pages.data(), .q_len = queries, .kv_len = context};
  const double seconds = best_seconds([&] {
    for (int layer = 0; layer < layers; ++layer) {
      kernels::cpu::attention({.stream = {.pool = &pool},
                               .q = q.data(),
                               .out = out.data(),
                               .heads = model.heads,
                               .scale = 1.0f / std::sqrt(static_cast<float>(model.head_dim)),
                               .kv = cache.layer(layer),
                               .sequences = {&view, 1},
                               .workspace = static_cast<std::byte*>(base),
                               .workspace_bytes = need});
    }
  });
  if (queries > 1) {
    // Pairs of (query, key) on or below the diagonal; two products of head_dim multiply-adds each.
    const double pairs = static_cast<double>(queries) * (context - queries) + queries * (queries + 1.0) / 2;
    const double done = 4.0 * pairs * model.heads * model.head_dim * layers;
    std::printf("%-12s %-8s prefill %5d        %8.2f ms  %6.1f GFLOP/s  %3.0f%% of peak\n", model.name,
                name_of(dtype), queries, seconds * 1e3, done / seconds * 1e-9, 100 * done / seconds / flops);
  } else {
    const double read = static_cast<double>(cache.bytes());
    std::printf("%-12s %-8s decode at %5d x%2d %8.2f ms  %6.1f GB/s     %3.0f%% of memory\n", model.name,
                name_of(dtype), context, layers, seconds * 1e3, read / seconds * 1e-9,
                100 * read / seconds / bytes);
  }
}

}  // namespace
}  // namespace snug::bench

int main(int argc, char** argv) {
  using namespace snug;
  ThreadPool pool(argc > 1 ? std::atoi(argv[1]) : available_cores());
  const kernels::cpu::Ceiling ceiling = kernels::cpu::measure_ceiling({.pool = &pool});
  const double flops = ceiling.fma_tflops * 1e12, bytes = ceiling.read_gbps * 1e9;
  std::printf("%d threads: multiply-add peak %.1f GFLOP/s, memory %.1f GB/s\n", pool.size(), flops * 1e-9,
              ceiling.read_gbps);
  const bench::Model models[] = {{"qwen2.5-0.5b", 14, 2, 64}, {"smollm2-135m", 9, 3, 64}, {"mha", 8, 8, 128}};
  for (const auto& model : models) {
    for (const int tokens : {512, 2048}) {
      bench::measure(pool, model, DType::f16, tokens, tokens, 1, flops, bytes);
    }
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      bench::measure(pool, model, dtype, 4096, 1, 24, flops, bytes);
    }
  }
  return 0;
}
