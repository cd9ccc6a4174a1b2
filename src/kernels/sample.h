// The most likely token of each row of logits, on the device: what greedy requests need. Ties go to the
// lowest id, as in engine/sampler.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device.h"

namespace snug::kernels {

struct SampleParams {
  Stream stream;
  const float* logits = nullptr;  // (rows, vocab)
  std::int64_t rows = 0;
  std::int64_t vocab = 0;
  std::int64_t usable_vocab = 0;   // only ids below can be chosen
  std::int32_t* tokens = nullptr;  // (rows); -1: a usable logit is NaN or +inf, or all are -inf
  std::int32_t* ids = nullptr;     // (rows) or null: the same for the step after, 0 in place of -1
  float* logprobs = nullptr;       // (rows): of the token, under the model's own distribution
  std::byte* workspace = nullptr;  // sample_workspace_bytes
  std::int64_t workspace_bytes = 0;
};

namespace cuda {
std::int64_t sample_workspace_bytes(std::int64_t rows, std::int64_t vocab);
void sample(const SampleParams& p);
}  // namespace cuda

}  // namespace snug::kernels
