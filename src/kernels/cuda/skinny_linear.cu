#include "kernels/cuda/skinny_linear.cuh"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace snug::kernels::cuda {
namespace {

using quant::Format;

[[noreturn]] void refuse(const char* what) {
  throw std::runtime_error(std::string("skinny_linear: ") + what);
}

bool is_aligned(const void* data, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

// A block a token, in the order of additions that a block of the product has.
template <int Warps>
__global__ void __launch_bounds__(Warps * 32)
    skinny_norm_kernel(const __grid_constant__ SkinnyArgs a, __nv_bfloat16* to) {
  __shared__ float sums[Warps];
  allow_next();
  wait_for_previous();
  const int token = static_cast<int>(blockIdx.x);
  norm_token<Warps>(a, token, to + token * a.x_stride, true, sums);
}

// Where several tokens' norms can lie in between: what is pending is used up once it is added, and where
// nothing is pending, `next` is free. Rows of bfloat16 in place of the float32 that the same block has read.
void norm_tokens(const SkinnyLinearParams& p, SkinnyArgs& a) {
  float* scratch = a.pending_count > 0 ? p.residual->pending.parts : p.residual->next;
  if (scratch == nullptr) refuse("several tokens need Residual::next");
  a.x = reinterpret_cast<const __nv_bfloat16*>(scratch);
  a.x_stride = 2 * static_cast<std::int64_t>(a.cols);
  constexpr int kWarps = StreamShape<Format::q4_0>::kWarps;  // as of all formats
  launch(p.stream, skinny_norm_kernel<kWarps>, dim3(static_cast<unsigned>(a.tokens)), dim3(kWarps * 32), 0, a,
         reinterpret_cast<__nv_bfloat16*>(scratch));
}

}  // namespace

bool skinny_supports(const WeightView& weight) {
  if (weight.rows <= 0 || weight.cols <= 0 || weight.rows % kTileRows != 0) return false;
  // Places in the sequence of units are ints.
  if (weight.rows / kTileRows * (weight.cols / 32) > (1 << 30)) return false;
  return weight.layout == Layout::packed && is_packable(weight.format, weight.rows, weight.cols);
}

void skinny_linear(const SkinnyLinearParams& p) {
  if (p.tokens == 0) return;
  if (p.tokens < 0 || p.tokens > kSkinnyTokens) refuse("1 to 8 tokens");
  if (!skinny_supports(p.weight)) refuse("a weight of this format and shape is not supported");
  if (!is_aligned(p.weight.data, 16)) refuse("weights must be aligned to 16 bytes");
  SkinnyArgs a;
  a.weight = p.weight.data;
  a.tiles = static_cast<int>(p.weight.rows / kTileRows);
  a.cols = static_cast<int>(p.weight.cols);
  a.tokens = static_cast<int>(p.tokens);
  if (p.residual != nullptr) {
    const Residual& r = *p.residual;
    a.residual = r.x;
    a.next = r.next;
    a.pending = r.pending.parts;
    a.pending_stride = r.pending.part_stride;
    a.pending_count = r.pending.count;
    a.pending_bias = r.pending.bias;
    a.norm = p.norm;
    a.eps = p.eps;
    if (!is_aligned(r.x, 16) || !is_aligned(r.next, 16) || !is_aligned(r.pending.parts, 16) ||
        r.pending.part_stride % 4 != 0 || !is_aligned(r.pending.bias, 16) || !is_aligned(p.norm, 16)) {
      refuse("the residual stream must be aligned to 16 bytes");
    }
    if (a.cols > kNormColumns) refuse("too many columns for the norm");
    a.input = a.tokens == 1 ? SkinnyInput::normed : SkinnyInput::copied;
  } else {
    if (p.x.dtype != DType::bf16) refuse("x must be bfloat16");
    if (!is_aligned(p.x.data, 16) || p.x_stride % 8 != 0) refuse("rows of x must be aligned to 16 bytes");
    a.x = static_cast<const __nv_bfloat16*>(p.x.data);
    a.x_stride = p.x_stride;
  }
  if (p.parts != nullptr) {
    a.output = SkinnyOutput::parts;
    a.y = p.parts;
    a.part_stride = p.part_stride;
  } else if (p.gated) {
    if (p.y.dtype != DType::bf16 || a.tiles % 2 != 0)
      refuse("gated results are bfloat16, of 16 rows or a multiple");
    a.output = SkinnyOutput::gated;
    a.y = p.y.data;
  } else {
    if (p.y.dtype == DType::f16) refuse("y must be float32 or bfloat16");
    a.output = p.y.dtype == DType::f32 ? SkinnyOutput::f32 : SkinnyOutput::bf16;
    a.y = p.y.data;
  }
  a.y_stride = p.y_stride;
  // At least one tile (or pair of tiles) a block; of partial sums that keeps every tile within two blocks.
  const int grid =
      std::min(p.stream.gpu->multiprocessors, p.gated && p.parts == nullptr ? a.tiles / 2 : a.tiles);
  if (a.input == SkinnyInput::copied) norm_tokens(p, a);
  switch (p.weight.format) {
    case Format::q4_0:
      return launch_skinny<Format::q4_0>(p.stream, a, grid);
    case Format::q8_0:
      return launch_skinny<Format::q8_0>(p.stream, a, grid);
    case Format::q4_k:
      return launch_skinny<Format::q4_k>(p.stream, a, grid);
    case Format::q6_k:
      return launch_skinny<Format::q6_k>(p.stream, a, grid);
    default:
      refuse("a weight of this format is not supported");
  }
}

}  // namespace snug::kernels::cuda
