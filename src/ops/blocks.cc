#include "ops/blocks.h"

#include <utility>
#include <vector>

#include "kernels/skinny_linear.h"
#include "ops/ops.h"
#include "quant/format.h"

namespace snug::ops {
namespace {

using kernels::LinearOutput;
using kernels::Precision;
using kernels::WeightView;

bool is_skinny(const Stream& stream, std::int64_t tokens, const WeightView& w, Precision precision) {
  return stream.backend == Backend::cuda && precision != Precision::exact &&
         tokens <= kernels::cuda::kSkinnyTokens && kernels::cuda::skinny_supports(w);
}

std::vector<WeightView> merged(std::span<const LinearOutput> outputs) {
  std::vector<WeightView> weights;
  for (const auto& out : outputs) weights.push_back(out.weight);
  return kernels::cuda::merged(weights);
}

void swap_if_settled(kernels::Residual& residual) {
  if (residual.pending.count == 0) return;
  std::swap(residual.x, residual.next);
  residual.pending.count = 0;
}

kernels::LinearParams plain(const NormLinearParams& p, std::span<const LinearOutput> outputs) {
  return {p.stream, p.scratch.normed, p.hidden,         p.tokens,
          outputs,  p.precision,      p.scratch.linear, p.scratch.linear_bytes};
}

void norm_to_scratch(const NormLinearParams& p) {
  settle(p.stream, *p.residual, p.tokens, p.hidden);
  rms_norm({p.stream, p.residual->x, p.norm, p.scratch.normed, p.tokens, p.hidden, p.eps});
}

}  // namespace

void settle(const Stream& stream, kernels::Residual& residual, std::int64_t tokens, std::int64_t hidden) {
  if (residual.pending.count > 0) kernels::cuda::settle({stream, &residual, tokens, hidden});
}

void norm_linear(const NormLinearParams& p, kernels::Pending& pending) {
  if (p.stream.backend != Backend::cuda) {
    norm_to_scratch(p);
    return linear(plain(p, p.outputs));
  }
  pending.bias = p.outputs.front().bias;
  bool skinny = true;
  std::int64_t columns = 0;
  for (const auto& out : p.outputs) {
    skinny = skinny && is_skinny(p.stream, p.tokens, out.weight, p.precision);
    columns += out.weight.rows;
  }
  if (!skinny) {
    std::vector<LinearOutput> outputs(p.outputs.begin(), p.outputs.end());
    for (auto& out : outputs) out.bias = nullptr;
    pending.count = 0;
    norm_to_scratch(p);
    return linear(plain(p, outputs));
  }
  pending.count = 2;
  pending.part_stride = p.tokens * columns;
  std::int64_t column = 0;
  for (const WeightView& weight : merged(p.outputs)) {
    kernels::cuda::skinny_linear({.stream = p.stream,
                                  .tokens = p.tokens,
                                  .weight = weight,
                                  .residual = p.residual,
                                  .norm = p.norm,
                                  .eps = p.eps,
                                  .parts = pending.parts + column,
                                  .part_stride = pending.part_stride,
                                  .y_stride = columns});
    swap_if_settled(*p.residual);
    column += weight.rows;
  }
}

void norm_gated(const NormLinearParams& p) {
  const LinearOutput &gate = p.outputs[0], &up = p.outputs[1];
  if (is_skinny(p.stream, p.tokens, gate.weight, p.precision) &&
      kernels::cuda::is_behind(gate.weight, up.weight) && gate.weight.rows == up.weight.rows) {
    kernels::cuda::skinny_linear({.stream = p.stream,
                                  .tokens = p.tokens,
                                  .weight = merged(p.outputs)[0],
                                  .residual = p.residual,
                                  .norm = p.norm,
                                  .eps = p.eps,
                                  .gated = true,
                                  .y = gate.y,
                                  .y_stride = gate.y_stride});
    return swap_if_settled(*p.residual);
  }
  norm_to_scratch(p);
  linear(plain(p, p.outputs));
  swiglu({p.stream, gate.y, up.y, gate.y, p.tokens, gate.weight.rows, gate.y_stride, gate.y_stride});
}

void linear_add(const LinearAddParams& p) {
  const std::int64_t hidden = p.weight.rows;
  kernels::Residual& residual = *p.residual;
  if (is_skinny(p.stream, p.tokens, p.weight, p.precision) && residual.pending.count == 0) {
    residual.pending.count = 2;
    residual.pending.part_stride = p.tokens * hidden;
    return kernels::cuda::skinny_linear({.stream = p.stream,
                                         .tokens = p.tokens,
                                         .weight = p.weight,
                                         .x = p.x,
                                         .x_stride = p.x_stride,
                                         .parts = residual.pending.parts,
                                         .part_stride = residual.pending.part_stride,
                                         .y_stride = hidden});
  }
  settle(p.stream, residual, p.tokens, hidden);
  const LinearOutput out[] = {{p.weight, nullptr, residual.x, hidden, true}};
  linear({p.stream, p.x, p.x_stride, p.tokens, out, p.precision, p.scratch.linear, p.scratch.linear_bytes});
}

bool decode_layers_supports(const Stream& stream, const kernels::DecodeModel& model) {
  return stream.backend == Backend::cuda && kernels::cuda::decode_layers_supports(stream, model);
}

void decode_layers(const kernels::DecodeLayersParams& p) {
  kernels::cuda::decode_layers(p);
}

}  // namespace snug::ops
