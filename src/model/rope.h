// Rotary position embedding: frequencies (plain, linear, YaRN) and the cosines and sines of a batch.
// Sources: RoFormer (arXiv:2104.09864); YaRN (arXiv:2309.00071).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"

namespace snug::model {

struct RopeTable {
  std::vector<float> inverse_frequencies;  // (head_dim / 2)
  float attention_factor = 1.0f;           // multiplies cosines and sines (YaRN)
};

RopeTable make_rope(const Config& config);

// cos_sin (tokens, head_dim): head_dim/2 cosines, then head_dim/2 sines, of each position.
void fill_cos_sin(const RopeTable& rope, std::span<const std::int32_t> positions, float* cos_sin);

}  // namespace snug::model
