// Attention in float32 arithmetic for any head dimension: the exact path of float32 models, and what the
// tensor-core kernels do not take. Tiles with an online softmax as there; a lane has a key of its own while
// scores are computed and elements of V of its own while they are weighted.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/attention_combine.cuh"
#include "kernels/cuda/attention_parts.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kOwnRows = 4;               // of a warp
constexpr int kRows = kOwnRows * kWarps;  // of a block: row = token * group + head of the group
constexpr int kSplit = 256;               // tokens, at least
constexpr int kKeys = 32;                 // of a tile; tiles start at multiples of it from a fixed start

int shared_bytes(int head_dim) {
  const int width = (head_dim + 3) / 4 * 4;
  return (kRows * width + kKeys * (width + 1) + kKeys * width + kKeys * kRows) * 4;
}

__device__ __forceinline__ float as_float(float x) {
  return x;
}
__device__ __forceinline__ float as_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

// kSingle: the sequences of one token, the context in splits (blockIdx.x); otherwise those of more tokens,
// and blockIdx.x counts tiles of rows. kParts: 32 elements of V each, enough for the head dimension.
template <class T, int kParts, bool kSingle>
__global__ __launch_bounds__(kThreads) void attend_kernel(const __grid_constant__ AttentionCall call) {
  extern __shared__ __align__(16) float memory[];
  allow_next();
  wait_for_previous();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, sequence = blockIdx.z;
  const int q_len = call.sequences.q_len[sequence], kv_len = call.sequences.kv_len[sequence];
  if (kSingle ? q_len != 1 : q_len <= 1) return;

  int kv_head, first_row, begin, end, split = 0, splits = 1;  // [begin, end): keys that some row sees
  int first;                                                  // where tiles start
  const int before = kv_len - q_len;
  if constexpr (kSingle) {
    const int chunks = (call.group + kRows - 1) / kRows;
    kv_head = blockIdx.y / chunks;
    first_row = blockIdx.y % chunks * kRows;
    const ContextCut cut = cut_context(kv_len, call.window, call.max_splits, kSplit);
    split = blockIdx.x;
    splits = cut.count;
    if (split >= splits) return;
    first = cut.first + split * cut.length;
    begin = max(cut.visible, first);
    end = min(first + cut.length, kv_len);
  } else {
    kv_head = blockIdx.y;
    first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;  // the longest first
    if (first_row >= q_len * call.group) return;
    begin = call.window > 0 ? max(0, before + first_row / call.group - call.window + 1) : 0;
    end = before + min(q_len - 1, (first_row + kRows - 1) / call.group) + 1;
    first = begin / kKeys * kKeys;
  }
  const int dim = call.head_dim, width = (dim + 3) / 4 * 4;  // zeros fill up a row
  float* q = memory;                                         // (rows, width)
  float* k = q + kRows * width;                              // (keys, width + 1)
  float* v = k + kKeys * (width + 1);                        // (keys, width)
  float* weights = v + kKeys * width;                        // (keys, rows)
  const std::int64_t q_begin = call.sequences.q_begin[sequence];
  for (int i = threadIdx.x; i < kRows * width; i += kThreads) {
    const int row = i / width, d = i - row * width, token = (first_row + row) / call.group;
    const int head = kv_head * call.group + (first_row + row) % call.group;
    const bool used = token < q_len && d < dim;
    q[i] = used ? as_float(static_cast<const T*>(
                      call.q)[(q_begin + token) * call.q_stride + static_cast<std::int64_t>(head) * dim + d])
                : 0.0f;
  }
  const std::int32_t* page_table = call.sequences.page_tables + sequence * call.sequences.page_stride;
  float out[kOwnRows][kParts] = {}, largest[kOwnRows], sum[kOwnRows] = {};
  int own_position[kOwnRows];
#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) {
    largest[r] = kNothing;
    own_position[r] = before + (first_row + warp * kOwnRows + r) / call.group;
  }

  for (int tile = first; tile < end; tile += kKeys) {
    __syncthreads();
    for (int row = warp; row < kKeys; row += kWarps) {
      const int position = tile + row;
      const bool valid = position >= begin && position < end;  // elsewhere may be NaN
      const int page = page_of(call, position);
      const std::int64_t block = valid ? __ldg(page_table + page) : 0;
      const std::int64_t at =
          ((block * call.kv_heads + kv_head) * call.block_size + position - page * call.block_size) * dim;
      for (int d = lane; d < width; d += 32) {
        const bool inside = valid && d < dim;
        k[row * (width + 1) + d] = inside ? as_float(static_cast<const T*>(call.k)[at + d]) : 0.0f;
        v[row * width + d] = inside ? as_float(static_cast<const T*>(call.v)[at + d]) : 0.0f;
      }
    }
    __syncthreads();
    float scores[kOwnRows] = {};
    const float* own_key = k + lane * (width + 1);
    const float* own_q = q + warp * kOwnRows * width;
    for (int d = 0; d < width; d += 4) {
#pragma unroll
      for (int r = 0; r < kOwnRows; ++r) {
        const float4 x = *reinterpret_cast<const float4*>(own_q + r * width + d);
        scores[r] = fmaf(x.x, own_key[d], scores[r]);
        scores[r] = fmaf(x.y, own_key[d + 1], scores[r]);
        scores[r] = fmaf(x.z, own_key[d + 2], scores[r]);
        scores[r] = fmaf(x.w, own_key[d + 3], scores[r]);
      }
    }
    const int position = tile + lane;
#pragma unroll
    for (int r = 0; r < kOwnRows; ++r) {
      const bool seen = position >= begin && position < end && position <= own_position[r] &&
                        (call.window == 0 || position > own_position[r] - call.window);
      const float score = seen ? scores[r] * call.scale_log2 : kNothing;
      float top = score;
#pragma unroll
      for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
      top = fmaxf(top, largest[r]);
      const float factor = exp2f(largest[r] - reference_score(top));
      const float weight = exp2f(score - reference_score(top));
      largest[r] = top;
      sum[r] = sum[r] * factor + weight;  // of this lane's keys
      weights[lane * kRows + warp * kOwnRows + r] = weight;
#pragma unroll
      for (int part = 0; part < kParts; ++part) out[r][part] *= factor;
    }
    __syncwarp();
#pragma unroll 4
    for (int key = 0; key < kKeys; ++key) {
      const float4 weight = *reinterpret_cast<const float4*>(weights + key * kRows + warp * kOwnRows);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int d = part * 32 + lane;
        const float x = d < width ? v[key * width + d] : 0.0f;
        out[0][part] = fmaf(weight.x, x, out[0][part]);
        out[1][part] = fmaf(weight.y, x, out[1][part]);
        out[2][part] = fmaf(weight.z, x, out[2][part]);
        out[3][part] = fmaf(weight.w, x, out[3][part]);
      }
    }
  }

