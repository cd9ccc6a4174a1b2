#include "model/config.h"

#include <fmt/format.h>

namespace snug::model {

Result<Config> config_from(const formats::Checkpoint& checkpoint) {
  const formats::HfConfig& from = checkpoint.config;
  if (from.model_type != "qwen2" && from.model_type != "llama") {
    return Error{ErrorCode::bad_file,
                 fmt::format("{}: model_type '{}' is not supported", from.file, from.model_type),
                 "Snug runs qwen2 (Qwen2 and Qwen2.5) and llama (as SmolLM2 has it)"};
  }
  if (from.quantization_method) {
    return Error{ErrorCode::bad_file,
                 fmt::format("{}: quantization_config.quant_method '{}' is not supported", from.file,
                             *from.quantization_method),
                 "use the unquantised checkpoint or a GGUF of it"};
  }
  if (from.model_type == "llama" && from.attention_bias) {
    return Error{ErrorCode::bad_file, fmt::format("{}: attention_bias is not supported for llama", from.file),
                 "use a checkpoint without attention biases, as SmolLM2 is"};
  }
  Config config;
  config.architecture = from.model_type;
  config.hidden = from.hidden_size;
  config.layers = from.num_hidden_layers;
  config.heads = from.num_attention_heads;
  config.kv_heads = from.num_key_value_heads;
  config.head_dim = from.head_dim;
  config.intermediate = from.intermediate_size;
  config.vocab = from.vocab_size;
  config.max_positions = from.max_position_embeddings;
  config.rms_eps = static_cast<float>(from.rms_norm_eps);
  config.qkv_bias = from.model_type == "qwen2";
  config.tied = from.tie_word_embeddings;
  config.interleaved_rope = checkpoint.kind == formats::Checkpoint::Kind::gguf && from.model_type == "llama";
  config.rope = from.rope;
  if (config.rope.type == formats::RopeConfig::Type::yarn && config.rope.original_max_positions > 0) {
    const auto stretched = static_cast<std::int64_t>(config.rope.factor *
                                                     static_cast<double>(config.rope.original_max_positions));
    config.max_positions = std::max(config.max_positions, stretched);
  }
  config.sliding_window = from.sliding_window.value_or(0);
  config.max_window_layers = from.max_window_layers;
  if (config.head_dim % 8 != 0 || config.head_dim > 256) {
    return Error{ErrorCode::bad_file,
                 fmt::format("{}: head_dim {} is not supported", from.file, config.head_dim),
                 "multiples of 8 up to 256 are"};
  }
  return config;
}

Result<Config> config_by_name(std::string_view name) {
  struct Geometry {
    const char* name;
    int hidden, layers, heads, kv_heads, intermediate, vocab;
    bool tied;
  };
  static constexpr Geometry kKnown[] = {
      {"qwen2.5-0.5b", 896, 24, 14, 2, 4864, 151936, true},
      {"qwen2.5-1.5b", 1536, 28, 12, 2, 8960, 151936, true},
      {"qwen2.5-3b", 2048, 36, 16, 2, 11008, 151936, true},
      {"qwen2.5-7b", 3584, 28, 28, 4, 18944, 152064, false},
      {"qwen2.5-14b", 5120, 48, 40, 8, 13824, 152064, false},
      {"qwen2.5-32b", 5120, 64, 40, 8, 27648, 152064, false},
      {"qwen2.5-72b", 8192, 80, 64, 8, 29568, 152064, false},
  };
  std::string names;
  for (const auto& g : kKnown) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", g.name);
    if (name != g.name) continue;
    Config config;
    config.architecture = "qwen2";
    config.hidden = g.hidden;
    config.layers = g.layers;
    config.heads = g.heads;
    config.kv_heads = g.kv_heads;
    config.head_dim = g.hidden / g.heads;
    config.intermediate = g.intermediate;
    config.vocab = g.vocab;
    config.max_positions = 32768;
    config.rms_eps = 1e-6f;
    config.qkv_bias = true;
    config.tied = g.tied;
    config.rope.theta = 1e6;
    return config;
  }
  return Error{ErrorCode::usage, fmt::format("random:{}: no such public geometry", name),
               "known are " + names};
}

}  // namespace snug::model
