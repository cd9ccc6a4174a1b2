// A batch's arrays on the GPU, and what comes back of its rows. Sizes are rows of model::device_batch_rows().
//
// The host may be one step ahead: arrays and tokens have two places in pinned memory, which steps take in
// turn.
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

  // Where a batch's token ids come from: the host, or the rows of the step before, one token of each.
  enum class Ids : std::uint8_t { from_host, chosen };
  // Enqueues the copy of a batch's arrays; the result is valid until the next call.
  const model::DeviceBatch& upload(const model::Batch& batch, int block_size, Ids ids = Ids::from_host);

  // Enqueues the choice of the most likely token of each of the first `rows` logits, for the host and as the
  // ids of the next batch.
  void choose_greedy(const Stream& stream, const model::Workspace& workspace, std::int64_t rows,
                     std::int64_t vocab, int usable_vocab);
  // Enqueues the copy of what was chosen for the batch uploaded last; says where it will be.
  int bring_greedy(std::int64_t rows);
  // What was chosen. Waits for that copy.
  std::vector<TokenLogprob> greedy(int place, std::int64_t rows);
  // Enqueues the search for the most likely tokens of each of the first `rows` logits, and their copy.
  void find_likely(const Stream& stream, const model::Workspace& workspace, std::int64_t rows,
                   std::int64_t vocab, int usable_vocab);
  // What was found, once greedy() has waited for a copy enqueued later; valid until the next search.
  std::span<const kernels::LikelyTokens> likely(std::int64_t rows) const;
  // The first `count` logits, on the host. Waits for the step.
  float* logits(const model::Workspace& workspace, std::int64_t count);

 private:
  std::int32_t* chosen_on_host(int place) const;

  Gpu* gpu_ = nullptr;
  struct Place {
    GpuEvent uploaded, brought;
  };
  Place places_[2];
  int place_ = 0;               // of the batch uploaded last
  std::int64_t max_pages_ = 0;  // of a sequence
  Allocation device_, pinned_, sampling_, sampled_, sampled_host_, likely_, likely_host_, logits_;
  model::DeviceBatch batch_;
};

}  // namespace snug::engine
