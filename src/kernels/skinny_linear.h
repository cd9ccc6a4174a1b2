// Products of few tokens with a weight matrix, at the speed of the memory that the weights come from; what
// stands around the product is folded in. Only GPUs have this: elsewhere ops/ composes it from the plain ops.
//
// A result depends on the weights and its own token alone: not on the batch, bit for bit.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "core/values.h"
#include "kernels/linear.h"
#include "kernels/residual.h"

namespace snug::kernels {

struct SkinnyLinearParams {
  Stream stream;
  std::int64_t tokens = 0;  // 1 … cuda::kSkinnyTokens
  WeightView weight;        // (rows, cols), packed

  // The input, either as it is …
  ConstValues x;  // (tokens, cols) bf16, row stride x_stride
  std::int64_t x_stride = 0;
  // … or the RMS norm of the residual stream, rounded to bf16. What is pending there is added first and the
  // sum goes to residual->next (pending.count > 0); the caller swaps.
  const Residual* residual = nullptr;
  const float* norm = nullptr;  // (cols)
  float eps = 0;

  // The result, one of:
  // parts: two partial sums (2, tokens, *) float32; the second is zero where there was nothing to split.
  float* parts = nullptr;
  std::int64_t part_stride = 0;  // floats from part 0 to part 1
  // gated: the weight is gate's rows and then up's; y = silu(gate) * up, (tokens, rows / 2) bf16.
  bool gated = false;
  // y: (tokens, rows) float32 or bf16, or the gated result.
  Values y;
  std::int64_t y_stride = 0;  // floats between tokens of y, or of a part
};

namespace cuda {
inline constexpr std::int64_t kSkinnyTokens = 8;
// Whether the kernel takes this weight: format, layout and sizes.
bool skinny_supports(const WeightView& weight);
void skinny_linear(const SkinnyLinearParams& p);
}  // namespace cuda

}  // namespace snug::kernels
