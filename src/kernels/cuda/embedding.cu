// Rows of the token table as float32, a block a token.
#include <cuda_bf16.h>

#include <stdexcept>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_layout.cuh"
#include "kernels/linear.h"

namespace snug::kernels::cuda {
namespace {

using quant::Format;

constexpr int kThreads = 256;

// What the host has not checked must not lead outside the table.
__device__ std::int64_t row_of(const std::int32_t* ids, std::int64_t rows) {
  const std::int32_t id = ids[blockIdx.x];
  return id >= 0 && id < rows ? id : 0;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    embedding_rows_kernel(const T* table, std::int64_t rows, const std::int32_t* ids, float* y, int cols) {
  allow_next();
  wait_for_previous();
  const T* row = table + row_of(ids, rows) * cols;
  float* to = y + static_cast<std::int64_t>(blockIdx.x) * cols;
  for (int i = threadIdx.x; i < cols; i += kThreads) to[i] = static_cast<float>(row[i]);
}

template <Format F>
__global__ void __launch_bounds__(kThreads)
    embedding_packed_kernel(const std::byte* table, std::int64_t rows, const std::int32_t* ids, float* y,
                            int cols) {
  allow_next();
  wait_for_previous();
  const std::int64_t row = row_of(ids, rows);
  const int in_tile = static_cast<int>(row % kTileRows);
  const std::byte* tile = table + row / kTileRows * tile_bytes(F, cols);
  float* to = y + static_cast<std::int64_t>(blockIdx.x) * cols;
  for (int i = threadIdx.x; i < cols / 8; i += kThreads) {
    const int unit = i / 8, block = i / 4 % 2, t = i % 4;
    float v[8];
    decode_lane<F>(tile + unit_offset<F>(unit), tile + head_offset<F>(unit), in_tile % 8 * 4 + t, block,
                   in_tile / 8, v);
    float* at = to + unit * 64 + block * 32;
#pragma unroll
    for (int e = 0; e < 8; ++e) at[column_of<F>(t, e)] = v[e];
  }
}

}  // namespace

void embedding(const EmbeddingParams& p) {
  if (p.tokens == 0) return;
  const WeightView& w = p.table;
  const int cols = static_cast<int>(w.cols);
  const dim3 grid(static_cast<unsigned>(p.tokens)), block(kThreads);
  const auto packed = [&]<Format F>() {
    launch(p.stream, embedding_packed_kernel<F>, grid, block, 0, w.data, w.rows, p.ids, p.y, cols);
  };
  const auto plain = [&]<class T>(const T* table) {
    launch(p.stream, embedding_rows_kernel<T>, grid, block, 0, table, w.rows, p.ids, p.y, cols);
  };
  if (w.layout == Layout::packed) {
    switch (w.format) {
      case Format::q4_0:
        return packed.operator()<Format::q4_0>();
      case Format::q8_0:
        return packed.operator()<Format::q8_0>();
      case Format::q4_k:
        return packed.operator()<Format::q4_k>();
      case Format::q6_k:
        return packed.operator()<Format::q6_k>();
      default:
        break;
    }
  } else if (w.format == Format::bf16) {
    return plain(reinterpret_cast<const __nv_bfloat16*>(w.data));
  } else if (w.format == Format::f32) {
    return plain(reinterpret_cast<const float*>(w.data));
  }
  throw std::runtime_error(std::string("embedding: no GPU kernel for a table of ") +
                           quant::info(w.format).name);
}

}  // namespace snug::kernels::cuda
