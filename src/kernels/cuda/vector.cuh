// Runs of neighbouring values between memory and registers: float32 in registers, float32 or bfloat16 in
// memory, up to 16 bytes an access.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

namespace snug::kernels::cuda {

using bf16 = __nv_bfloat16;

// Accesses of `bytes` at once suit this address (and, with strides as further arguments, these rows).
inline bool aligned(const void* data, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(bf16 x) {
  return __bfloat162float(x);
}

__device__ __forceinline__ float low_bf16(std::uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_bf16(std::uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
}

__device__ __forceinline__ std::uint32_t pair_of_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// Past L1: what another multiprocessor may have written meanwhile.
__device__ __forceinline__ float4 load_l2(const float* at) {
  return __ldcg(reinterpret_cast<const float4*>(at));
}
__device__ __forceinline__ float4 plus(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// The factor of a token's RMS norm from its threads' sums of squares. Ends behind a barrier of the block.
template <int kWarps>
__device__ __forceinline__ float norm_factor(float sum, float* warp_sums, int columns, float eps) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += warp_sums[w];
  return rsqrtf(sum / static_cast<float>(columns) + eps);
}

// h * factor * weight, as bfloat16.
__device__ __forceinline__ uint2 normed(const float4& h, float factor, const float4& weight) {
  return {pair_of_bf16(h.x * factor * weight.x, h.y * factor * weight.y),
          pair_of_bf16(h.z * factor * weight.z, h.w * factor * weight.w)};
}

// The address must suit accesses of min(16, N * sizeof(T)) bytes.
template <int N>
__device__ __forceinline__ void load_run(const float* at, float (&v)[N]) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float4 x = *reinterpret_cast<const float4*>(at + i);
      v[i] = x.x, v[i + 1] = x.y, v[i + 2] = x.z, v[i + 3] = x.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = at[i];
  }
}

template <int N>
__device__ __forceinline__ void load_run(const bf16* at, float (&v)[N]) {
  if constexpr (N % 8 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 8) {
      const uint4 x = *reinterpret_cast<const uint4*>(at + i);
      v[i] = low_bf16(x.x), v[i + 1] = high_bf16(x.x), v[i + 2] = low_bf16(x.y), v[i + 3] = high_bf16(x.y);
      v[i + 4] = low_bf16(x.z), v[i + 5] = high_bf16(x.z), v[i + 6] = low_bf16(x.w),
            v[i + 7] = high_bf16(x.w);
    }
  } else if constexpr (N == 4) {
    const uint2 x = *reinterpret_cast<const uint2*>(at);
    v[0] = low_bf16(x.x), v[1] = high_bf16(x.x), v[2] = low_bf16(x.y), v[3] = high_bf16(x.y);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = to_float(at[i]);
  }
}

template <int N>
__device__ __forceinline__ void store_run(float* at, const float (&v)[N]) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      *reinterpret_cast<float4*>(at + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) at[i] = v[i];
  }
}

template <int N>
__device__ __forceinline__ void store_run(bf16* at, const float (&v)[N]) {
  if constexpr (N % 8 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 8) {
      *reinterpret_cast<uint4*>(at + i) =
          make_uint4(pair_of_bf16(v[i], v[i + 1]), pair_of_bf16(v[i + 2], v[i + 3]),
                     pair_of_bf16(v[i + 4], v[i + 5]), pair_of_bf16(v[i + 6], v[i + 7]));
    }
  } else if constexpr (N == 4) {
    *reinterpret_cast<uint2*>(at) = make_uint2(pair_of_bf16(v[0], v[1]), pair_of_bf16(v[2], v[3]));
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) at[i] = __float2bfloat16_rn(v[i]);
  }
}

}  // namespace snug::kernels::cuda
