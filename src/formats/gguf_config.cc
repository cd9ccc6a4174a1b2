#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "formats/bad_file.h"
#include "formats/checkpoint.h"
#include "formats/hf_rope.h"

namespace snug::formats {
namespace {

constexpr const char* kWrong = "convert the model again from its original checkpoint";

// Keys below the architecture's name: "qwen2." + key.
class Keys {
 public:
  Keys(const Gguf& gguf, std::string_view architecture)
      : gguf_(gguf), prefix_(std::string(architecture) + ".") {}

  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  Result<std::optional<std::int64_t>> optional(std::string_view key, std::int64_t max) const {
    return gguf_.get_int(full(key), 1, max);
  }
  Result<std::int64_t> required(std::string_view key, std::int64_t max) const {
    SNUG_ASSIGN(const auto value, optional(key, max));
    if (!value) return bad_file(gguf_.name, full(key) + " is missing", kWrong);
    return *value;
  }
  Result<std::optional<double>> number(std::string_view key) const { return gguf_.get_number(full(key)); }
  Result<std::optional<std::string_view>> string(std::string_view key) const {
    return gguf_.get_string(full(key));
  }

 private:
  const Gguf& gguf_;
  std::string prefix_;
};

const TensorEntry* find_tensor(const Gguf& gguf, std::string_view name) {
  const auto at = std::ranges::find(gguf.tensors, name, &TensorEntry::name);
  return at == gguf.tensors.end() ? nullptr : &*at;
}

// The key, else the rows of the embedding, else the tokenizer's size.
Result<std::int64_t> read_vocab_size(const Gguf& gguf, const Keys& keys) {
  SNUG_ASSIGN(const auto stated, keys.optional("vocab_size", kMaxVocab));
  if (stated) return *stated;
  const TensorEntry* embedding = find_tensor(gguf, "token_embd.weight");
  if (embedding != nullptr && embedding->shape.size() == 2 && embedding->shape[0] <= kMaxVocab) {
    return embedding->shape[0];
  }
  const auto* tokens = gguf.get_strings("tokenizer.ggml.tokens");
  if (tokens != nullptr && !tokens->empty() && tokens->size() <= static_cast<std::size_t>(kMaxVocab)) {
    return static_cast<std::int64_t>(tokens->size());
  }
  return bad_file(gguf.name, keys.full("vocab_size") + " is missing", kWrong);
}

Status read_rope(const Gguf& gguf, const Keys& keys, HfConfig& config) {
  RopeConfig& rope = config.rope;
  SNUG_ASSIGN(const auto theta, keys.number("rope.freq_base"));
  rope.theta = theta.value_or(10000.0);
  SNUG_ASSIGN(const auto dims, keys.optional("rope.dimension_count", kMaxHeadDim));
  if (dims && *dims != config.head_dim) {
    return bad_file(gguf.name,
                    fmt::format("{} {} must equal the head's size {}", keys.full("rope.dimension_count"),
                                *dims, config.head_dim),
                    "models that rotate a part of each head are not supported");
  }
  SNUG_ASSIGN(const auto type, keys.string("rope.scaling.type"));
  SNUG_ASSIGN(const auto factor, keys.number("rope.scaling.factor"));
  SNUG_ASSIGN(const auto old_factor, keys.number("rope.scale_linear"));
  if (type && *type != "none" && *type != "linear" && *type != "yarn") {
    return bad_file(gguf.name, keys.full("rope.scaling.type") + " must be none, linear or yarn",
                    "no other kind of rope is supported");
  }
  if (type && *type != "none") {
    rope.type = *type == "yarn" ? RopeConfig::Type::yarn : RopeConfig::Type::linear;
    if (!factor) return bad_file(gguf.name, keys.full("rope.scaling.factor") + " is missing", kWrong);
    rope.factor = *factor;
  } else if (factor && *factor != 1.0 && *factor != 0.0) {
    return bad_file(gguf.name, keys.full("rope.scaling.factor") + " is set without a rope.scaling.type",
                    kWrong);
  } else if (old_factor && *old_factor != 1.0) {
    rope.type = RopeConfig::Type::linear;
    rope.factor = *old_factor;
  }
  if (rope.type == RopeConfig::Type::yarn) {
    SNUG_ASSIGN(const auto original, keys.optional("rope.scaling.original_context_length", kMaxPositions));
    rope.original_max_positions = original.value_or(0);
    SNUG_ASSIGN(const auto fast, keys.number("rope.scaling.yarn_beta_fast"));
    SNUG_ASSIGN(const auto slow, keys.number("rope.scaling.yarn_beta_slow"));
    rope.beta_fast = fast.value_or(rope.beta_fast);
    rope.beta_slow = slow.value_or(rope.beta_slow);
    // GGUF's factor multiplies the usual one; transformers' replaces it.
    SNUG_ASSIGN(const auto attention, keys.number("rope.scaling.attn_factor"));
    if (attention) rope.attention_factor = *attention * (0.1 * std::log(std::max(rope.factor, 1.0)) + 1.0);
  }
  return finish_rope(gguf.name, config);
}

Status read_tokens(const Gguf& gguf, HfConfig& config) {
  // An id that a converter did not know is written as 2^32 - 1.
  const auto id = [&](std::string_view key) -> Result<std::optional<std::int32_t>> {
    SNUG_ASSIGN(const auto value, gguf.get_int(key, -1, UINT32_MAX));
    if (!value || *value < 0 || *value == static_cast<std::int64_t>(UINT32_MAX))
      return std::optional<std::int32_t>{};
    if (*value > INT32_MAX)
      return bad_file(gguf.name, fmt::format("{} {} is out of range", key, *value), kWrong);
    return std::optional(static_cast<std::int32_t>(*value));
  };
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    SNUG_ASSIGN(const auto eos, id(key));
    if (eos && std::ranges::find(config.eos_token_ids, *eos) == config.eos_token_ids.end()) {
      config.eos_token_ids.push_back(*eos);
    }
  }
  SNUG_ASSIGN(config.bos_token_id, id("tokenizer.ggml.bos_token_id"));
  SNUG_ASSIGN(config.pad_token_id, id("tokenizer.ggml.padding_token_id"));
  return {};
}

}  // namespace