#pragma unroll
  for (int r = 0; r < kOwnRows; ++r) {
    float total = sum[r];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(~0u, total, step);
    const int row = first_row + warp * kOwnRows + r, token = row / call.group;
    // Rows of a single token end with the group.
    if (token >= q_len) continue;
    const int head = kv_head * call.group + row % call.group;
    const std::int64_t at =
        (static_cast<std::int64_t>(sequence) * call.heads + head) * call.max_splits + split;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int d = part * 32 + lane;
      if (d >= dim) continue;
      if (kSingle && splits > 1) {
        call.split_sums[at * dim + d] = out[r][part];
      } else {
        static_cast<T*>(call.out)[((q_begin + token) * call.heads + head) * dim + d] =
            static_cast<T>(out[r][part] / total);
      }
    }
    if (kSingle && splits > 1 && lane == 0) call.split_stats[at] = {largest[r], total};
  }
  if constexpr (kSingle) {
    if (splits == 1) return;
    const std::int64_t head = static_cast<std::int64_t>(sequence) * call.heads + kv_head * call.group;
    if (!arrives_last(call.arrivals + head + first_row / kRows, splits)) return;
    for (int row = first_row + warp; row < min(first_row + kRows, call.group); row += kWarps) {
      T* out_row = static_cast<T*>(call.out) + (q_begin * call.heads + kv_head * call.group + row) * dim;
      const std::int64_t at = (head + row) * call.max_splits;
      combine_splits<T, 1>(call.split_stats + at, call.split_sums + at * dim, splits, dim, out_row, lane);
    }
  }
}

template <class T, int kParts, bool kSingle>
void launch_attend(const AttentionParams& p, const AttentionCall& call, dim3 grid) {
  const int bytes = shared_bytes(call.head_dim);
  allow_shared(attend_kernel<T, kParts, kSingle>, bytes);
  launch(p.stream, attend_kernel<T, kParts, kSingle>, grid, kThreads, bytes, call);
}

template <bool kSingle>
void attend(const AttentionParams& p, const AttentionCall& call, dim3 grid) {
  const auto with_type = [&](auto type) {
    using T = decltype(type);
    if (call.head_dim <= 32) return launch_attend<T, 1, kSingle>(p, call, grid);
    if (call.head_dim <= 64) return launch_attend<T, 2, kSingle>(p, call, grid);
    if (call.head_dim <= 128) return launch_attend<T, 4, kSingle>(p, call, grid);
    return launch_attend<T, 8, kSingle>(p, call, grid);
  };
  if (p.kv.dtype == DType::f32) {
    with_type(float{});
  } else {
    with_type(__nv_bfloat16{});
  }
}

}  // namespace

void decode_any(const AttentionParams& p, const AttentionCall& call) {
  const int chunks = (call.group + kRows - 1) / kRows;
  attend<true>(p, call,
               dim3(static_cast<unsigned>(call.max_splits), static_cast<unsigned>(call.kv_heads * chunks),
                    static_cast<unsigned>(call.sequence_count)));
}

void prefill_any(const AttentionParams& p, const AttentionCall& call) {
  int rows = 0;
  for (const kv::SequenceView& s : p.sequences) rows = std::max(rows, s.q_len > 1 ? s.q_len * call.group : 0);
  attend<false>(p, call,
                dim3(static_cast<unsigned>((rows + kRows - 1) / kRows), static_cast<unsigned>(call.kv_heads),
                     static_cast<unsigned>(call.sequence_count)));
}

}  // namespace snug::kernels::cuda
