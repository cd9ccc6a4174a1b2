// The activations of a forward pass, carved from blocks whose sizes activation_rows() declares.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ledger.h"
#include "model/size_table.h"

namespace snug::model {

// Owns the memory. One workspace serves one forward pass at a time.
class Workspace {
 public:
  static Result<Workspace> create(const Config& config, const ForwardLimits& limits, Ledger& ledger);

  ForwardLimits limits;
  float* hidden = nullptr;        // (tokens, hidden): the residual stream
  float* normed = nullptr;        // (tokens, hidden)
  float* q = nullptr;             // (tokens, heads * head_dim)
  float* k = nullptr;             // (tokens, kv_heads * head_dim)
  float* v = nullptr;             // (tokens, kv_heads * head_dim)
  float* attended = nullptr;      // (tokens, heads * head_dim)
  float* gate = nullptr;          // (tokens, intermediate)
  float* up = nullptr;            // (tokens, intermediate)
  float* cos_sin = nullptr;       // (tokens, head_dim)
  float* final_hidden = nullptr;  // (tokens, hidden): normed rows that logits are asked of
  float* logits = nullptr;        // (logit_rows, vocab)
  std::byte* linear_scratch = nullptr;
  std::int64_t linear_scratch_bytes = 0;
  std::byte* attention_scratch = nullptr;
  std::int64_t attention_scratch_bytes = 0;

 private:
  std::vector<Allocation> blocks_;
};

}  // namespace snug::model
