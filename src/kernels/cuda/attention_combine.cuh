// Adds up the splits of a single query token's context, in the block that finishes the last of them: for the
// attention kernels and the decode kernel.
#pragma once

#include "kernels/cuda/attention_parts.h"

namespace snug::kernels::cuda {

// Whether this block is the last of `splits` to arrive at `arrivals`: what the others wrote before they
// arrived is then visible to all its threads. The last one leaves the word zero for the next call. Every
// thread of the block calls it.
__device__ __forceinline__ bool arrives_last(std::uint32_t* arrivals, int splits) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(arrivals, 1U) + 1 == static_cast<std::uint32_t>(splits);
    if (last) *arrivals = 0;
    __threadfence();
  }
  __syncthreads();
  return last;
}

// One head's splits, by one warp, in their order: `all_stats` (splits) and `all_sums` (splits, head_dim), as
// AttentionCall has them. kAtOnce loads are under way at a time; they go past the L1 cache, which does not
// see what other multiprocessors wrote.
template <class T, int kWidth, int kAtOnce = 16>
__device__ __forceinline__ void combine_splits(const float2* all_stats, const float* all_sums, int splits,
                                               int head_dim, T* out, int lane) {
  constexpr int kParts = (max_splits(1) + 31) / 32;
  struct alignas(4 * kWidth) Column {
    float x[kWidth];
  };
  float weights[kParts], largest = kNothing, sum = 0;  // lane l has splits l, l + 32, ...
  float2 stats[kParts];
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int s = 32 * i + lane;
    stats[i] = s < splits ? __ldcg(all_stats + s) : float2{kNothing, 0};
    largest = fmaxf(largest, stats[i].x);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    weights[i] = exp2f(stats[i].x - reference_score(largest));
    sum += stats[i].y * weights[i];
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  const auto load = [](const float* from) {
    Column column;
    if constexpr (kWidth == 4) {
      const float4 x = __ldcg(reinterpret_cast<const float4*>(from));
      column = {x.x, x.y, x.z, x.w};
    } else if constexpr (kWidth == 2) {
      const float2 x = __ldcg(reinterpret_cast<const float2*>(from));
      column = {x.x, x.y};
    } else {
      column = {__ldcg(from)};
    }
    return column;
  };
  for (int begin = 0; begin < head_dim; begin += 32 * kWidth) {
    const int d = begin + lane * kWidth;
    const bool inside = d < head_dim;
    const float* own = all_sums + (inside ? d : 0);
    Column total = {};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      for (int from = 32 * part; from < min(splits, 32 * part + 32); from += kAtOnce) {
        Column loaded[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          loaded[i] = from + i < splits ? load(own + (from + i) * head_dim) : Column{};
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const float weight = __shfl_sync(~0u, weights[part], (from + i) % 32);
#pragma unroll
          for (int j = 0; j < kWidth; ++j) total.x[j] = fmaf(weight, loaded[i].x[j], total.x[j]);
        }
      }
    }
    if (!inside) continue;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) out[d + j] = static_cast<T>(total.x[j] / sum);
  }
}

}  // namespace snug::kernels::cuda
