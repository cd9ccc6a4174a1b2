// The geometry of a model, from any kind of checkpoint or by a public name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "formats/checkpoint.h"
#include "formats/hf_config.h"

namespace snug::model {

struct Config {
  std::string architecture;  // "qwen2" or "llama"
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate = 0;
  std::int64_t vocab = 0;
  std::int64_t max_positions = 0;
  float rms_eps = 0;
  bool qkv_bias = false;
  bool tied = false;              // lm_head is the embedding
  bool interleaved_rope = false;  // GGUF stores llama's q and k permuted to (2i, 2i+1) pairs
  formats::RopeConfig rope;
  std::int64_t sliding_window = 0;     // 0: none
  std::int64_t max_window_layers = 0;  // layers below it see everything

  std::int64_t q_dim() const { return heads * head_dim; }
  std::int64_t kv_dim() const { return kv_heads * head_dim; }
  std::int64_t window_of_layer(std::int64_t layer) const {
    return sliding_window > 0 && layer >= max_window_layers ? sliding_window : 0;
  }
};

// bad_file for architectures that are not supported, with the list of those that are.
Result<Config> config_from(const formats::Checkpoint& checkpoint);

// Public geometries: "qwen2.5-0.5b" … "qwen2.5-72b". usage error listing the names otherwise.
Result<Config> config_by_name(std::string_view name);

}  // namespace snug::model
