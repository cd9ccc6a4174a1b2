// Rotary position embedding: its frequencies (plain, linear, YaRN).
// Sources: RoFormer (arXiv:2104.09864); YaRN (arXiv:2309.00071).
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace snug::model {

struct RopeTable {
  std::vector<float> inverse_frequencies;  // (head_dim / 2)
  float attention_factor = 1.0f;           // multiplies cosines and sines (YaRN)
};

RopeTable make_rope(const Config& config);

}  // namespace snug::model
