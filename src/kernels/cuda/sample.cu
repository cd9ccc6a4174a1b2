// The most likely token of each row and its log-probability, in two kernels: what a softmax needs, chunk by
// chunk, and a block a row that puts the chunks together in their order. How a row is cut depends on the
// vocabulary alone.
//
// exp(logit - highest) is float32 and added in float32 within a thread, in float64 beyond: the
// log-probability may differ from the host's, which is float64 throughout, in the last bits of a float32. The
// token does not.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/order.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/sample.h"

namespace snug::kernels::cuda {
namespace {

using u64 = unsigned long long;

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kRuns = 2, kRun = 4;  // a thread's logits in a chunk
constexpr int kChunk = kThreads * kRuns * kRun;
constexpr float kNothing = -INFINITY;

// What one chunk of a row says about it.
struct ChunkStats {
  double sum;  // Σ exp(logit - highest)
  u64 top;     // rank_of the most likely
  u64 bad;     // NaN or +inf turned up
};

// The most likely token, of equal ones the lowest id, has the largest of these.
__device__ __forceinline__ u64 rank_of(float x, unsigned id) {
  return (static_cast<u64>(order_of(x)) << 32) | ~id;
}
__device__ __forceinline__ float logit_of(u64 rank) {
  return value_of(static_cast<unsigned>(rank >> 32));
}

// For every thread: the block's largest, and the block's sum in a fixed order.
__device__ __forceinline__ u64 block_max(u64 x) {
  __shared__ u64 of_warp[kWarps];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = max(x, __shfl_xor_sync(~0u, x, step));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kWarps; ++i) x = max(x, of_warp[i]);
  return x;
}

__device__ __forceinline__ double block_sum(double x) {
  __shared__ double of_warp[kWarps];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) sum += of_warp[i];
  return sum;
}

// A block a chunk. kWide: rows suit accesses of 16 bytes.
template <bool kWide>
__global__ void __launch_bounds__(kThreads)
    stats_kernel(const float* logits, std::int64_t vocab, unsigned usable, ChunkStats* stats) {
  allow_next();
  wait_for_previous();
  const float* row = logits + blockIdx.y * vocab;
  float x[kRuns][kRun];
#pragma unroll
  for (int j = 0; j < kRuns; ++j) {
    const unsigned first = blockIdx.x * kChunk + (j * kThreads + threadIdx.x) * kRun;
    if (kWide && first + kRun <= usable) {
      load_run(row + first, x[j]);
    } else {
#pragma unroll
      for (int e = 0; e < kRun; ++e) x[j][e] = first + e < usable ? row[first + e] : kNothing;
    }
  }
  u64 top = rank_of(kNothing, 0);
  bool bad = false;
#pragma unroll
  for (int j = 0; j < kRuns; ++j) {
    const unsigned first = blockIdx.x * kChunk + (j * kThreads + threadIdx.x) * kRun;
#pragma unroll
    for (int e = 0; e < kRun; ++e) {
      bad |= !(x[j][e] < INFINITY);
      if (x[j][e] != kNothing) top = max(top, rank_of(x[j][e], first + e));
    }
  }
  top = block_max(top);
  const float highest = logit_of(top);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kRuns; ++j) {
#pragma unroll
    for (int e = 0; e < kRun; ++e) sum += x[j][e] == kNothing ? 0.0f : expf(x[j][e] - highest);
  }
  const double total = block_sum(sum);
  const int any_bad = __syncthreads_or(bad);
  if (threadIdx.x == 0) {
    stats[static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = {total, top,
                                                                             static_cast<u64>(any_bad)};
  }
}

// A block a row.
__global__ void __launch_bounds__(kThreads)
    choose_kernel(const ChunkStats* all, int chunks, std::int32_t* tokens, std::int32_t* ids,
                  float* logprobs) {
  allow_next();
  wait_for_previous();
  const ChunkStats* stats = all + static_cast<std::int64_t>(blockIdx.x) * chunks;
  ChunkStats own = {0, rank_of(kNothing, 0), 0};  // the first of the thread's chunks: most have no other
  if (threadIdx.x < chunks) own = stats[threadIdx.x];
  u64 top = own.top;
  bool bad = own.bad != 0;
  for (int i = threadIdx.x + kThreads; i < chunks; i += kThreads) {
    top = max(top, stats[i].top);
    bad |= stats[i].bad != 0;
  }
  top = block_max(top);
  const double highest = logit_of(top);
  const auto share = [&](const ChunkStats& chunk) {
    const float logit = logit_of(chunk.top);
    return logit == kNothing ? 0.0 : chunk.sum * exp(logit - highest);
  };
  double sum = share(own);
  for (int i = threadIdx.x + kThreads; i < chunks; i += kThreads) sum += share(stats[i]);
  sum = block_sum(sum);
  const bool unusable = __syncthreads_or(bad) || logit_of(top) == kNothing;
  if (threadIdx.x == 0) {
    const auto token = static_cast<std::int32_t>(~static_cast<unsigned>(top));
    tokens[blockIdx.x] = unusable ? -1 : token;
    if (ids != nullptr) ids[blockIdx.x] = unusable ? 0 : token;
    logprobs[blockIdx.x] = unusable ? NAN : static_cast<float>(-log(sum));  // its logit is the highest
  }
}

std::int64_t chunks_of(std::int64_t vocab) {
  return (vocab + kChunk - 1) / kChunk;
}

}  // namespace

std::int64_t sample_workspace_bytes(std::int64_t rows, std::int64_t vocab) {
  return rows * chunks_of(vocab) * static_cast<std::int64_t>(sizeof(ChunkStats));
}

void sample(const SampleParams& p) {
  if (p.rows == 0) return;
  const std::int64_t usable = std::min(p.usable_vocab, p.vocab);
  if (usable <= 0 || usable > INT32_MAX - kChunk)
    throw std::runtime_error("sample: no token or too many to choose from");
  if (p.rows > 65535) throw std::runtime_error("sample: more than 65535 rows");
  if (p.workspace_bytes < sample_workspace_bytes(p.rows, usable)) {
    throw std::runtime_error("sample: the workspace is too small");
  }
  const auto chunks = static_cast<int>(chunks_of(usable));
  auto* stats = reinterpret_cast<ChunkStats*>(p.workspace);
  const bool wide = p.vocab % kRun == 0 && aligned(p.logits, 16);
  launch(p.stream, wide ? stats_kernel<true> : stats_kernel<false>,
         dim3(static_cast<unsigned>(chunks), static_cast<unsigned>(p.rows)), dim3(kThreads), 0, p.logits,
         p.vocab, static_cast<unsigned>(usable), stats);
  launch(p.stream, choose_kernel, dim3(static_cast<unsigned>(p.rows)), dim3(kThreads), 0,
         static_cast<const ChunkStats*>(stats), chunks, p.tokens, p.ids, p.logprobs);
}

}  // namespace snug::kernels::cuda
