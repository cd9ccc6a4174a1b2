// Where a forward pass gets its weights. model/ declares it, residency/ implements it.
#pragma once

#include "kernels/linear.h"

namespace snug::model {

// Views of one decoder layer's weights; valid until the next call of layer().
struct LayerWeights {
  const float* input_norm = nullptr;  // (hidden)
  kernels::WeightView q;              // (heads * head_dim, hidden)
  kernels::WeightView k;              // (kv_heads * head_dim, hidden)
  kernels::WeightView v;              // (kv_heads * head_dim, hidden)
  const float* q_bias = nullptr;      // (heads * head_dim) or null
  const float* k_bias = nullptr;      // (kv_heads * head_dim) or null
  const float* v_bias = nullptr;      // (kv_heads * head_dim) or null
  kernels::WeightView o;              // (hidden, heads * head_dim)
  const float* post_norm = nullptr;   // (hidden)
  kernels::WeightView gate;           // (intermediate, hidden)
  kernels::WeightView up;             // (intermediate, hidden)
  kernels::WeightView down;           // (hidden, intermediate)
};

// What lies outside the layers. For tied models lm_head views the embedding's bytes.
struct OuterWeights {
  kernels::WeightView embedding;      // (vocab, hidden)
  const float* final_norm = nullptr;  // (hidden)
  kernels::WeightView lm_head;        // (vocab, hidden)
};

class LayerSource {
 public:
  virtual ~LayerSource() = default;
  virtual const OuterWeights& outer() const = 0;
  virtual const LayerWeights& layer(int index) = 0;
};

}  // namespace snug::model
