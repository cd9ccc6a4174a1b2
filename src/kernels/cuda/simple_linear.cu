// y = x · Wᵀ with float32 multiply-adds. Every result is one chain of fused multiply-adds over k in rising
// order, whatever kernel computes it, so it depends on nothing but its own row of x and of W, bit for bit.
//
// Few tokens: a lane owns a weight row, which comes through shared memory in slices of 256 bytes, several in
// flight; the chain (4 cycles a step) keeps up with memory as long as all multiprocessors have rows. More
// tokens: square tiles, a square of registers a thread.
#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vector.cuh"
#include "kernels/linear.h"

namespace snug::kernels::cuda {
namespace {

struct Product {
  const void *x, *w;
  const float* bias;
  void* y;
  std::int64_t x_stride, y_stride, tokens;
  int rows, cols;
  bool add;
};

template <class Y>
__device__ __forceinline__ void put(const Product& p, std::int64_t token, int row, float sum) {
  Y* at = static_cast<Y*>(p.y) + token * p.y_stride + row;
  if (p.bias != nullptr) sum += p.bias[row];
  if (p.add) sum += to_float(*at);
  *at = static_cast<Y>(sum);
}

// --- few tokens

constexpr int kFewTokens = 8, kFewRows = 32, kFewThreads = 128, kFewWarps = kFewThreads / 32, kStages = 6;
constexpr int kSliceBytes = 256, kSlicePitch = kSliceBytes + 16;  // 16 more: lanes' reads meet in no bank

template <class W>
constexpr int slice_cols() {
  return kSliceBytes / sizeof(W);
}

template <class X, class W>
constexpr int stage_bytes() {
  return kFewRows * kSlicePitch + kFewTokens * slice_cols<W>() * static_cast<int>(sizeof(X));
}

// 16 bytes into shared memory: base[offset …], and zeros for what is not among the `valid` next values. Wide:
// all are, or none.
template <bool kWide, class T>
__device__ __forceinline__ void copy_16_bytes(T* to, const T* base, std::int64_t offset, int valid) {
  constexpr int kCount = 16 / sizeof(T);
  if constexpr (kWide) {
    __pipeline_memcpy_async(to, valid > 0 ? base + offset : base, 16, valid > 0 ? 0 : 16);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = i < valid ? base[offset + i] : T(0.0f);
  }
}

template <class X, class W, bool kWide>
__device__ __forceinline__ void copy_slice(const Product& p, std::byte* stage, int first_row, int k) {
  constexpr int kPieces = kSliceBytes / 16;
#pragma unroll
  for (int i = threadIdx.x; i < kFewRows * kPieces; i += kFewThreads) {
    const int row = i / kPieces, piece = i % kPieces, column = k + piece * static_cast<int>(16 / sizeof(W));
    copy_16_bytes<kWide>(reinterpret_cast<W*>(stage + row * kSlicePitch + piece * 16),
                         static_cast<const W*>(p.w),
                         static_cast<std::int64_t>(first_row + row) * p.cols + column,
                         first_row + row < p.rows ? p.cols - column : 0);
  }
}

// Like the weights, but that another kernel wrote them.
template <class X, class W, bool kWide>
__device__ __forceinline__ void copy_x(const Product& p, std::byte* stage, int k) {
  constexpr int kCols = slice_cols<W>(), kPerPiece = 16 / sizeof(X), kPieces = kCols / kPerPiece;
  X* to = reinterpret_cast<X*>(stage + kFewRows * kSlicePitch);
  for (int i = threadIdx.x; i < static_cast<int>(p.tokens) * kPieces; i += kFewThreads) {
    const int token = i / kPieces, column = k + i % kPieces * kPerPiece;
    copy_16_bytes<kWide>(to + token * kCols + i % kPieces * kPerPiece, static_cast<const X*>(p.x),
                         token * p.x_stride + column, p.cols - column);
  }
}

// Warp w computes tokens w and w + 4 of the block's 32 rows.
template <class X, class W, class Y, bool kWide>
__global__ void __launch_bounds__(kFewThreads) few_kernel(const __grid_constant__ Product p) {
  extern __shared__ __align__(16) std::byte shared[];
  constexpr int kCols = slice_cols<W>(), kStage = stage_bytes<X, W>(), kStep = 16 / sizeof(W);
  allow_next();
  const int first_row = blockIdx.x * kFewRows, slices = (p.cols + kCols - 1) / kCols;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // The weights of the first slices need no other kernel.
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < slices) copy_slice<X, W, kWide>(p, shared + i * kStage, first_row, i * kCols);
  }
  wait_for_previous();
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < slices) copy_x<X, W, kWide>(p, shared + i * kStage, i * kCols);
    __pipeline_commit();
  }
  float sum[2] = {0, 0};
  const bool two = warp + kFewWarps < p.tokens;
  for (int i = 0; i < slices; ++i) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();  // the slice is there, and the one before it is done with
    const int next = i + kStages - 1;
    if (next < slices) {
      copy_slice<X, W, kWide>(p, shared + next % kStages * kStage, first_row, next * kCols);
      copy_x<X, W, kWide>(p, shared + next % kStages * kStage, next * kCols);
    }
    __pipeline_commit();
    if (warp >= p.tokens) continue;
    const std::byte* stage = shared + i % kStages * kStage;
    const W* w = reinterpret_cast<const W*>(stage + lane * kSlicePitch);
    const X* x = reinterpret_cast<const X*>(stage + kFewRows * kSlicePitch) + warp * kCols;
    const auto multiply = [&]<bool kTwo>() {
#pragma unroll 4
      for (int k = 0; k < kCols; k += kStep) {
        float a[kStep], b[kStep], c[kStep];
        load_run(w + k, a);
        load_run(x + k, b);
        if constexpr (kTwo) load_run(x + kFewWarps * kCols + k, c);
#pragma unroll
        for (int e = 0; e < kStep; ++e) {
          sum[0] = fmaf(b[e], a[e], sum[0]);
          if constexpr (kTwo) sum[1] = fmaf(c[e], a[e], sum[1]);
        }
      }
    };
    two ? multiply.template operator()<true>() : multiply.template operator()<false>();
  }
  __pipeline_wait_prior(0);
  if (first_row + lane >= p.rows || warp >= p.tokens) return;
  put<Y>(p, warp, first_row + lane, sum[0]);
  if (two) put<Y>(p, warp + kFewWarps, first_row + lane, sum[1]);
}

