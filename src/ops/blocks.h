// The products of a decoder layer with what stands around them. On the CPU, and on a GPU for many tokens,
// they are the plain ops one after the other; on a GPU and for few tokens, one kernel each.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/decode_layers.h"
#include "kernels/linear.h"
#include "kernels/residual.h"

namespace snug::ops {

// Scratch and arithmetic that the products of one forward pass share.
struct ProductScratch {
  Values normed;  // (tokens, hidden)
  std::byte* linear = nullptr;
  std::int64_t linear_bytes = 0;
};

struct NormLinearParams {
  Stream stream;
  kernels::Residual* residual = nullptr;
  const float* norm = nullptr;  // (hidden)
  float eps = 0;
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::span<const kernels::LinearOutput> outputs;
  kernels::Precision precision = kernels::Precision::fast;
  ProductScratch scratch;
};

// outputs = norm(residual) · Wᵀ + bias. What a GPU leaves to the reader goes to `pending`, whose columns are
// the outputs' one after the other; pending.parts is memory for min(tokens, skinny tokens) rows.
void norm_linear(const NormLinearParams& p, kernels::Pending& pending);

// outputs[0] = silu(norm(residual) · Gᵀ) * (norm(residual) · Uᵀ), where G and U are outputs[0] and
// outputs[1].
void norm_gated(const NormLinearParams& p);

// residual += x · Wᵀ
struct LinearAddParams {
  Stream stream;
  ConstValues x;  // (tokens, weight.cols), row stride x_stride
  std::int64_t x_stride = 0;
  std::int64_t tokens = 0;
  kernels::WeightView weight;
  kernels::Residual* residual = nullptr;
  kernels::Precision precision = kernels::Precision::fast;
  ProductScratch scratch;
};
void linear_add(const LinearAddParams& p);

// Adds what is pending, for readers that do not.
void settle(const Stream& stream, kernels::Residual& residual, std::int64_t tokens, std::int64_t hidden);

// A whole decode step of one sequence as one kernel, and whether there is one for this model.
bool decode_layers_supports(const Stream& stream, const kernels::DecodeModel& model);
void decode_layers(const kernels::DecodeLayersParams& p);

}  // namespace snug::ops
