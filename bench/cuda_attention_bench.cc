// Attention on a GPU beside its ceilings: TFLOP/s of causal prefill beside the largest matrix product that
// cuBLASLt makes, TB/s of decode beside what reading memory gives. Usage: cuda_attention_bench
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "core/gpu.h"
#include "kernels/attention.h"
#include "kernels/ceiling.h"
#include "kernels/linear.h"

namespace snug::bench {
namespace {

constexpr int kHeads = 28, kKvHeads = 4, kHeadDim = 128, kBlock = 16;  // of Qwen2.5-7B
constexpr std::int64_t kArena = 2ll << 30;

// Device memory, handed out in order and given back all at once.
class Arena {
 public:
  Arena() : base_(gpu_allocate(kArena)) {
    if (base_ == nullptr) throw std::runtime_error("the GPU has no 2 GiB left");
  }
  ~Arena() { gpu_free(base_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* take(std::int64_t bytes) {
    std::byte* at = base_ + used_;
    used_ += (bytes + 255) / 256 * 256;
    if (used_ > kArena) throw std::runtime_error("2 GiB do not suffice");
    return at;
  }
  void reset() { used_ = 0; }
  std::byte* base() const { return base_; }

 private:
  std::byte* base_;
  std::int64_t used_ = 0;
};

// Normal values in bfloat16: what the tensor cores are given decides how fast they may run.
void fill(Gpu& gpu, void* to, std::int64_t count) {
  std::vector<std::uint16_t> values(1 << 22);
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (auto& v : values) v = bf16_from_f32(normal(rng));
  const auto all = std::ssize(values);
  for (std::int64_t done = 0; done < count; done += all) {
    gpu.upload(static_cast<std::uint16_t*>(to) + done, values.data(), std::min(all, count - done) * 2);
  }
  gpu.synchronize();
}

// The median time of a call, of ten rounds of as many as take about 20 ms.
template <class Fn>
double seconds(Gpu& gpu, Fn&& enqueue) {
  using Clock = std::chrono::steady_clock;
  const auto round = [&](int calls) {
    gpu.synchronize();
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) enqueue(i);
    gpu.synchronize();
    return std::chrono::duration<double>(Clock::now() - start).count() / calls;
  };
  round(2);
  const int calls = std::clamp(static_cast<int>(0.02 / round(2)), 2, 2000);
  std::vector<double> times;
  for (int i = 0; i < 10; ++i) times.push_back(round(calls));
  std::nth_element(times.begin(), times.begin() + 5, times.end());
  return times[5];
}

double product_tflops(Gpu& gpu, const Stream& stream, Arena& arena) {
  constexpr std::int64_t kSize = 8192;
  arena.reset();
  std::byte *x = arena.take(kSize * kSize * 2), *w = arena.take(kSize * kSize * 2),
            *y = arena.take(kSize * kSize * 2);
  fill(gpu, x, kSize * kSize);
  fill(gpu, w, kSize * kSize);
  const kernels::LinearOutput out[] = {{{quant::Format::bf16, kernels::Layout::rows, kSize, kSize, w},
                                        nullptr,
                                        Values{y, DType::bf16},
                                        kSize}};
  const double s = seconds(gpu, [&](int) {
    kernels::cuda::linear(
        {.stream = stream, .x = Values{x, DType::bf16}, .x_stride = kSize, .tokens = kSize, .outputs = out});
  });
  return 2.0 * kSize * kSize * kSize / s / 1e12;
}

// `queries` tokens at the end of a context of `context`, in `layers` caches that take turns.
double attention_seconds(Gpu& gpu, const Stream& stream, Arena& arena, int context, int queries, int layers) {
  arena.reset();
  const int pages = (context + kBlock - 1) / kBlock;
  const std::int64_t width = kHeads * kHeadDim, half = std::int64_t{pages} * kKvHeads * kBlock * kHeadDim;
  std::byte *q = arena.take(queries * width * 2), *out = arena.take(queries * width * 2);
  std::byte* cache = arena.take(half * 4 * layers);
  fill(gpu, q, queries * width);
  fill(gpu, cache, half * 2 * layers);
  std::vector<std::int32_t> table(static_cast<std::size_t>(pages));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(2));
  const std::vector<std::int32_t> numbers = {0, queries, context};
  const std::vector<std::int32_t> rows(static_cast<std::size_t>(queries), 0);
  auto* device = reinterpret_cast<std::int32_t*>(arena.take((pages + 3 + queries) * 4));
  gpu.upload(device, table.data(), pages * 4);
  gpu.upload(device + pages, numbers.data(), 12);
  gpu.upload(device + pages + 3, rows.data(), queries * 4);
  const kv::SequenceView view = {table.data(), 0, queries, context};
  const std::int64_t bytes = kernels::cuda::attention_workspace_bytes(kHeads, kHeadDim, 1);
  kernels::AttentionParams p = {
      .stream = stream,
      .q = Values{q, DType::bf16},
      .out = Values{out, DType::bf16},
      .heads = kHeads,
      .scale = 0.08838835f,
      .kv = {.dtype = DType::bf16, .block_size = kBlock, .kv_heads = kKvHeads, .head_dim = kHeadDim},
      .sequences = {&view, 1},
      .device = {.page_tables = device,
                 .page_stride = pages,
                 .q_begin = device + pages,
                 .q_len = device + pages + 1,
                 .kv_len = device + pages + 2,
                 .row_sequence = device + pages + 3},
      .workspace = arena.take(bytes),
      .workspace_bytes = bytes,
      .arrivals = reinterpret_cast<std::uint32_t*>(arena.take(kHeads * 4))};
  gpu.fill(reinterpret_cast<std::byte*>(p.arrivals), 0, kHeads * 4);
  return seconds(gpu, [&](int call) {
    p.kv.k = cache + half * 4 * (call % layers);
    p.kv.v = cache + half * 4 * (call % layers) + half * 2;
    kernels::cuda::attention(p);
  });
}

int run() {
  auto opened = Gpu::open();
  if (!opened.ok()) {
    std::fprintf(stderr, "cuda_attention_bench: %s\n", opened.error().to_string().c_str());
    return 2;
  }
  Gpu& gpu = **opened;
  const Stream stream = {.backend = Backend::cuda, .gpu = gpu.stream()};
  Arena arena;
  gpu.set_blas_workspace(gpu_allocate(Gpu::blas_workspace_bytes()));  // until the program ends
  fill(gpu, arena.base(), kArena / 2);
  const double read = kernels::cuda::measure_read_gbps(stream, arena.base(), kArena) / 1000;
  const double product = product_tflops(gpu, stream, arena);
  std::printf("%s, %d/%d heads of %d, bfloat16; ceilings: %.0f TFLOP/s, %.2f TB/s\n", gpu.info().name.c_str(),
              kHeads, kKvHeads, kHeadDim, product, read);
  for (const int tokens : {512, 1024, 2048, 4096, 8192, 16384, 32768}) {
    const double flops = 2.0 * kHeads * kHeadDim * tokens * (tokens + 1.0);
    const double rate = flops / attention_seconds(gpu, stream, arena, tokens, tokens, 1) / 1e12;
    std::printf("prefill %6d tokens  %7.1f TFLOP/s  %.2f\n", tokens, rate, rate / product);
  }
  for (const int context : {512, 4096, 32768, 131072}) {
    const double bytes = 4.0 * kKvHeads * kHeadDim * context;
    const int layers = static_cast<int>(std::clamp(1e9 / bytes, 4.0, 28.0));
    const double rate = bytes / attention_seconds(gpu, stream, arena, context, 1, layers) / 1e12;
    std::printf("decode  %6d context %7.2f TB/s     %.2f\n", context, rate, rate / read);
  }
  return 0;
}

}  // namespace
}  // namespace snug::bench

int main() {
  try {
    return snug::bench::run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "cuda_attention_bench: %s\n", e.what());
    return 1;
  }
}
