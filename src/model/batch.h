// One step's work: tokens of several sequences, prompt chunks and single tokens mixed.
#pragma once

#include <cstdint>
#include <span>

#include "kv/paged_view.h"

namespace snug::model {

// Views; the engine owns the arrays. Row r of the batch is token ids[r] at position positions[r] of its
// sequence.
struct Batch {
  std::span<const std::int32_t> ids;            // (tokens)
  std::span<const std::int32_t> positions;      // (tokens)
  std::span<const kv::SequenceView> sequences;  // which rows belong together, and their pages
  std::span<const std::int32_t> logit_rows;     // rows whose final hidden state is asked for, rising
  std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()); }
};

}  // namespace snug::model
