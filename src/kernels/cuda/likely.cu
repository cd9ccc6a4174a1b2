// The most likely tokens by radix selection: how many logits there are of each upper half of the bits says in
// which half the last one wanted lies, the same of its lower half where the bound is, and a third pass
// gathers what is not below the bound. Order keys are 24 bits; what shares them with the last one comes
// along.
#include "kernels/likely.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/order.cuh"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 256, kPerThread = 16, kChunk = kThreads * kPerThread;
constexpr int kBits = 12, kBins = 1 << kBits;

struct RowHistograms {
  unsigned upper[kBins];
  unsigned lower[kBins];  // of logits in the upper bin where the bound lies
};

struct Bound {
  unsigned bin;    // where the wanted-th largest lies
  unsigned above;  // how many lie in bins above it
};

// For every thread of the block, from a histogram that is complete.
__device__ __forceinline__ Bound find_bound(const unsigned* bins, unsigned wanted) {
  __shared__ unsigned counts[kThreads];
  __shared__ Bound found;
  constexpr int kOwn = kBins / kThreads;
  // Thread 0 has the highest bins.
  const int first = kBins - (static_cast<int>(threadIdx.x) + 1) * kOwn;
  unsigned own[kOwn], count = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) count += own[i] = __ldcg(bins + first + i);
  counts[threadIdx.x] = count;
  if (threadIdx.x == 0) found = {0, 0};  // fewer than wanted: all of them
  __syncthreads();
  unsigned above = 0;
  for (unsigned i = 0; i < threadIdx.x; ++i) above += counts[i];
  if (above < wanted && above + count >= wanted) {
    for (int i = kOwn - 1; i >= 0; --i) {
      if (above + own[i] >= wanted) {
        found = {static_cast<unsigned>(first + i), above};
        break;
      }
      above += own[i];
    }
  }
  __syncthreads();
  const Bound bound = found;
  __syncthreads();
  return bound;
}

template <class Fn>
__device__ __forceinline__ void for_chunk(const float* row, unsigned usable, Fn&& fn) {
#pragma unroll 4
  for (int i = 0; i < kPerThread; ++i) {
    const unsigned id = blockIdx.x * kChunk + i * kThreads + threadIdx.x;
    if (id < usable) fn(row[id], id);
  }
}

// kPass 0: upper halves; 1: lower halves.
template <int kPass>
__global__ void __launch_bounds__(kThreads)
    count_kernel(const float* logits, std::int64_t vocab, unsigned usable, RowHistograms* rows) {
  __shared__ unsigned bins[kBins];
  RowHistograms& histograms = rows[blockIdx.y];
  for (int i = threadIdx.x; i < kBins; i += kThreads) bins[i] = 0;
  __syncthreads();
  wait_for_previous();
  unsigned upper = 0;
  if constexpr (kPass == 1) upper = find_bound(histograms.upper, kLikelyTokens).bin;
  for_chunk(logits + blockIdx.y * vocab, usable, [&](float x, unsigned) {
    const unsigned key = order_of(x) >> (32 - 2 * kBits);
    if (kPass == 0) {
      atomicAdd(bins + (key >> kBits), 1u);
    } else if (key >> kBits == upper) {
      atomicAdd(bins + (key & (kBins - 1)), 1u);
    }
  });
  __syncthreads();
  unsigned* to = kPass == 0 ? histograms.upper : histograms.lower;
  for (int i = threadIdx.x; i < kBins; i += kThreads) {
    if (bins[i] != 0) atomicAdd(to + i, bins[i]);
  }
}

__global__ void __launch_bounds__(kThreads)
    gather_kernel(const float* logits, std::int64_t vocab, unsigned usable, const RowHistograms* rows,
                  LikelyTokens* all) {
  wait_for_previous();
  const RowHistograms& histograms = rows[blockIdx.y];
  const Bound upper = find_bound(histograms.upper, kLikelyTokens);
  const Bound lower = find_bound(histograms.lower, kLikelyTokens - upper.above);
  const unsigned bound = upper.bin << kBits | lower.bin;
  LikelyTokens& likely = all[blockIdx.y];
  for_chunk(logits + blockIdx.y * vocab, usable, [&](float x, unsigned id) {
    if (order_of(x) >> (32 - 2 * kBits) < bound) return;
    const int at = atomicAdd(&likely.count, 1);
    if (at < kLikelyRoom) likely.tokens[at] = {x, static_cast<std::int32_t>(id)};
  });
}

}  // namespace

std::int64_t likely_workspace_bytes(std::int64_t rows) {
  return rows * static_cast<std::int64_t>(sizeof(RowHistograms));
}

void likely(const LikelyParams& p) {
  if (p.rows == 0) return;
  const std::int64_t usable = std::min(p.usable_vocab, p.vocab);
  if (usable <= 0 || usable > INT32_MAX - kChunk) throw std::runtime_error("likely: no token or too many");
  if (p.rows > 65535) throw std::runtime_error("likely: more than 65535 rows");
  if (p.workspace_bytes < likely_workspace_bytes(p.rows)) {
    throw std::runtime_error("likely: the workspace is too small");
  }
  auto* rows = reinterpret_cast<RowHistograms*>(p.workspace);
  const cudaStream_t stream = stream_of(p.stream);
  check(cudaMemsetAsync(rows, 0, static_cast<std::size_t>(likely_workspace_bytes(p.rows)), stream), "likely");
  check(cudaMemset2DAsync(p.likely, sizeof(LikelyTokens), 0, sizeof(std::int32_t),
                          static_cast<std::size_t>(p.rows), stream),
        "likely");
  const dim3 grid(static_cast<unsigned>((usable + kChunk - 1) / kChunk), static_cast<unsigned>(p.rows));
  const auto last = static_cast<unsigned>(usable);
  launch(p.stream, count_kernel<0>, grid, dim3(kThreads), 0, p.logits, p.vocab, last, rows);
  launch(p.stream, count_kernel<1>, grid, dim3(kThreads), 0, p.logits, p.vocab, last, rows);
  launch(p.stream, gather_kernel, grid, dim3(kThreads), 0, p.logits, p.vocab, last,
         static_cast<const RowHistograms*>(rows), p.likely);
}

}  // namespace snug::kernels::cuda