// --- tiles

constexpr int kTileThreads = 256, kDepth = 16;

// kSide tokens by kSide rows, kDepth columns at a time. A thread has the outputs at 4 neighbours of each of
// kSide / 64 bands, in both directions.
template <class X, class W, class Y, int kSide, bool kWide>
__global__ void __launch_bounds__(kTileThreads) tile_kernel(const __grid_constant__ Product p) {
  constexpr int kPitch = kSide + 4, kBands = kSide / 64, kOwn = 4 * kBands;
  __shared__ __align__(16) float a[2][kDepth][kPitch], b[2][kDepth][kPitch];
  allow_next();
  wait_for_previous();
  const std::int64_t first_token = static_cast<std::int64_t>(blockIdx.x) * kSide;
  const int first_row = blockIdx.y * kSide;
  const int across = threadIdx.x % 16 * 4, down = threadIdx.x / 16 * 4;
  const X* x = static_cast<const X*>(p.x) + first_token * p.x_stride;
  const W* w = static_cast<const W*>(p.w) + static_cast<std::int64_t>(first_row) * p.cols;
  const int tokens = static_cast<int>(min(static_cast<std::int64_t>(kSide), p.tokens - first_token));
  const int rows = min(kSide, p.rows - first_row);

  // Runs of 4 along k: on their way through registers into shared memory, where k comes first.
  constexpr int kRunsOfTile = kSide * kDepth / 4, kRuns = kRunsOfTile / kTileThreads;
  float from_x[kRuns][4], from_w[kRuns][4];
  const auto fetch = [&](int k) {
#pragma unroll
    for (int j = 0; j < kRuns; ++j) {
      const int run = j * kTileThreads + threadIdx.x, line = run / (kDepth / 4),
                at = k + run % (kDepth / 4) * 4;
      const auto load = [&](const auto* base, std::int64_t stride, int lines, float(&v)[4]) {
        if (kWide && line < lines && at < p.cols) {
          load_run(base + line * stride + at, v);
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            v[e] = !kWide && line < lines && at + e < p.cols ? to_float(base[line * stride + at + e]) : 0.0f;
          }
        }
      };
      load(x, p.x_stride, tokens, from_x[j]);
      load(w, p.cols, rows, from_w[j]);
    }
  };
  const auto deposit = [&](int buffer) {
#pragma unroll
    for (int j = 0; j < kRuns; ++j) {
      const int run = j * kTileThreads + threadIdx.x, line = run / (kDepth / 4), at = run % (kDepth / 4) * 4;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        a[buffer][at + e][line] = from_x[j][e];
        b[buffer][at + e][line] = from_w[j][e];
      }
    }
  };

  float sums[kOwn][kOwn] = {};
  fetch(0);
  deposit(0);
  __syncthreads();
  int buffer = 0;
  for (int k = 0; k < p.cols; k += kDepth) {
    const bool more = k + kDepth < p.cols;
    if (more) fetch(k + kDepth);
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      float u[kOwn], v[kOwn];
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
        *reinterpret_cast<float4*>(u + band * 4) =
            *reinterpret_cast<const float4*>(&a[buffer][i][band * 64 + down]);
        *reinterpret_cast<float4*>(v + band * 4) =
            *reinterpret_cast<const float4*>(&b[buffer][i][band * 64 + across]);
      }
