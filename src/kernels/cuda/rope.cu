// Rotary position embedding (Su et al., 2021) of q and k, and k and v into the pages, in one pass. Heads of
// q, k and v are numbered one behind the other: that is how they lie in pending parts.
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/elementwise.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kFrequencies = 128;

struct RopeArgs {
  void *q, *k_pages, *v_pages;
  const void *k, *v;
  const float* cos_sin;
  const std::int32_t *positions, *row_sequence, *page_tables;
  std::int64_t page_stride, q_stride, kv_stride;
  int heads, kv_heads, head_dim, block_size;
  bool interleaved;
  const float *parts, *bias;
  std::int64_t part_stride;
  int part_count;
};

// What float16 cannot hold saturates; NaN stays NaN, as fminf would not let it.
__device__ __forceinline__ __half saturated(float x) {
  return __float2half_rn(x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x);
}

template <int N>
__device__ __forceinline__ void store_run(__half* at, const float (&v)[N]) {
  __half h[N];
#pragma unroll
  for (int i = 0; i < N; ++i) h[i] = saturated(v[i]);
  if constexpr (N == 8) {
    *reinterpret_cast<uint4*>(at) = *reinterpret_cast<const uint4*>(h);
  } else if constexpr (N == 4) {
    *reinterpret_cast<uint2*>(at) = *reinterpret_cast<const uint2*>(h);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) at[i] = h[i];
  }
}
using cuda::store_run;

// A block takes a row and a share of its heads (blockIdx.y). A thread stays with kRun pairs of a head and
// goes from head to head, so that cosines and sines are read once.
template <class T, class Kv, int kRun>
__global__ void __launch_bounds__(kThreads) rope_store_kernel(const __grid_constant__ RopeArgs a) {
  allow_next();
  const int half = a.head_dim / 2, runs = half / kRun;
  const int heads_at_once = kThreads / runs;
  const int own_head = threadIdx.x / runs, pair = threadIdx.x % runs * kRun;
  // The two halves of the thread's pairs, or with interleaved pairs the first and the second half of the
  // values.
  const int low = a.interleaved ? 2 * pair : pair, high = a.interleaved ? low + kRun : low + half;
  const std::int64_t row = blockIdx.x;
  wait_for_previous();
  const std::int32_t sequence = a.row_sequence[row];
  if (sequence < 0 || own_head >= heads_at_once) return;
  const std::int32_t position = a.positions[row];
  float c[kRun], s[kRun];
  load_run(a.cos_sin + row * a.head_dim + pair, c);
  load_run(a.cos_sin + row * a.head_dim + half + pair, s);
  const std::int64_t block = a.page_tables[sequence * a.page_stride + position / a.block_size];
  const int slot = position % a.block_size;

  const int all = a.heads + 2 * a.kv_heads;
  for (int head = blockIdx.y * heads_at_once + own_head; head < all; head += gridDim.y * heads_at_once) {
    const bool is_q = head < a.heads, is_v = head >= a.heads + a.kv_heads;
    const int kv_head = is_v ? head - a.heads - a.kv_heads : head - a.heads;
    const T* from =
        is_q ? static_cast<const T*>(a.q) + row * a.q_stride + static_cast<std::int64_t>(head) * a.head_dim
             : static_cast<const T*>(is_v ? a.v : a.k) + row * a.kv_stride +
                   static_cast<std::int64_t>(kv_head) * a.head_dim;
    float x[kRun], y[kRun];
    const std::int64_t column = static_cast<std::int64_t>(head) * a.head_dim;
    if (a.part_count == 0) {
      load_run(from + low, x);
      load_run(from + high, y);
    } else {
      const float* part = a.parts + row * all * a.head_dim + column;
      load_run(part + low, x);
      load_run(part + high, y);
#pragma unroll 1
      for (int p = 1; p < a.part_count; ++p) {
        part += a.part_stride;
        float more[kRun], more_high[kRun];
        load_run(part + low, more);
        load_run(part + high, more_high);
#pragma unroll
        for (int i = 0; i < kRun; ++i) x[i] += more[i], y[i] += more_high[i];
      }
    }
    if (a.bias != nullptr) {
      float more[kRun], more_high[kRun];
      load_run(a.bias + column + low, more);
      load_run(a.bias + column + high, more_high);
#pragma unroll
      for (int i = 0; i < kRun; ++i) x[i] += more[i], y[i] += more_high[i];
    }
    if (!is_v && !a.interleaved) {
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const float rotated = x[i] * c[i] - y[i] * s[i];
        y[i] = y[i] * c[i] + x[i] * s[i];
        x[i] = rotated;
      }
    } else if (!is_v) {
      float both[2 * kRun];
#pragma unroll
      for (int i = 0; i < kRun; ++i) both[i] = x[i], both[kRun + i] = y[i];
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const float first = both[2 * i], second = both[2 * i + 1];
        both[2 * i] = first * c[i] - second * s[i];
        both[2 * i + 1] = second * c[i] + first * s[i];
      }
#pragma unroll
      for (int i = 0; i < kRun; ++i) x[i] = both[i], y[i] = both[kRun + i];
    }
    if (is_q) {
      T* to = const_cast<T*>(from);
      store_run(to + low, x);
      store_run(to + high, y);
    } else {
      Kv* to = static_cast<Kv*>(is_v ? a.v_pages : a.k_pages) +
               ((block * a.kv_heads + kv_head) * a.block_size + slot) * a.head_dim;
      store_run(to + low, x);
      store_run(to + high, y);
    }
  }
}

