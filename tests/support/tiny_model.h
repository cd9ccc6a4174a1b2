// A tiny model of known weights: its configuration, its numbers, and checkpoint files written from them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/rng.h"
#include "model/config.h"
#include "model/format_mix.h"
#include "model/weight_specs.h"
#include "support/temp_folder.h"

namespace snug::test {

inline model::Config tiny_config() {
  model::Config c;
  c.architecture = "qwen2";
  c.hidden = 64;
  c.layers = 2;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 16;
  c.intermediate = 96;
  c.vocab = 128;
  c.max_positions = 512;
  c.rms_eps = 1e-6f;
  c.qkv_bias = true;
  return c;
}

struct TinyTensor {
  model::WeightSpec spec;
  quant::Format format = quant::Format::f32;
  std::string bytes;          // as a file holds it
  std::vector<float> values;  // what those bytes mean
};
using TinyTensors = std::map<std::string, TinyTensor>;  // by Hugging Face name

inline TinyTensor encoded(model::WeightSpec spec, quant::Format format, std::vector<float> values) {
  TinyTensor t{std::move(spec), format, {}, std::move(values)};
  const auto count = static_cast<std::int64_t>(t.values.size());
  t.bytes.resize(static_cast<std::size_t>(quant::bytes_of(format, count)));
  quant::info(format).encode(t.values.data(), t.bytes.data(), count);
  quant::info(format).decode(t.bytes.data(), t.values.data(), count);
  return t;
}

// Matrices keep activations near one, so that attention has something to choose from; norms are near one.
inline TinyTensors tiny_tensors(const model::Config& config, quant::Format matrices, std::uint64_t seed) {
  TinyTensors tensors;
  std::uint64_t stream = 0;
  for (auto& spec : model::weight_specs(config)) {
    const bool norm = spec.hf_name.ends_with("norm.weight");
    const double scale = spec.is_matrix() ? 1 / std::sqrt(static_cast<double>(spec.shape[1]))
                         : norm           ? 0.1
                                          : 0.5;
    std::vector<float> values(static_cast<std::size_t>(spec.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = (norm ? 1.0f : 0.0f) + static_cast<float>(scale) * random_normal(seed, stream, i);
    }
    ++stream;
    const auto format = spec.is_matrix() ? matrices : quant::Format::f32;
    std::string name = spec.hf_name;
    tensors.emplace(std::move(name), encoded(std::move(spec), format, std::move(values)));
  }
  return tensors;
}

inline Json tiny_config_json(const model::Config& c) {
  return {{"model_type", c.architecture},
          {"hidden_size", c.hidden},
          {"num_hidden_layers", c.layers},
          {"num_attention_heads", c.heads},
          {"num_key_value_heads", c.kv_heads},
          {"intermediate_size", c.intermediate},
          {"vocab_size", c.vocab},
          {"max_position_embeddings", c.max_positions},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", c.rope.theta},
          {"tie_word_embeddings", c.tied},
          {"use_sliding_window", c.sliding_window > 0},
          {"sliding_window", c.sliding_window > 0 ? c.sliding_window : 7},
          {"max_window_layers", c.max_window_layers},
          {"eos_token_id", 5}};
}

// model.safetensors (f32, f16, bf16 only).
inline void write_safetensors(const TempFolder& folder, const TinyTensors& tensors) {
  Json header;
  std::string data;
  for (const auto& [name, t] : tensors) {
    const char* dtype = t.format == quant::Format::f32   ? "F32"
                        : t.format == quant::Format::f16 ? "F16"
                                                         : "BF16";
    header[name] = {{"dtype", dtype},
                    {"shape", t.spec.shape},
                    {"data_offsets", {data.size(), data.size() + t.bytes.size()}}};
    data += t.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string size(8, '\0');
  const std::uint64_t header_size = text.size();
  std::memcpy(size.data(), &header_size, 8);
  folder.write("model.safetensors", size + text + data);
}

inline void write_hf_folder(const TempFolder& folder, const model::Config& config,
                            const TinyTensors& tensors) {
  folder.write("config.json", tiny_config_json(config).dump());
  write_safetensors(folder, tensors);
}

// A GGUF file, any format.
inline std::string gguf_bytes(const model::Config& c, const TinyTensors& tensors) {
  const auto raw = [](auto value) {
    std::string bytes(sizeof(value), '\0');
    std::memcpy(bytes.data(), &value, sizeof(value));
    return bytes;
  };
  const auto text = [&](std::string_view value) {
    return raw(static_cast<std::uint64_t>(value.size())) + std::string(value);
  };
  const auto align = [](std::string& bytes) { bytes.resize((bytes.size() + 31) / 32 * 32); };
  std::string keys;
  std::uint64_t key_count = 0;
  const auto key = [&](std::string_view name, std::uint32_t type, const std::string& value) {
    keys += text(name) + raw(type) + value;
    ++key_count;
  };
  constexpr std::uint32_t kU32 = 4, kF32 = 6, kString = 8;
  key("general.architecture", kString, text(c.architecture));
  const std::pair<const char*, std::int64_t> numbers[] = {
      {"block_count", c.layers},         {"context_length", c.max_positions},
      {"embedding_length", c.hidden},    {"feed_forward_length", c.intermediate},
      {"attention.head_count", c.heads}, {"attention.head_count_kv", c.kv_heads},
      {"vocab_size", c.vocab},
  };
  for (const auto& [name, value] : numbers) {
    key(c.architecture + "." + name, kU32, raw(static_cast<std::uint32_t>(value)));
  }
  key(c.architecture + ".attention.layer_norm_rms_epsilon", kF32, raw(c.rms_eps));
  key(c.architecture + ".rope.freq_base", kF32, raw(static_cast<float>(c.rope.theta)));
  std::string infos, data;
  for (const auto& [name, t] : tensors) {
    infos += text(t.spec.gguf_name) + raw(static_cast<std::uint32_t>(t.spec.shape.size()));
    for (std::size_t i = t.spec.shape.size(); i-- > 0;)
      infos += raw(static_cast<std::uint64_t>(t.spec.shape[i]));
    infos += raw(quant::info(t.format).gguf_type) + raw(static_cast<std::uint64_t>(data.size()));
    data += t.bytes;
    align(data);
  }
  std::string file = "GGUF" + raw(std::uint32_t{3}) + raw(static_cast<std::uint64_t>(tensors.size())) +
                     raw(key_count) + keys + infos;
  align(file);
  return file + data;
}

}  // namespace snug::test
