#include "model/qwen2.h"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "ops/ops.h"

namespace snug::model {

using kernels::Precision;

Qwen2::Qwen2(Config config, Stream stream, kernels::Precision precision)
    : config_(std::move(config)), rope_(make_rope(config_)), stream_(stream), precision_(precision) {}

void Qwen2::forward(const Batch& batch, LayerSource& layers, const kv::KvCache& kv, Workspace& s,
                    const Observer& observe) const {
  const std::int64_t tokens = batch.tokens();
  if (tokens > s.limits.tokens || std::ssize(batch.positions) != tokens) {
    throw std::logic_error("forward: the batch does not fit the workspace");
  }
  const OuterWeights& outer = layers.outer();
  fill_cos_sin(rope_, batch.positions, s.cos_sin);
  ops::embedding({stream_, outer.embedding, batch.ids.data(), tokens, s.hidden});
  for (int i = 0; i < config_.layers; ++i) {
    if (observe) observe(i, s.hidden);
    const LayerWeights& w = layers.layer(i);
    attention_block(w, i, batch, kv, s);
    mlp_block(w, tokens, s);
  }
  if (observe) {
    norm(s.hidden, outer.final_norm, tokens, s.normed);
    observe(static_cast<int>(config_.layers), s.normed);
  }
  const std::int64_t hidden = config_.hidden;
  for (std::size_t i = 0; i < batch.logit_rows.size(); ++i) {
    norm(s.hidden + batch.logit_rows[i] * hidden, outer.final_norm, 1,
         s.final_hidden + static_cast<std::int64_t>(i) * hidden);
  }
}

void Qwen2::attention_block(const LayerWeights& w, int index, const Batch& batch, const kv::KvCache& kv,
                            Workspace& s) const {
  const std::int64_t tokens = batch.tokens();
  const kv::PagedLayer pages = kv.layer(index);
  norm(s.hidden, w.input_norm, tokens, s.normed);
  const kernels::LinearOutput qkv[] = {{w.q, w.q_bias, s.q, config_.q_dim()},
                                       {w.k, w.k_bias, s.k, config_.kv_dim()},
                                       {w.v, w.v_bias, s.v, config_.kv_dim()}};
  // Softmax magnifies errors of queries and keys, and what attention returns is added to every later layer:
  // eight bits are too few for this tenth of the work.
  const Precision precision = precision_ == Precision::fast ? Precision::fine : precision_;
  linear(s.normed, tokens, qkv, precision, s);
  ops::rope_store({.stream = stream_,
                   .q = s.q,
                   .k = s.k,
                   .v = s.v,
                   .cos_sin = s.cos_sin,
                   .positions = batch.positions.data(),
                   .tokens = tokens,
                   .heads = static_cast<int>(config_.heads),
                   .interleaved = config_.interleaved_rope,
                   .kv = pages,
                   .sequences = batch.sequences});
  ops::attention({.stream = stream_,
                  .q = s.q,
                  .out = s.attended,
                  .heads = static_cast<int>(config_.heads),
                  .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                  .kv = pages,
                  .sequences = batch.sequences,
                  .window = config_.window_of_layer(index),
                  .workspace = s.attention_scratch,
                  .workspace_bytes = s.attention_scratch_bytes});
  const kernels::LinearOutput out[] = {{w.o, nullptr, s.hidden, config_.hidden, true}};
  linear(s.attended, tokens, out, precision, s);
}

void Qwen2::mlp_block(const LayerWeights& w, std::int64_t tokens, Workspace& s) const {
  const std::int64_t intermediate = config_.intermediate;
  norm(s.hidden, w.post_norm, tokens, s.normed);
  const kernels::LinearOutput gate_up[] = {{w.gate, nullptr, s.gate, intermediate},
                                           {w.up, nullptr, s.up, intermediate}};
  linear(s.normed, tokens, gate_up, precision_, s);
  ops::swiglu({stream_, s.gate, s.up, s.gate, tokens, intermediate, intermediate, intermediate});
  const kernels::LinearOutput down[] = {{w.down, nullptr, s.hidden, config_.hidden, true}};
  linear(s.gate, tokens, down, precision_, s);
}

void Qwen2::project(std::int64_t begin, std::int64_t count, LayerSource& layers, Workspace& s) const {
  if (count > s.limits.logit_rows) throw std::logic_error("project: more rows than the workspace holds");
  const kernels::LinearOutput out[] = {{layers.outer().lm_head, nullptr, s.logits, config_.vocab}};
  linear(s.final_hidden + begin * config_.hidden, count, out, precision_, s);
}

void Qwen2::linear(const float* x, std::int64_t tokens, std::span<const kernels::LinearOutput> outputs,
                   kernels::Precision precision, Workspace& s) const {
  const std::int64_t cols = outputs.front().weight.cols;
  ops::linear({stream_, x, cols, tokens, outputs, precision, s.linear_scratch, s.linear_scratch_bytes});
}

void Qwen2::norm(const float* x, const float* weight, std::int64_t tokens, float* y) const {
  ops::rms_norm({stream_, x, weight, y, tokens, config_.hidden, config_.rms_eps});
}

}  // namespace snug::model
