// The ops a model is written in. Each checks shapes, then runs the back end its stream names.
//
// A wrong shape here is a fault of the caller inside Snug, not of the user: it throws std::logic_error, which
// the engine turns into the failure of that step's requests.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/linear.h"

namespace snug::ops {

void embedding(const kernels::EmbeddingParams& p);
void rms_norm(const kernels::RmsNormParams& p);
void linear(const kernels::LinearParams& p);
void rope_store(const kernels::RopeStoreParams& p);
void attention(const kernels::AttentionParams& p);
void swiglu(const kernels::SwigluParams& p);
void rope_angles(const kernels::RopeAnglesParams& p);

// How large a call may be; what scratch depends on.
struct ScratchLimits {
  Backend backend = Backend::cpu;
  int threads = 1;
  std::int64_t tokens = 0;
  std::int64_t sequences = 1;
  std::int64_t cols = 0;  // inputs of the widest product
};
std::int64_t linear_workspace_bytes(const ScratchLimits& limits);
std::int64_t attention_workspace_bytes(int heads, int head_dim, const ScratchLimits& limits);

}  // namespace snug::ops
