// The small ops between the products: each moves its data once, so what counts is wide accesses and, for a
// single token, as few dependent steps as possible.
#include <stdexcept>
#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/elementwise.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// The sum over the block in a fixed order, for every thread.
__device__ __forceinline__ float block_sum(float sum) {
  __shared__ float of_warp[kWarps];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) total += of_warp[i];
  return total;
}

// RMS norm (Zhang and Sennrich, 2019): a block a row. With kKeep > 0 a thread keeps kKeep runs of kRun values
// in registers; with 0 the row has any length and is read twice. A thread reads what it overwrites itself, so
// y may be x.
template <class T, int kRun, int kKeep>
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(const float* x, const float* weight, T* y,
                                                            int hidden, float eps, const std::int32_t* rows) {
  allow_next();
  constexpr int kKept = kKeep > 0 ? kKeep : 1;
  float w[kKept][kRun], v[kKept][kRun];
  if constexpr (kKeep > 0) {  // weights are nobody's result
#pragma unroll
    for (int j = 0; j < kKeep; ++j) {
      const int i = (j * kThreads + threadIdx.x) * kRun;
      if (i < hidden) load_run(weight + i, w[j]);
    }
  }
  wait_for_previous();
  const std::int64_t row = rows != nullptr ? rows[blockIdx.x] : blockIdx.x;
  const float* from = x + row * hidden;
  T* to = y + static_cast<std::int64_t>(blockIdx.x) * hidden;
  float sum = 0;
  if constexpr (kKeep > 0) {
#pragma unroll
    for (int j = 0; j < kKeep; ++j) {
      const int i = (j * kThreads + threadIdx.x) * kRun;
      if (i < hidden) load_run(from + i, v[j]);
    }
#pragma unroll
    for (int j = 0; j < kKeep; ++j) {
      if ((j * kThreads + threadIdx.x) * kRun >= hidden) break;
#pragma unroll
      for (int e = 0; e < kRun; ++e) sum = fmaf(v[j][e], v[j][e], sum);
    }
  } else {
    for (int i = threadIdx.x * kRun; i < hidden; i += kThreads * kRun) {
      load_run(from + i, v[0]);
#pragma unroll
      for (int e = 0; e < kRun; ++e) sum = fmaf(v[0][e], v[0][e], sum);
    }
  }
  const float scale = 1.0f / sqrtf(block_sum(sum) / static_cast<float>(hidden) + eps);
  if constexpr (kKeep > 0) {
#pragma unroll
    for (int j = 0; j < kKeep; ++j) {
      const int i = (j * kThreads + threadIdx.x) * kRun;
      if (i >= hidden) break;
#pragma unroll
      for (int e = 0; e < kRun; ++e) v[j][e] = v[j][e] * scale * w[j][e];
      store_run(to + i, v[j]);
    }
  } else {
    for (int i = threadIdx.x * kRun; i < hidden; i += kThreads * kRun) {
      load_run(from + i, v[0]);
      load_run(weight + i, w[0]);
#pragma unroll
      for (int e = 0; e < kRun; ++e) v[0][e] = v[0][e] * scale * w[0][e];
      store_run(to + i, v[0]);
    }
  }
}

template <class T>
void rms_norm_into(const RmsNormParams& p, T* y) {
  const int hidden = static_cast<int>(p.hidden);
  const auto run = [&](auto kernel) {
    launch(p.stream, kernel, dim3(static_cast<unsigned>(p.tokens)), dim3(kThreads), 0, p.x, p.weight, y,
           hidden, p.eps, p.rows);
  };
  constexpr int kPerBlock = 4 * kThreads;
  const bool wide = hidden % 4 == 0 && aligned(p.x, 16) && aligned(p.weight, 16) && aligned(y, 4 * sizeof(T));
  if (!wide) return run(rms_norm_kernel<T, 1, 0>);
  if (hidden <= kPerBlock) return run(rms_norm_kernel<T, 4, 1>);
  if (hidden <= 2 * kPerBlock) return run(rms_norm_kernel<T, 4, 2>);
  if (hidden <= 4 * kPerBlock) return run(rms_norm_kernel<T, 4, 4>);
  if (hidden <= 8 * kPerBlock) return run(rms_norm_kernel<T, 4, 8>);
  run(rms_norm_kernel<T, 4, 0>);
}

// bfloat16 keeps 8 bits, so the fast exponential and division are exact enough for it.
template <bool kFast>
__device__ __forceinline__ float silu(float x) {
  if constexpr (kFast) return __fdividef(x, 1.0f + __expf(-x));
  return x / (1.0f + expf(-x));
}

// SwiGLU (Shazeer, 2020). Runs are numbered row by row; a thread takes kUnroll of them.
template <class T, class Y, int kRun, int kUnroll>
__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(const T* gate, const T* up, Y* y, unsigned runs_per_row, std::int64_t runs,
                  std::int64_t stride, std::int64_t y_stride) {
  allow_next();
  wait_for_previous();
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kUnroll) + threadIdx.x;
  float g[kUnroll][kRun], u[kUnroll][kRun];
  std::int64_t to[kUnroll];
