// The activations of a forward pass, carved from blocks whose sizes activation_rows() declares.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ledger.h"
#include "core/values.h"
#include "model/size_table.h"

namespace snug::model {

// Owns the memory. One workspace serves one forward pass at a time.
class Workspace {
 public:
  static Result<Workspace> create(const Config& config, const ForwardLimits& limits, Ledger& ledger);

  ForwardLimits limits;
  Values hidden;        // (tokens, hidden) float32: the residual stream
  Values normed;        // (tokens, hidden)
  Values qkv;           // (tokens, (heads + 2 kv_heads) * head_dim)
  Values attended;      // (tokens, heads * head_dim)
  Values gate_up;       // (tokens, 2 * intermediate)
  Values cos_sin;       // (tokens, head_dim) float32
  Values final_hidden;  // (tokens, hidden): normed rows that logits are asked of
  Values logits;        // (logit_rows, vocab) float32
  // On a GPU, of the few tokens whose products stay partial sums (kernels/residual.h), float32:
  Values hidden_next;     // (few, hidden)
  Values hidden_parts;    // (2, few, hidden)
  Values qkv_parts;       // (2, few, (heads + 2 kv_heads) * head_dim)
  Values decode_sync;     // (kDecodeSyncWords) 32-bit words (kernels/decode_layers.h), zero before first use
  Values attention_sync;  // (sequences, heads) words: AttentionParams::arrivals, zero before first use
  std::byte* linear_scratch = nullptr;
  std::int64_t linear_scratch_bytes = 0;
  std::byte* attention_scratch = nullptr;
  std::int64_t attention_scratch_bytes = 0;

 private:
  std::vector<Allocation> blocks_;
};

}  // namespace snug::model
