// Every weight a model needs: its names, shape and place; and the strict door that a checkpoint passes
// through.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/weight_index.h"
#include "model/config.h"

namespace snug::model {

enum class Role : std::uint8_t {
  embedding,
  final_norm,
  lm_head,
  input_norm,
  q,
  k,
  v,
  q_bias,
  k_bias,
  v_bias,
  o,
  post_norm,
  gate,
  up,
  down,
};

struct WeightSpec {
  Role role;
  int layer = -1;  // -1: not in a layer
  std::string hf_name, gguf_name;
  std::vector<std::int64_t> shape;  // (out, in) for matrices, (n) for norms and biases
  bool is_matrix() const { return shape.size() == 2; }
  std::int64_t elements() const { return shape.size() == 2 ? shape[0] * shape[1] : shape[0]; }
};

// In the order a forward pass meets them. A tied model has no lm_head entry.
std::vector<WeightSpec> weight_specs(const Config& config);

// A spec and the tensor that fills it.
struct BoundWeight {
  WeightSpec spec;
  formats::TensorEntry tensor;
};

// bad_file naming the tensor where one is missing, left over, or has the wrong shape or format. A tied model
// may carry a redundant lm_head; it is left unread.
Result<std::vector<BoundWeight>> bind_weights(const Config& config, const formats::Checkpoint& checkpoint);

}  // namespace snug::model