#pragma unroll
  for (int j = 0; j < kUnroll; ++j) {
    const std::int64_t run = first + j * kThreads;
    if (run >= runs) break;
    const std::int64_t row =
        runs <= 0xFFFFFFFFll ? static_cast<unsigned>(run) / runs_per_row : run / runs_per_row;
    const std::int64_t column = (run - row * runs_per_row) * kRun;
    load_run(gate + row * stride + column, g[j]);
    load_run(up + row * stride + column, u[j]);
    to[j] = row * y_stride + column;
  }
#pragma unroll
  for (int j = 0; j < kUnroll; ++j) {
    if (first + j * kThreads >= runs) break;
#pragma unroll
    for (int e = 0; e < kRun; ++e) g[j][e] = silu<std::is_same_v<Y, bf16>>(g[j][e]) * u[j][e];
    store_run(y + to[j], g[j]);
  }
}

template <class T, class Y>
void swiglu_of(const SwigluParams& p, const T* gate, const T* up, Y* y) {
  const auto run = [&]<int kRun, int kUnroll>() {
    const std::int64_t runs_per_row = p.intermediate / kRun, runs = runs_per_row * p.tokens;
    const std::int64_t blocks = (runs + kThreads * kUnroll - 1) / (kThreads * kUnroll);
    launch(p.stream, swiglu_kernel<T, Y, kRun, kUnroll>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads),
           0, gate, up, y, static_cast<unsigned>(runs_per_row), runs, p.stride, p.y_stride);
  };
  constexpr int kRun = 16 / sizeof(T);
  const bool wide = p.intermediate % kRun == 0 && p.stride % kRun == 0 && p.y_stride % kRun == 0 &&
                    aligned(gate, 16) && aligned(up, 16) && aligned(y, 16);
  if (!wide) return run.template operator()<1, 1>();
  // A thread with two runs has more in flight, but few tokens want as many threads as there are.
  if (p.tokens < 16) return run.template operator()<kRun, 1>();
  run.template operator()<kRun, 2>();
}

template <int kRun>
__global__ void __launch_bounds__(kThreads)
    settle_kernel(float* x, const float* parts, std::int64_t part_stride, int count, const float* bias,
                  unsigned hidden, std::int64_t values) {
  allow_next();
  wait_for_previous();
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kRun;
  if (i >= values) return;
  float v[kRun], part[kRun];
  load_run(x + i, v);
#pragma unroll 2
  for (int p = 0; p < count; ++p) {
    load_run(parts + p * part_stride + i, part);
#pragma unroll
    for (int e = 0; e < kRun; ++e) v[e] += part[e];
  }
  if (bias != nullptr) {
    load_run(bias + i % hidden, part);
#pragma unroll
    for (int e = 0; e < kRun; ++e) v[e] += part[e];
  }
  store_run(x + i, v);
}

}  // namespace

void rms_norm(const RmsNormParams& p) {
  if (p.tokens == 0) return;
  switch (p.y.dtype) {
    case DType::f32:
      return rms_norm_into(p, static_cast<float*>(p.y.data));
    case DType::bf16:
      return rms_norm_into(p, static_cast<bf16*>(p.y.data));
    default:
      throw std::runtime_error("rms_norm: the result is float32 or bfloat16");
  }
}

void swiglu(const SwigluParams& p) {
  if (p.tokens == 0 || p.intermediate == 0) return;
  const DType from = p.gate.dtype;
  if (p.up.dtype != from) throw std::runtime_error("swiglu: gate and up have one type");
  const auto with = [&]<class T>(const T* gate) {
    const T* up = static_cast<const T*>(p.up.data);
    if (p.y.dtype == DType::f32) return swiglu_of(p, gate, up, static_cast<float*>(p.y.data));
    if (p.y.dtype == DType::bf16) return swiglu_of(p, gate, up, static_cast<bf16*>(p.y.data));
    throw std::runtime_error("swiglu: the result is float32 or bfloat16");
  };
  if (from == DType::f32) return with(static_cast<const float*>(p.gate.data));
  if (from == DType::bf16) return with(static_cast<const bf16*>(p.gate.data));
  throw std::runtime_error("swiglu: gate and up are float32 or bfloat16");
}

void settle(const SettleParams& p) {
  Pending& pending = p.residual->pending;
  if (pending.count == 0) return;
  const std::int64_t values = p.tokens * p.hidden;
  if (values > 0) {
    const bool wide = p.hidden % 4 == 0 && pending.part_stride % 4 == 0 && aligned(p.residual->x, 16) &&
                      aligned(pending.parts, 16) && aligned(pending.bias, 16);
    const std::int64_t runs = wide ? values / 4 : values;
    launch(p.stream, wide ? settle_kernel<4> : settle_kernel<1>,
           dim3(static_cast<unsigned>((runs + kThreads - 1) / kThreads)), dim3(kThreads), 0, p.residual->x,
           pending.parts, pending.part_stride, pending.count, pending.bias, static_cast<unsigned>(p.hidden),
           values);
  }
  pending.count = 0;
}

}  // namespace snug::kernels::cuda
