// config.json and generation_config.json, in the style of transformers 4.x and 5.x, to one plain struct.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace snug::formats {

struct RopeConfig {
  enum class Type { plain, yarn, linear };
  Type type = Type::plain;
  double theta = 10000.0;
  double factor = 1.0;
  std::int64_t original_max_positions =
      0;  // yarn: as the file says, else its max_position_embeddings; else 0
  double beta_fast = 32.0, beta_slow = 1.0;
  std::optional<double> attention_factor;  // yarn: unset means 0.1 ln(factor) + 1
  std::vector<int> mrope_section;          // Qwen2.5-VL; text-only positions equal plain rope
};

// Text fields; for Qwen2.5-VL they come from text_config (5.x) or the top level (4.x).
struct HfConfig {
  std::string file;        // for messages
  std::string model_type;  // "qwen2", "llama", "qwen2_5_vl", "qwen2_vl"
  std::int64_t hidden_size = 0, num_hidden_layers = 0, num_attention_heads = 0, num_key_value_heads = 0;
  std::int64_t head_dim = 0, intermediate_size = 0, vocab_size = 0;
  std::int64_t max_position_embeddings = 0;  // with YaRN at least factor × original_max_positions
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  bool attention_bias = false;                 // q, k, v have biases (always for qwen2)
  std::optional<std::int64_t> sliding_window;  // only where use_sliding_window is true and a layer uses it
  std::int64_t max_window_layers = 0;          // layers from this one on use sliding_window
  std::string dtype;  // "bfloat16"; from dtype or torch_dtype; empty if the file does not say
  RopeConfig rope;
  std::vector<std::int32_t> eos_token_ids;
  std::optional<std::int32_t> bos_token_id, pad_token_id;
  std::optional<std::string> quantization_method;  // quantization_config.quant_method, if any
};

// The ranges that config.json and GGUF metadata are held to.
inline constexpr std::int64_t kMaxHidden = 1 << 20, kMaxLayers = 10'000, kMaxHeads = 1 << 16,
                              kMaxHeadDim = 1 << 12;
inline constexpr std::int64_t kMaxVocab = 1 << 24, kMaxPositions = std::int64_t{1} << 31;

// What holds between fields, for both kinds of file: key-value heads divide heads, head_dim is even, and the
// defaults of num_key_value_heads and head_dim where they are 0. `config.file` is named in errors.
Status finish_config(HfConfig& config);

// Sampling defaults that a checkpoint ships; unset where it does not say.
struct GenerationConfig {
  std::vector<std::int32_t> eos_token_ids;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int64_t> top_k;
  std::optional<bool> do_sample;
};

// Every field's range is checked; an unknown model_type, rope type or hidden_act is bad_file and says what is
// supported.
Result<HfConfig> parse_hf_config(const Json& json, std::string_view file);
Result<GenerationConfig> parse_generation_config(const Json& json, std::string_view file);

}  // namespace snug::formats
