// The most likely tokens of each row of logits, on the device: all that a request with top_k needs of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device.h"

namespace snug::kernels {

struct LikelyToken {
  float logit = 0;
  std::int32_t id = 0;
};

// Of one row, in no order: every token whose logit is at least as large as that of the kLikelyTokens-th, and
// a few more that come near it. Where more than kLikelyRoom do (equal logits), `count` says so and the list
// is useless.
inline constexpr int kLikelyTokens = 256;
inline constexpr int kLikelyRoom = 1023;
struct LikelyTokens {
  std::int32_t count = 0;
  std::int32_t unused = 0;
  LikelyToken tokens[kLikelyRoom];
};

struct LikelyParams {
  Stream stream;
  const float* logits = nullptr;  // (rows, vocab), none of them NaN
  std::int64_t rows = 0;
  std::int64_t vocab = 0;
  std::int64_t usable_vocab = 0;   // only ids below count
  LikelyTokens* likely = nullptr;  // (rows)
  std::byte* workspace = nullptr;  // likely_workspace_bytes
  std::int64_t workspace_bytes = 0;
};

namespace cuda {
std::int64_t likely_workspace_bytes(std::int64_t rows);
void likely(const LikelyParams& p);
}  // namespace cuda

}  // namespace snug::kernels
