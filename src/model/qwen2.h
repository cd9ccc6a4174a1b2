// The Qwen2 decoder (Qwen2, Qwen2.5; also llama-style models without biases).
// Source: Qwen2 technical report (arXiv:2407.10671).
#pragma once

#include <functional>
#include <span>

#include "kernels/residual.h"
#include "kv/kv_cache.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/layer_source.h"
#include "model/rope.h"
#include "model/workspace.h"

namespace snug::model {

// Stateless between calls but for the weights it reads through `layers` and the KV pages it writes.
class Qwen2 {
 public:
  Qwen2(Config config, Stream stream, kernels::Precision precision);

  // Runs every layer over the batch and leaves the final, normed hidden state of batch.logit_rows in
  // workspace.final_hidden (rows in the order asked). batch.tokens() <= workspace.limits.tokens.
  // `observe`, where given, sees the residual stream before each layer and, last, after the final norm: where
  // the stream's memory is.
  using Observer = std::function<void(int layer, ConstValues hidden)>;
  void forward(const Batch& batch, LayerSource& layers, const kv::KvCache& kv, Workspace& workspace,
               const Observer& observe = {}) const;

  // Projects rows [begin, begin + count) of workspace.final_hidden into workspace.logits (count, vocab).
  // count <= workspace.limits.logit_rows.
  void project(std::int64_t begin, std::int64_t count, LayerSource& layers, Workspace& workspace) const;

  // forward() and project() for one token of one sequence as one kernel, where there is one that takes this
  // model; leaves workspace.final_hidden as it is. False, and nothing done, otherwise.
  bool decode(const Batch& batch, LayerSource& layers, const kv::KvCache& kv, Workspace& workspace) const;

  const Config& config() const { return config_; }
  const Stream& stream() const { return stream_; }
  kernels::Precision precision() const { return precision_; }

 private:
  void embed(const Batch& batch, const OuterWeights& outer, Workspace& s) const;
  float score_scale() const;
  void attention_block(const LayerWeights& w, int index, const Batch& batch, const kv::KvCache& kv,
                       kernels::Residual& residual, Workspace& s) const;
  void mlp_block(const LayerWeights& w, std::int64_t tokens, kernels::Residual& residual, Workspace& s) const;

  Config config_;
  RopeTable rope_;
  Stream stream_;
  kernels::Precision precision_;
};

}  // namespace snug::model
