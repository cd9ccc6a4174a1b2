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

bool is_behind(const WeightView& a, const WeightView& b) {
  return a.format == b.format && a.layout == b.layout && a.cols == b.cols &&
         a.data + target_of(a.format, a.rows, a.cols, a.format == Format::f32).bytes == b.data;
}

std::vector<WeightView> merged(std::span<const WeightView> weights) {
  std::vector<WeightView> all;
  for (const WeightView& w : weights) {
    if (!all.empty() && is_behind(all.back(), w)) {
      all.back().rows += w.rows;
    } else {
      all.push_back(w);
    }
  }
  return all;
}

}  // namespace snug::kernels::cuda
