// Causal attention over the paged KV cache, prompt chunks and single tokens mixed in one call.
#pragma once

#include <cstdint>
#include <span>

#include "core/device.h"
#include "core/values.h"
#include "kv/paged_view.h"

namespace snug::kernels {

struct AttentionParams {
  Stream stream;
  ConstValues q;              // (tokens, heads * head_dim), after rope, row stride q_stride
  Values out;                 // (tokens, heads * head_dim), dtype of q
  int heads = 0;              // a multiple of kv.kv_heads; head h reads kv head h / (heads / kv_heads)
  float scale = 0;            // usually 1 / sqrt(head_dim)
  std::int64_t q_stride = 0;  // elements between rows of q; 0: heads * head_dim
  kv::PagedLayer kv;
  std::span<const kv::SequenceView> sequences;  // host; on cuda the page tables in it are not read
  kv::DeviceSequences device;                   // cuda: the same sequences
  std::int64_t window = 0;         // sliding window: a query at position t sees (t - window, t]; 0 means all
  std::byte* workspace = nullptr;  // attention_workspace_bytes, 64-byte aligned; ref needs none
  std::int64_t workspace_bytes = 0;
  // cuda: (sequences * heads) words of device memory, zero before the first call; a call leaves them zero.
  std::uint32_t* arrivals = nullptr;

  std::int64_t row_stride() const { return q_stride > 0 ? q_stride : std::int64_t{heads} * kv.head_dim; }
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
namespace cuda {
// Partial results of split contexts, for at most `sequences` single-token sequences.
std::int64_t attention_workspace_bytes(int heads, int head_dim, std::int64_t sequences);
// Sequences of one query token go to the split-context kernel, longer ones to the tiled kernels; where every
// sequence has one (the decode step), only device memory decides what is computed. q, out and KV are
// bfloat16, or all float32 (exact arithmetic). How a context is split depends on its length alone, so a row's
// result does not depend on what else is in the batch.
void attention(const AttentionParams& p);
}  // namespace cuda

}  // namespace snug::kernels
