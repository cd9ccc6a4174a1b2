#include "model/qwen2.h"

#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ops/blocks.h"
#include "ops/ops.h"

namespace snug::model {
namespace {

ops::ProductScratch scratch(const Workspace& s) {
  return {s.normed, s.linear_scratch, s.linear_scratch_bytes};
}

}  // namespace

using kernels::Precision;

Qwen2::Qwen2(Config config, Stream stream, kernels::Precision precision)
    : config_(std::move(config)), rope_(make_rope(config_)), stream_(stream), precision_(precision) {}

void Qwen2::forward(const Batch& batch, LayerSource& layers, const kv::KvCache& kv, Workspace& s,
                    const Observer& observe) const {
  const std::int64_t tokens = batch.tokens(), hidden = config_.hidden;
  if (tokens > s.limits.tokens || std::ssize(batch.positions) != tokens) {
    throw std::logic_error("forward: the batch does not fit the workspace");
  }
  const OuterWeights& outer = layers.outer();
  kernels::Residual residual{s.hidden.f32(), s.hidden_next.f32(), {s.hidden_parts.f32()}};
  embed(batch, outer, s);
  for (int i = 0; i < config_.layers; ++i) {
    if (observe) {
      ops::settle(stream_, residual, tokens, hidden);
      observe(i, residual.x);
    }
    const LayerWeights& w = layers.layer(i);
    attention_block(w, i, batch, kv, residual, s);
    mlp_block(w, tokens, residual, s);
  }
  ops::settle(stream_, residual, tokens, hidden);
  if (observe) {
    ops::rms_norm({stream_, residual.x, outer.final_norm, s.normed, tokens, hidden, config_.rms_eps});
    observe(static_cast<int>(config_.layers), s.normed);
  }
  ops::rms_norm({stream_, residual.x, outer.final_norm, s.final_hidden, std::ssize(batch.logit_rows), hidden,
                 config_.rms_eps, batch.logit_rows_data()});
}

void Qwen2::embed(const Batch& batch, const OuterWeights& outer, Workspace& s) const {
  ops::rope_angles({stream_, rope_.inverse_frequencies, rope_.attention_factor, batch.positions_data(),
                    batch.tokens(), s.cos_sin.f32()});
  ops::embedding({stream_, outer.embedding, batch.ids_data(), batch.tokens(), s.hidden.f32()});
}

float Qwen2::score_scale() const {
  return 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
}

bool Qwen2::decode(const Batch& batch, LayerSource& layers, const kv::KvCache& kv, Workspace& s) const {
  if (stream_.backend != Backend::cuda || precision_ == Precision::exact || config_.interleaved_rope)
    return false;
  if (batch.tokens() != 1 || batch.sequences.size() != 1 || batch.logit_rows.size() != 1) return false;
  const OuterWeights& outer = layers.outer();
  std::vector<kernels::DecodeLayer> all;
  for (int i = 0; i < config_.layers; ++i) {
    const LayerWeights& w = layers.layer(i);
    all.push_back({.input_norm = w.input_norm,
                   .q = w.q,
                   .k = w.k,
                   .v = w.v,
                   .qkv_bias = w.q_bias,
                   .o = w.o,
                   .post_norm = w.post_norm,
                   .gate = w.gate,
                   .up = w.up,
                   .down = w.down,
                   .kv = kv.layer(i),
                   .window = config_.window_of_layer(i)});
  }
  const kernels::DecodeLayersParams p = {.stream = stream_,
                                         .model = {.layers = all,
                                                   .final_norm = outer.final_norm,
                                                   .lm_head = outer.lm_head,
                                                   .eps = config_.rms_eps,
                                                   .heads = static_cast<int>(config_.heads),
                                                   .scale = score_scale()},
                                         .sequences = batch.device_sequences(),
                                         .cos_sin = s.cos_sin.f32(),
                                         .x = s.hidden.f32(),
                                         .next = s.hidden_next.f32(),
                                         .hidden_parts = s.hidden_parts.f32(),
                                         .qkv_parts = s.qkv_parts.f32(),
                                         .attended = s.attended.data,
                                         .gated = s.gate_up.data,
                                         .attention = s.attention_scratch,
                                         .sync = static_cast<std::uint32_t*>(s.decode_sync.data),
                                         .logits = s.logits.f32()};
  if (!ops::decode_layers_supports(stream_, p.model)) return false;
  embed(batch, outer, s);
  ops::decode_layers(p);
  return true;
}

void Qwen2::attention_block(const LayerWeights& w, int index, const Batch& batch, const kv::KvCache& kv,
                            kernels::Residual& residual, Workspace& s) const {
  const std::int64_t tokens = batch.tokens(), q_dim = config_.q_dim(), kv_dim = config_.kv_dim();
  const std::int64_t stride = q_dim + 2 * kv_dim;
  const kv::PagedLayer pages = kv.layer(index);
  const Values q = s.qkv, k = s.qkv.at(q_dim), v = s.qkv.at(q_dim + kv_dim);
  const kernels::LinearOutput qkv[] = {
      {w.q, w.q_bias, q, stride}, {w.k, w.k_bias, k, stride}, {w.v, w.v_bias, v, stride}};
  // Softmax magnifies errors of queries and keys, and what attention returns is added to every later layer:
  // eight bits are too few for this tenth of the work.
  const Precision precision = precision_ == Precision::fast ? Precision::fine : precision_;
  kernels::Pending pending{s.qkv_parts.f32()};
  ops::norm_linear(
      {stream_, &residual, w.input_norm, config_.rms_eps, tokens, config_.hidden, qkv, precision, scratch(s)},
      pending);
  ops::rope_store({.stream = stream_,
                   .q = q,
                   .k = k,
                   .v = v,
                   .cos_sin = s.cos_sin.f32(),
                   .positions = batch.positions_data(),
                   .tokens = tokens,
                   .heads = static_cast<int>(config_.heads),
                   .interleaved = config_.interleaved_rope,
                   .q_stride = stride,
                   .kv_stride = stride,
                   .kv = pages,
                   .sequences = batch.sequences,
                   .device = batch.device_sequences(),
                   .pending = pending});
  ops::attention({.stream = stream_,
                  .q = q,
                  .out = s.attended,
                  .heads = static_cast<int>(config_.heads),
                  .scale = score_scale(),
                  .q_stride = stride,
                  .kv = pages,
                  .sequences = batch.sequences,
                  .device = batch.device_sequences(),
                  .window = config_.window_of_layer(index),
                  .workspace = s.attention_scratch,
                  .workspace_bytes = s.attention_scratch_bytes,
                  .arrivals = static_cast<std::uint32_t*>(s.attention_sync.data)});
  ops::linear_add({stream_, s.attended, q_dim, tokens, w.o, &residual, precision, scratch(s)});
}

void Qwen2::mlp_block(const LayerWeights& w, std::int64_t tokens, kernels::Residual& residual,
                      Workspace& s) const {
  const std::int64_t intermediate = config_.intermediate, stride = 2 * intermediate;
  const kernels::LinearOutput gate_up[] = {{w.gate, nullptr, s.gate_up, stride},
                                           {w.up, nullptr, s.gate_up.at(intermediate), stride}};
  ops::norm_gated({stream_, &residual, w.post_norm, config_.rms_eps, tokens, config_.hidden, gate_up,
                   precision_, scratch(s)});
  ops::linear_add({stream_, s.gate_up, stride, tokens, w.down, &residual, precision_, scratch(s)});
}

void Qwen2::project(std::int64_t begin, std::int64_t count, LayerSource& layers, Workspace& s) const {
  if (count > s.limits.logit_rows) throw std::logic_error("project: more rows than the workspace holds");
  const kernels::LinearOutput out[] = {{layers.outer().lm_head, nullptr, s.logits, config_.vocab}};
  ops::linear({stream_, s.final_hidden.at(begin * config_.hidden), config_.hidden, count, out, precision_,
               s.linear_scratch, s.linear_scratch_bytes});
}

}  // namespace snug::model