#pragma unroll
      for (int t = 0; t < kOwn; ++t) {
#pragma unroll
        for (int r = 0; r < kOwn; ++r) sums[t][r] = fmaf(u[t], v[r], sums[t][r]);
      }
    }
    if (more) {
      buffer ^= 1;
      deposit(buffer);
      __syncthreads();
    }
  }
#pragma unroll
  for (int t = 0; t < kOwn; ++t) {
    const int token = t / 4 * 64 + down + t % 4;
    if (token >= tokens) continue;
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      const int row = r / 4 * 64 + across + r % 4;
      if (row < rows) put<Y>(p, first_token + token, first_row + row, sums[t][r]);
    }
  }
}

template <class X, class W, class Y, bool kWide>
void multiply(const Stream& stream, const Product& p) {
  if (p.tokens <= kFewTokens) {
    constexpr int kShared = kStages * stage_bytes<X, W>();
    const auto kernel = few_kernel<X, W, Y, kWide>;
    allow_shared(kernel, kShared);
    const int blocks = (p.rows + kFewRows - 1) / kFewRows;
    return launch(stream, kernel, dim3(static_cast<unsigned>(blocks)), dim3(kFewThreads), kShared, p);
  }
  const auto grid = [&](int side) {
    return dim3(static_cast<unsigned>((p.tokens + side - 1) / side),
                static_cast<unsigned>((p.rows + side - 1) / side));
  };
  const dim3 large = grid(128), small = grid(64);
  if (static_cast<std::int64_t>(large.x) * large.y >= stream.gpu->multiprocessors) {
    launch(stream, tile_kernel<X, W, Y, 128, kWide>, large, dim3(kTileThreads), 0, p);
  } else {
    launch(stream, tile_kernel<X, W, Y, 64, kWide>, small, dim3(kTileThreads), 0, p);
  }
}

template <class X, class W, class Y>
void multiply(const Stream& stream, const Product& p) {
  constexpr int kValues = 8;  // 16 bytes of the narrower type
  const bool wide =
      p.cols % kValues == 0 && p.x_stride % kValues == 0 && aligned(p.x, 16) && aligned(p.w, 16);
  wide ? multiply<X, W, Y, true>(stream, p) : multiply<X, W, Y, false>(stream, p);
}

template <class Fn>
void with_type(DType type, const char* what, Fn&& fn) {
  switch (type) {
    case DType::f32:
      return fn.template operator()<float>();
    case DType::bf16:
      return fn.template operator()<bf16>();
    default:
      throw std::runtime_error(std::string("simple_linear: ") + what + " is float32 or bfloat16");
  }
}

DType type_of_weights(const WeightView& w) {
  if (w.layout == Layout::rows && w.format == quant::Format::f32) return DType::f32;
  if (w.layout == Layout::rows && w.format == quant::Format::bf16) return DType::bf16;
  throw std::runtime_error("simple_linear: no GPU kernel for weights of " +
                           std::string(quant::info(w.format).name) +
                           (w.layout == Layout::packed ? ", packed" : ""));
}

}  // namespace

void simple_linear(const LinearParams& p) {
  if (p.tokens == 0) return;
  for (const LinearOutput& out : p.outputs) {
    const WeightView& w = out.weight;
    if (w.rows == 0) continue;
    if (w.cols > INT32_MAX / 2 || w.rows > std::int64_t{65535} * 64) {
      throw std::runtime_error("simple_linear: the weight has too many rows or columns");
    }
    const Product product = {.x = p.x.data,
                             .w = w.data,
                             .bias = out.bias,
                             .y = out.y.data,
                             .x_stride = p.x_stride,
                             .y_stride = out.y_stride,
                             .tokens = p.tokens,
                             .rows = static_cast<int>(w.rows),
                             .cols = static_cast<int>(w.cols),
                             .add = out.add};
    with_type(type_of_weights(w), "W", [&]<class W>() {
      with_type(p.x.dtype, "x", [&]<class X>() {
        with_type(out.y.dtype, "y", [&]<class Y>() { multiply<X, W, Y>(p.stream, product); });
      });
    });
  }
}

}  // namespace snug::kernels::cuda
