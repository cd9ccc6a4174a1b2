// A batch's arrays on the GPU, and what comes back of its rows. Sizes are rows of model::device_batch_rows().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/gpu.h"
#include "core/ledger.h"
#include "engine/sampler.h"
#include "kernels/likely.h"
#include "model/batch.h"
#include "model/workspace.h"

namespace snug::engine {

// Used from the engine's thread. `gpu` must outlive it.
class DeviceBatch {
 public:
  static Result<DeviceBatch> create(Gpu& gpu, const model::ForwardLimits& limits, std::int64_t max_model_len,
                                    int block_size, std::int64_t vocab, Ledger& ledger);

  // Enqueues the copy of a batch's arrays; the result is valid until the next call.
  const model::DeviceBatch& upload(const model::Batch& batch, int block_size);

  // Enqueues the choice of the most likely token of each of the first `rows` logits.
  void choose_greedy(const Stream& stream, const model::Workspace& workspace, std::int64_t rows,
                     std::int64_t vocab, int usable_vocab);
  // What was chosen. Waits for the step.
  std::vector<TokenLogprob> greedy(std::int64_t rows);
  // Enqueues the search for the most likely tokens of each of the first `rows` logits, and their copy.
  void find_likely(const Stream& stream, const model::Workspace& workspace, std::int64_t rows,
                   std::int64_t vocab, int usable_vocab);
  // What was found, once greedy() has waited for the step; valid until the next search.
  std::span<const kernels::LikelyTokens> likely(std::int64_t rows) const;
  // The first `count` logits, on the host. Waits for the step.
  float* logits(const model::Workspace& workspace, std::int64_t count);

 private:
  Gpu* gpu_ = nullptr;
  std::int64_t max_pages_ = 0;  // of a sequence
  Allocation device_, pinned_, sampling_, sampled_, sampled_host_, likely_, likely_host_, logits_;
  model::DeviceBatch batch_;
};

}  // namespace snug::engine
