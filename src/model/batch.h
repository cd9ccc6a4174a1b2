// One step's work: tokens of several sequences, prompt chunks and single tokens mixed.
#pragma once

#include <cstdint>
#include <span>

#include "kv/paged_view.h"

namespace snug::model {

// A batch's arrays in device memory.
struct DeviceBatch {
  const std::int32_t* ids = nullptr;         // (tokens)
  const std::int32_t* positions = nullptr;   // (tokens)
  const std::int32_t* logit_rows = nullptr;  // as many as the host's
  kv::DeviceSequences sequences;
};

// Views; the engine owns the arrays. Row r of the batch is token ids[r] at position positions[r] of its
// sequence.
struct Batch {
  std::span<const std::int32_t> ids;            // (tokens)
  std::span<const std::int32_t> positions;      // (tokens)
  std::span<const kv::SequenceView> sequences;  // which rows belong together, and their pages
  std::span<const std::int32_t> logit_rows;     // rows whose final hidden state is asked for, rising
  const DeviceBatch* device = nullptr;          // the same on a GPU, where the stream is one's
  std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()); }

  // What kernels read.
  const std::int32_t* ids_data() const { return device != nullptr ? device->ids : ids.data(); }
  const std::int32_t* positions_data() const {
    return device != nullptr ? device->positions : positions.data();
  }
  const std::int32_t* logit_rows_data() const {
    return device != nullptr ? device->logit_rows : logit_rows.data();
  }
  kv::DeviceSequences device_sequences() const {
    return device != nullptr ? device->sequences : kv::DeviceSequences{};
  }
};

}  // namespace snug::model