Result<HfConfig> config_from_gguf(const Gguf& gguf) {
  SNUG_ASSIGN(const auto architecture, gguf.get_string("general.architecture"));
  if (!architecture) return bad_file(gguf.name, "general.architecture is missing", kWrong);
  if (*architecture != "qwen2" && *architecture != "llama") {
    return bad_file(gguf.name,
                    fmt::format("general.architecture {} is not supported",
                                is_valid_name(*architecture) ? architecture->substr(0, 64) : "(not text)"),
                    "supported are qwen2 and llama");
  }
  const Keys keys(gguf, *architecture);
  HfConfig config;
  config.file = gguf.name;
  config.model_type = *architecture;
  SNUG_ASSIGN(config.num_hidden_layers, keys.required("block_count", kMaxLayers));
  SNUG_ASSIGN(config.max_position_embeddings, keys.required("context_length", kMaxPositions));
  SNUG_ASSIGN(config.hidden_size, keys.required("embedding_length", kMaxHidden));
  SNUG_ASSIGN(config.intermediate_size, keys.required("feed_forward_length", kMaxHidden));
  SNUG_ASSIGN(config.num_attention_heads, keys.required("attention.head_count", kMaxHeads));
  SNUG_ASSIGN(const auto kv_heads, keys.optional("attention.head_count_kv", kMaxHeads));
  SNUG_ASSIGN(const auto key_length, keys.optional("attention.key_length", kMaxHeadDim));
  SNUG_ASSIGN(const auto value_length, keys.optional("attention.value_length", kMaxHeadDim));
  SNUG_ASSIGN(const auto eps, keys.number("attention.layer_norm_rms_epsilon"));
  SNUG_ASSIGN(config.vocab_size, read_vocab_size(gguf, keys));
  SNUG_ASSIGN(const auto experts, gguf.get_int(keys.full("expert_count"), 0, INT64_MAX));
  if (experts.value_or(0) > 0) {
    return bad_file(gguf.name, keys.full("expert_count") + ": mixtures of experts are not supported",
                    "supported are dense qwen2 and llama models");
  }
  if (!eps) return bad_file(gguf.name, keys.full("attention.layer_norm_rms_epsilon") + " is missing", kWrong);
  config.rms_norm_eps = *eps;
  config.num_key_value_heads = kv_heads.value_or(0);
  config.head_dim = key_length.value_or(0);
  SNUG_TRY(finish_config(config));
  if (value_length && *value_length != config.head_dim) {
    return bad_file(gguf.name,
                    fmt::format("{} {} must equal the key's {}", keys.full("attention.value_length"),
                                *value_length, config.head_dim),
                    "no other is supported");
  }
  config.tie_word_embeddings = find_tensor(gguf, "output.weight") == nullptr;
  config.attention_bias = config.model_type == "qwen2";
  config.max_window_layers = config.num_hidden_layers;
  SNUG_TRY(read_rope(gguf, keys, config));
  SNUG_TRY(read_tokens(gguf, config));
  return config;
}

}  // namespace snug::formats
