#include "kernels/cuda/linear_layout.h"

#include "kernels/linear.h"

namespace snug::kernels::cuda {

using quant::Format;

Target target_of(Format format, std::int64_t rows, std::int64_t cols, bool exact) {
  if (exact) return {Format::f32, Layout::rows, rows * cols * 4};
  if (is_packable(format, rows, cols)) {
    return {format, Layout::packed, rows / kTileRows * tile_bytes(format, cols)};
  }
  return {Format::bf16, Layout::rows, rows * cols * 2};
}

}  // namespace snug::kernels::cuda
