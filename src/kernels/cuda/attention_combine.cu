// Adds up the splits of single query tokens' contexts: the second half of what attention_decode.cu starts.
#include "kernels/cuda/attention_parts.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kLoadsAtOnce = 9;  // of a thread: with eight rows of threads, all of 66 splits

// One block for each head of each sequence. Threads are rows of columns: a column is kWidth elements of the
// head, a row takes every so many-th split. All loads are started before the first is needed.
template <class T, int kWidth>
__global__ __launch_bounds__(kThreads) void combine_kernel(const __grid_constant__ AttentionCall call) {
  struct alignas(4 * kWidth) Column {
    float x[kWidth];
  };
  constexpr int kMost = (max_splits(1) + 31) / 32;
  __shared__ float weights[kWarps][32 * kMost];
  __shared__ Column parts[kThreads];
  allow_next();
  wait_for_previous();
  const int sequence = blockIdx.y, head = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int q_len = call.sequences.q_len[sequence], kv_len = call.sequences.kv_len[sequence];
  const std::int64_t token = call.sequences.q_begin[sequence];
  if (q_len != 1) return;
  const int splits = cut_context(kv_len, call.window, call.max_splits).count;
  if (splits <= 1) return;
  const std::int64_t first = (static_cast<std::int64_t>(sequence) * call.heads + head) * call.max_splits;
  float2 stats[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int s = 32 * i + lane;
    stats[i] = s < splits ? call.split_stats[first + s] : float2{kNothing, 0};
  }
  const int columns = call.head_dim / kWidth, padded = (columns + 31) / 32 * 32;
  const int rows = kThreads / padded, row = threadIdx.x / padded, column = threadIdx.x % padded;
  const bool used = row < rows && column < columns;
  const float* own = call.split_sums + first * call.head_dim + column * kWidth;
  Column loaded[kLoadsAtOnce];
  const auto load = [&](int from) {
#pragma unroll
    for (int i = 0; i < kLoadsAtOnce; ++i) {
      const int s = from + i * rows;
      if (used && s < splits) loaded[i] = *reinterpret_cast<const Column*>(own + s * call.head_dim);
    }
  };
  load(row);

  float largest = stats[0].x, sum = 0;
#pragma unroll
  for (int i = 1; i < kMost; ++i) largest = fmaxf(largest, stats[i].x);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, step));
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    stats[i].x = exp2f(stats[i].x - reference_score(largest));
    sum += stats[i].y * stats[i].x;
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
#pragma unroll
  for (int i = 0; i < kMost; ++i) weights[warp][32 * i + lane] = stats[i].x / sum;
  __syncwarp();

  Column total = {};
  for (int from = row; from < splits; from += kLoadsAtOnce * rows) {
    if (from != row) load(from);
#pragma unroll
    for (int i = 0; i < kLoadsAtOnce; ++i) {
      const int s = from + i * rows;
      if (!used || s >= splits) continue;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) total.x[j] = fmaf(weights[warp][s], loaded[i].x[j], total.x[j]);
    }
  }
  parts[threadIdx.x] = total;
  __syncthreads();
  if (row != 0 || !used) return;
  for (int r = 1; r < rows; ++r) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) total.x[j] += parts[r * padded + column].x[j];
  }
  T* out = static_cast<T*>(call.out) + (token * call.heads + head) * call.head_dim + column * kWidth;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) out[j] = static_cast<T>(total.x[j]);
}

template <class T>
void launch_combine(const AttentionParams& p, const AttentionCall& call) {
  const dim3 grid(static_cast<unsigned>(call.heads), static_cast<unsigned>(call.sequence_count));
  const auto kernel = call.head_dim % 4 == 0 ? combine_kernel<T, 4> : combine_kernel<T, 1>;
  launch(p.stream, kernel, grid, kThreads, 0, call);
}

}  // namespace

void combine_splits(const AttentionParams& p, const AttentionCall& call) {
  if (p.kv.dtype == DType::f32) {
    launch_combine<float>(p, call);
  } else {
    launch_combine<__nv_bfloat16>(p, call);
  }
}

}  // namespace snug::kernels::cuda
