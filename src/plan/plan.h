// From a model, a budget and wishes to what goes where and how many bytes it takes. Pure arithmetic.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"
#include "model/size_table.h"

namespace snug::plan {

struct Budget {
  std::optional<std::int64_t> host;  // --host-memory; unset: what the machine has available
  std::int64_t host_available = 0;   // from the operating system
  std::optional<std::int64_t> gpu;   // --gpu-memory; unset: what the GPU has available
  std::int64_t gpu_available = 0;    // from the driver, what this process already holds included
};

struct Wishes {
  std::optional<std::int64_t>
      max_model_len;              // tokens of one sequence; unset: what fits, up to the model's own
  std::int64_t max_num_seqs = 1;  // sequences at once
  std::optional<std::int64_t> max_num_batched_tokens;  // rows of a step; unset: 512
  std::int64_t logit_rows = 1;
  DType kv_dtype = DType::f16;
  int threads = 1;
  Backend backend = Backend::cpu;
  DType activations = DType::f32;  // inside a layer
};

// What the process holds when the plan is made, and the driver will add.
struct Held {
  std::int64_t host = 0;         // its code, the tokenizer and the index
  std::int64_t gpu_context = 0;  // the driver's context and libraries
  std::int64_t blas_workspace = 0;
  std::int64_t server = 0;  // connections, and requests on their way in and out
};

struct Plan {
  model::ForwardLimits limits;
  std::int64_t max_model_len = 0;
  int kv_block_size = 0;
  std::int64_t kv_blocks = 0;
  DType kv_dtype = DType::f16;
  std::vector<model::SizeRow> rows;  // the process itself, weights, KV, activations
  std::int64_t budget_host = 0;
  std::int64_t predicted_host = 0;  // the most at any time
  std::int64_t budget_gpu = 0;      // 0 where no GPU is used
  std::int64_t predicted_gpu = 0;
  std::int64_t reserved_gpu = 0;  // of it: Snug's own, one block
};

inline constexpr int kKvBlockSize = 32;

// Smaller prefill chunks are tried before refusing; does_not_fit then shows the sum and the longest context
// that fits.
Result<Plan> make_plan(const model::Config& config, const std::vector<model::PlacedWeight>& weights,
                       bool mapped, const Budget& budget, const Wishes& wishes, const Held& held);

}  // namespace snug::plan
