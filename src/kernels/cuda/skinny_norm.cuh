// The RMS norm of the residual stream (Zhang and Sennrich 2019) as input of a skinny product.
//
// Of one token every block makes it for itself, which costs less than waiting for another kernel. Of several,
// that would be too much to read, so a kernel of its own makes them, in the same order of additions: the same
// bits.
#pragma once

#include "kernels/cuda/skinny_args.cuh"
#include "kernels/cuda/vector.cuh"

namespace snug::kernels::cuda {

inline constexpr int kNormColumns = 8192;  // at most

// One token's norm by a block: the sum of the residual stream and what is pending to `next` (where `writes`),
// its norm as bfloat16 to `to`, which may be what is pending. Ends without a barrier.
template <int Warps>
__device__ __forceinline__ void norm_token(const SkinnyArgs& a, int token, __nv_bfloat16* to,
                                           bool all_of_next, float* sums) {
  constexpr int kThreads = Warps * 32, kNormQuads = kNormColumns / (4 * kThreads);  // of columns, of a thread
  constexpr int kNormBatch = Warps > 8 ? 2 : 4;  // of them that are loaded at a time
  const int quads = a.cols / 4;
  const std::int64_t row = static_cast<std::int64_t>(token) * a.cols;
  const float4 zero = {0, 0, 0, 0};
  float4 h[kNormQuads];
  float sum = 0;
#pragma unroll
  for (int first = 0; first < kNormQuads; first += kNormBatch) {
    if (first * kThreads >= quads) break;
    float4 part0[kNormBatch], part1[kNormBatch];
#pragma unroll
    for (int j = 0; j < kNormBatch; ++j) {
      const int i = threadIdx.x + (first + j) * kThreads;
      h[first + j] = part0[j] = part1[j] = zero;
      if (i < quads) {
        h[first + j] = load_l2(a.residual + row + i * 4);
        if (a.pending_count > 0) part0[j] = load_l2(a.pending + row + i * 4);
        if (a.pending_count > 1) part1[j] = load_l2(a.pending + a.pending_stride + row + i * 4);
      }
    }
#pragma unroll
    for (int j = 0; j < kNormBatch; ++j) {
      const int i = threadIdx.x + (first + j) * kThreads;
      if (i >= quads) break;
      float4 v = plus(plus(h[first + j], part0[j]), part1[j]);
      for (int p = 2; p < a.pending_count; ++p) {
        v = plus(v, load_l2(a.pending + p * a.pending_stride + row + i * 4));
      }
      if (a.pending_count > 0) {
        if (a.pending_bias != nullptr) v = plus(v, *reinterpret_cast<const float4*>(a.pending_bias + i * 4));
        if (all_of_next || i % gridDim.x == blockIdx.x) reinterpret_cast<float4*>(a.next + row)[i] = v;
      }
      h[first + j] = v;
      sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
  }
  const float factor = norm_factor<Warps>(sum, sums, a.cols, a.eps);
#pragma unroll
  for (int j = 0; j < kNormQuads; ++j) {
    const int i = threadIdx.x + j * kThreads;
    if (i >= quads) break;
    reinterpret_cast<uint2*>(to)[i] = normed(h[j], factor, *reinterpret_cast<const float4*>(a.norm + i * 4));
  }
}

// Rows of x into shared memory.
template <int Threads>
__device__ __forceinline__ void copy_rows(const SkinnyArgs& a, std::byte* shared) {
  const int pieces = a.cols / 8;
  for (int token = 0; token < a.tokens; ++token) {
    const auto* from = reinterpret_cast<const std::byte*>(a.x + token * a.x_stride);
    std::byte* to = shared + a.staged + token * a.staged_row;
    for (int i = threadIdx.x; i < pieces; i += Threads) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                       static_cast<std::uint32_t>(__cvta_generic_to_shared(to + i * 16))),
                   "l"(from + i * 16)
                   : "memory");
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace snug::kernels::cuda
