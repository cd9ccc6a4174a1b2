// Causal attention over the paged KV cache, prompt chunks and single tokens mixed in one call.
#pragma once

#include <cstdint>
#include <span>

#include "core/device.h"
#include "kv/paged_view.h"

namespace snug::kernels {

struct AttentionParams {
  Stream stream;
  const float* q = nullptr;  // (tokens, heads * head_dim), after rope
  float* out = nullptr;      // (tokens, heads * head_dim)
  int heads = 0;             // a multiple of kv.kv_heads; head h reads kv head h / (heads / kv_heads)
  float scale = 0;           // usually 1 / sqrt(head_dim)
  kv::PagedLayer kv;
  std::span<const kv::SequenceView> sequences;
  std::int64_t window = 0;         // sliding window: a query at position t sees (t - window, t]; 0 means all
  std::byte* workspace = nullptr;  // attention_workspace_bytes, 64-byte aligned; ref needs none
  std::int64_t workspace_bytes = 0;
};

namespace ref {
void attention(const AttentionParams& p);  // double accumulators, plain softmax
}
namespace cpu {
// Bounds the scratch for any batch and context: tiles with an online softmax. A row's result depends only on
// its own query, position and KV, bit for bit: not on the chunking, on what else is in the batch, or on the
// threads.
std::int64_t attention_workspace_bytes(int heads, int head_dim, int threads);
void attention(const AttentionParams& p);
}  // namespace cpu

}  // namespace snug::kernels