template <class T, class Kv>
void rope_store_of(const RopeStoreParams& p, const RopeArgs& a) {
  const int half = a.head_dim / 2;
  const auto suits = [&](int run) {
    const auto fits = [&](const void* data, std::int64_t stride, std::size_t size) {
      return aligned(data, std::min<std::size_t>(16, run * size)) && stride % run == 0;
    };
    return half % run == 0 && half / run <= kThreads && fits(a.q, a.q_stride, sizeof(T)) &&
           fits(a.k, a.kv_stride, sizeof(T)) && fits(a.v, a.kv_stride, sizeof(T)) && fits(a.cos_sin, 0, 4) &&
           fits(a.k_pages, 0, sizeof(Kv)) && fits(a.v_pages, 0, sizeof(Kv)) &&
           fits(a.parts, a.part_stride, 4) && fits(a.bias, 0, 4);
  };
  const auto run = [&]<int kRun>() {
    const int heads_at_once = kThreads / (half / kRun), heads = a.heads + 2 * a.kv_heads;
    const int shares = (heads + heads_at_once - 1) / heads_at_once;
    // Few rows: a head a thread. Many: blocks enough as it is.
    const dim3 grid(static_cast<unsigned>(p.tokens), static_cast<unsigned>(p.tokens < 256 ? shares : 1));
    launch(p.stream, rope_store_kernel<T, Kv, kRun>, grid, dim3(kThreads), 0, a);
  };
  if (p.tokens >= 256 && suits(8)) return run.template operator()<8>();
  if (suits(4)) return run.template operator()<4>();
  if (half > kThreads) throw std::runtime_error("rope_store: head_dim is more than 512");
  run.template operator()<1>();
}

struct Frequencies {
  float of[kFrequencies];
};

__global__ void __launch_bounds__(kThreads)
    rope_angles_kernel(const __grid_constant__ Frequencies inverse, int half, float factor,
                       const std::int32_t* positions, std::int64_t tokens, float* cos_sin) {
  allow_next();
  wait_for_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t row = i / half;
  if (row >= tokens) return;
  const int pair = static_cast<int>(i - row * half);
  const float angle = static_cast<float>(positions[row]) * inverse.of[pair];
  double s, c;
  sincos(static_cast<double>(angle), &s, &c);
  cos_sin[row * 2 * half + pair] = static_cast<float>(c) * factor;
  cos_sin[row * 2 * half + half + pair] = static_cast<float>(s) * factor;
}

}  // namespace

void rope_store(const RopeStoreParams& p) {
  if (p.tokens == 0) return;
  if (p.k.dtype != p.q.dtype || p.v.dtype != p.q.dtype) {
    throw std::runtime_error("rope_store: q, k and v have one type");
  }
  const RopeArgs a = {.q = p.q.data,
                      .k_pages = p.kv.k,
                      .v_pages = p.kv.v,
                      .k = p.k.data,
                      .v = p.v.data,
                      .cos_sin = p.cos_sin,
                      .positions = p.positions,
                      .row_sequence = p.device.row_sequence,
                      .page_tables = p.device.page_tables,
                      .page_stride = p.device.page_stride,
                      .q_stride = p.q_row_stride(),
                      .kv_stride = p.kv_row_stride(),
                      .heads = p.heads,
                      .kv_heads = p.kv.kv_heads,
                      .head_dim = p.kv.head_dim,
                      .block_size = p.kv.block_size,
                      .interleaved = p.interleaved,
                      .parts = p.pending.count > 0 ? p.pending.parts : nullptr,
                      .bias = p.pending.bias,
                      .part_stride = p.pending.count > 0 ? p.pending.part_stride : 0,
                      .part_count = p.pending.count};
  const auto with = [&]<class T>() {
    switch (p.kv.dtype) {
      case DType::f32:
        return rope_store_of<T, float>(p, a);
      case DType::f16:
        return rope_store_of<T, __half>(p, a);
      case DType::bf16:
        return rope_store_of<T, bf16>(p, a);
    }
  };
  if (p.q.dtype == DType::f32) return with.template operator()<float>();
  if (p.q.dtype == DType::bf16) return with.template operator()<bf16>();
  throw std::runtime_error("rope_store: q, k and v are float32 or bfloat16");
}

void rope_angles(const RopeAnglesParams& p) {
  const std::size_t half = p.inverse_frequencies.size();
  if (half > kFrequencies) throw std::runtime_error("rope_angles: head_dim is more than 256");
  if (p.tokens == 0 || half == 0) return;
  Frequencies inverse = {};
  std::copy(p.inverse_frequencies.begin(), p.inverse_frequencies.end(), inverse.of);
  const std::int64_t threads = p.tokens * static_cast<std::int64_t>(half);
  launch(p.stream, rope_angles_kernel, dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads)),
         dim3(kThreads), 0, inverse, static_cast<int>(half), p.factor, p.positions, p.tokens, p.cos_sin);
}

}  // namespace snug::kernels::cuda
