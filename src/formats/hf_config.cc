#include "formats/hf_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/bad_file.h"
#include "formats/hf_rope.h"
#include "formats/token_ids.h"

namespace snug::formats {
namespace {

bool is_vl(std::string_view model_type) {
  return model_type == "qwen2_5_vl" || model_type == "qwen2_vl";
}

// The text part of a vision-language model saved on its own has a type of its own.
Result<std::string> read_model_type(const Json& json, std::string_view file) {
  SNUG_ASSIGN(auto type, optional_string(json, "model_type", file));
  if (!type)
    return bad_file(file, "model_type is missing", "add model_type, such as qwen2, or fetch the file again");
  if (type == "qwen2_5_vl_text") type = "qwen2_5_vl";
  if (type == "qwen2_vl_text") type = "qwen2_vl";
  if (type == "qwen2" || type == "llama" || is_vl(*type)) return *type;
  type->resize(std::min<std::size_t>(type->size(), 64));
  return bad_file(file, fmt::format("model_type {} is not supported", *type),
                  "supported are qwen2, llama, qwen2_vl and qwen2_5_vl");
}

// Vision-language files have the text fields in text_config (5.x), at the top level (4.x), or, when a 4.x
// file was saved again in between, in both. text_config wins; fields it lacks come from the top level.
Result<Json> text_fields(const Json& json, std::string_view file) {
  const auto text = json.find("text_config");
  if (text == json.end() || text->is_null()) return json;
  if (!text->is_object()) return bad_file(file, "text_config must be an object", "fetch the file again");
  Json merged = json;
  for (const char* field : {"text_config", "vision_config"}) merged.erase(field);
  if (text->contains("rope_parameters") || text->contains("rope_scaling")) {
    for (const char* field : {"rope_parameters", "rope_scaling"}) merged.erase(field);
  }
  merged.update(*text);
  // Whether the head is tied is said for the whole model first.
  if (const auto tied = json.find("tie_word_embeddings"); tied != json.end() && !tied->is_null()) {
    merged["tie_word_embeddings"] = *tied;
  }
  return merged;
}

Result<std::string> read_dtype(const Json& json, std::string_view file) {
  for (const char* field : {"dtype", "torch_dtype"}) {
    SNUG_ASSIGN(auto name, optional_string(json, field, file));
    if (!name) continue;
    if (name->starts_with("torch.")) name->erase(0, 6);
    if (name == "bfloat16" || name == "float16" || name == "float32") return *name;
    return bad_file(file, fmt::format("{} must be bfloat16, float16 or float32", field),
                    "convert the checkpoint to one of them");
  }
  return std::string();
}

// 5.x lists each layer's kind; 4.x says from which layer on the window applies. Both only count where
// use_sliding_window is true.
Status read_sliding_window(const Json& json, std::string_view file, HfConfig& config) {
  SNUG_ASSIGN(const auto use, optional_bool(json, "use_sliding_window", file));
  SNUG_ASSIGN(const auto window, optional_int(json, "sliding_window", file, 0, INT64_MAX));
  SNUG_ASSIGN(const auto first, optional_int(json, "max_window_layers", file, 0, INT64_MAX));
  config.max_window_layers = std::min(first.value_or(config.num_hidden_layers), config.num_hidden_layers);

  const auto types = json.find("layer_types");
  if (types != json.end() && !types->is_null()) {
    if (!types->is_array() || types->size() != static_cast<std::size_t>(config.num_hidden_layers)) {
      return bad_file(file, fmt::format("layer_types must list {} layers", config.num_hidden_layers),
                      "correct layer_types or num_hidden_layers in that file");
    }
    std::int64_t full = 0;  // layers before the first one with a window
    bool seen_window = false;
    for (const Json& type : *types) {
      if (type != "full_attention" && type != "sliding_attention") {
        return bad_file(file, "layer_types may hold only full_attention and sliding_attention",
                        "this model needs a kind of layer that is not supported");
      }
      seen_window = seen_window || type == "sliding_attention";
      if (!seen_window) ++full;
      if (seen_window && type == "full_attention" && use.value_or(false)) {
        return bad_file(
            file, "layer_types: a full_attention layer after a sliding_attention layer is not supported",
            "only the last layers may have a window");
      }
    }
    if (use.value_or(false)) config.max_window_layers = full;
  }
  if (use.value_or(false) && window && config.max_window_layers < config.num_hidden_layers) {
    if (*window == 0)
      return bad_file(file, "sliding_window must be 1 or more", "or set use_sliding_window to false");
    config.sliding_window = window;
  }
  return {};
}

Status read_quantization(const Json& json, std::string_view file, HfConfig& config) {
  const auto at = json.find("quantization_config");
  if (at == json.end() || at->is_null()) return {};
  if (!at->is_object())
    return bad_file(file, "quantization_config must be an object", "fetch the file again");
  SNUG_ASSIGN(auto method,
              optional_string(*at, "quant_method", fmt::format("{}: quantization_config", file)));
  config.quantization_method = method.value_or("unknown");
  return {};
}

Status read_biases(const Json& json, std::string_view file, HfConfig& config) {
  config.attention_bias = config.model_type != "llama";
  if (config.attention_bias) return {};
  // In llama's files the flag would add a bias to the output projection too.
  for (const char* field : {"attention_bias", "mlp_bias"}) {
    SNUG_ASSIGN(const auto bias, optional_bool(json, field, file));
    if (bias.value_or(false)) {
      return bad_file(file, fmt::format("{} true is not supported for llama", field),
                      "only models without it are");
    }
  }
  return {};
}

Result<std::optional<std::int32_t>> optional_token_id(const Json& json, std::string_view field,
                                                      std::string_view file) {
  SNUG_ASSIGN(const auto id, optional_int(json, field, file, -1, INT32_MAX));
  if (!id || *id < 0) return std::optional<std::int32_t>{};  // -1: none
  return std::optional(static_cast<std::int32_t>(*id));
}

}  // namespace

Status finish_config(HfConfig& config) {
  const auto refuse = [&](std::string_view what) {
    return bad_file(config.file, what, "compare the file with the original checkpoint's");
  };
  if (config.num_key_value_heads == 0) config.num_key_value_heads = config.num_attention_heads;
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    return refuse(fmt::format("num_attention_heads {} must be a multiple of num_key_value_heads {}",
                              config.num_attention_heads, config.num_key_value_heads));
  }
  if (config.head_dim == 0) {
    if (config.hidden_size % config.num_attention_heads != 0) {
      return refuse(fmt::format(
          "hidden_size {} must be a multiple of num_attention_heads {} where head_dim is not given",
          config.hidden_size, config.num_attention_heads));
    }
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  if (config.head_dim % 2 != 0 || config.head_dim > kMaxHeadDim) {
    return refuse(fmt::format("head_dim {} must be even and at most {}", config.head_dim, kMaxHeadDim));
  }
  if (!(config.rms_norm_eps > 0.0 && config.rms_norm_eps < 1.0)) {
    return refuse(fmt::format("rms_norm_eps must be between 0 and 1, not {}", config.rms_norm_eps));
  }
  return {};
}

Result<HfConfig> parse_hf_config(const Json& json, std::string_view file) {
  if (!json.is_object()) return bad_file(file, "must be a JSON object", "fetch the file again");
  HfConfig config;
  config.file = file;
  SNUG_ASSIGN(config.model_type, read_model_type(json, file));
  SNUG_ASSIGN(const Json text, text_fields(json, file));

  SNUG_ASSIGN(config.hidden_size, required_int(text, "hidden_size", file, 1, kMaxHidden));
  SNUG_ASSIGN(config.num_hidden_layers, required_int(text, "num_hidden_layers", file, 1, kMaxLayers));
  SNUG_ASSIGN(config.num_attention_heads, required_int(text, "num_attention_heads", file, 1, kMaxHeads));
  SNUG_ASSIGN(const auto kv_heads, optional_int(text, "num_key_value_heads", file, 1, kMaxHeads));
  SNUG_ASSIGN(const auto head_dim, optional_int(text, "head_dim", file, 1, kMaxHeadDim));
  SNUG_ASSIGN(config.intermediate_size, required_int(text, "intermediate_size", file, 1, kMaxHidden));
  SNUG_ASSIGN(config.vocab_size, required_int(text, "vocab_size", file, 1, kMaxVocab));
  SNUG_ASSIGN(config.max_position_embeddings,
              required_int(text, "max_position_embeddings", file, 1, kMaxPositions));
  SNUG_ASSIGN(const auto eps, optional_number(text, "rms_norm_eps", file));
  config.num_key_value_heads = kv_heads.value_or(0);
  config.head_dim = head_dim.value_or(0);
  config.rms_norm_eps = eps.value_or(config.rms_norm_eps);
  SNUG_TRY(finish_config(config));

  SNUG_ASSIGN(const auto act, optional_string(text, "hidden_act", file));
  if (act && *act != "silu") return bad_file(file, "hidden_act must be silu", "no other is supported");
  SNUG_ASSIGN(const auto tied, optional_bool(text, "tie_word_embeddings", file));
  config.tie_word_embeddings = tied.value_or(false);
  SNUG_TRY(read_biases(text, file, config));
  SNUG_TRY(read_sliding_window(text, file, config));
  SNUG_ASSIGN(config.dtype, read_dtype(text, file));
  SNUG_TRY(parse_rope(text, file, is_vl(config.model_type) ? 1e6 : 1e4, config));
  SNUG_ASSIGN(config.eos_token_ids, optional_token_ids(text, "eos_token_id", file));
  SNUG_ASSIGN(config.bos_token_id, optional_token_id(text, "bos_token_id", file));
  SNUG_ASSIGN(config.pad_token_id, optional_token_id(text, "pad_token_id", file));
  SNUG_TRY(read_quantization(text, file, config));
  return config;
}

}  // namespace snug::formats
