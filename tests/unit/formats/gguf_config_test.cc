#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "formats/checkpoint.h"
#include "unit/formats/file_builder.h"

namespace snug::formats {
namespace {

using built::as_bytes, built::raw, built::GgufBuilder, built::small_gguf;

Result<HfConfig> config_of(const GgufBuilder& builder) {
  const std::string file = builder.build();
  const auto gguf = parse_gguf(as_bytes(file), "m.gguf");
  if (!gguf.ok()) return gguf.error();
  return config_from_gguf(*gguf);
}

TEST(GgufConfig, ReadsTheGeometry) {
  GgufBuilder b = small_gguf();
  b.set("qwen2.rope.freq_base", 1e6f)
      .set("tokenizer.ggml.eos_token_id", 7u)
      .set("tokenizer.ggml.eot_token_id", 9u);
  b.set("tokenizer.ggml.bos_token_id", UINT32_MAX).set("tokenizer.ggml.padding_token_id", 3u);
  b.tensor("output.weight", {64, 100}, 0, 64 * 100 * 4);
  const auto config = config_of(b);
  ASSERT_TRUE(config.ok()) << config.error().to_string();
  EXPECT_EQ(config->file, "m.gguf");
  EXPECT_EQ(config->model_type, "qwen2");
  EXPECT_EQ(config->num_hidden_layers, 2);
  EXPECT_EQ(config->max_position_embeddings, 2048);
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->intermediate_size, 128);
  EXPECT_EQ(config->num_attention_heads, 4);
  EXPECT_EQ(config->num_key_value_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->vocab_size, 100);
  EXPECT_NEAR(config->rms_norm_eps, 1e-6, 1e-12);
  EXPECT_EQ(config->rope.theta, 1e6);
  EXPECT_EQ(config->rope.type, RopeConfig::Type::plain);
  EXPECT_TRUE(config->attention_bias);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_EQ(config->eos_token_ids, (std::vector<std::int32_t>{7, 9}));
  EXPECT_EQ(config->bos_token_id, std::nullopt);
  EXPECT_EQ(config->pad_token_id, 3);
}

TEST(GgufConfig, TiedWithoutOutputAndVocabFromTheEmbedding) {
  GgufBuilder b;
  b.set("general.architecture", "llama")
      .set("llama.block_count", 2u)
      .set("llama.context_length", 2048u)
      .set("llama.embedding_length", 64u)
      .set("llama.feed_forward_length", 128u)
      .set("llama.attention.head_count", 4u)
      .set("llama.attention.key_length", 32u)
      .set("llama.attention.value_length", 32u)
      .set("llama.rope.dimension_count", 32u)
      .set("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .tensor("token_embd.weight", {64, 77}, 1, 64 * 77 * 2);
  const auto config = config_of(b);
  ASSERT_TRUE(config.ok()) << config.error().to_string();
  EXPECT_EQ(config->vocab_size, 77);
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->num_key_value_heads, 4);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_FALSE(config->attention_bias);
  EXPECT_EQ(config->rope.theta, 1e4);
}

TEST(GgufConfig, Scaling) {
  GgufBuilder yarn = small_gguf();
  yarn.set("qwen2.rope.scaling.type", "yarn")
      .set("qwen2.rope.scaling.factor", 4.0f)
      .set("qwen2.rope.scaling.original_context_length", 1024u);
  auto config = config_of(yarn);
  ASSERT_TRUE(config.ok()) << config.error().to_string();
  EXPECT_EQ(config->rope.type, RopeConfig::Type::yarn);
  EXPECT_EQ(config->rope.factor, 4.0);
  EXPECT_EQ(config->rope.original_max_positions, 1024);
  EXPECT_EQ(config->max_position_embeddings, 4096);
  EXPECT_EQ(config->rope.attention_factor, std::nullopt);
  yarn.set("qwen2.rope.scaling.attn_factor", 0.5f);
  config = config_of(yarn);
  ASSERT_TRUE(config.ok()) << config.error().to_string();
  EXPECT_NEAR(*config->rope.attention_factor, 0.5 * (0.1 * std::log(4.0) + 1.0), 1e-12);

  config = config_of(small_gguf().set("qwen2.rope.scale_linear", 2.0f));
  ASSERT_TRUE(config.ok()) << config.error().to_string();
  EXPECT_EQ(config->rope.type, RopeConfig::Type::linear);
  EXPECT_EQ(config->rope.factor, 2.0);
  config = config_of(small_gguf().set("qwen2.rope.scaling.type", "none"));
  ASSERT_TRUE(config.ok()) << config.error().to_string();
  EXPECT_EQ(config->rope.type, RopeConfig::Type::plain);
}

TEST(GgufConfig, RefusesBadKeys) {
  using B = GgufBuilder;
  // A model without one key.
  const auto without = [](std::string_view key) {
    GgufBuilder b;
    if (key != "general.architecture") b.set("general.architecture", "qwen2");
    for (const char* name : {"block_count", "context_length", "embedding_length", "feed_forward_length",
                             "attention.head_count", "vocab_size"}) {
      const bool heads = std::string_view(name) == "attention.head_count";
      if (key != name) b.set(std::string("qwen2.") + name, heads ? 2u : 4u);
    }
    if (key != "attention.layer_norm_rms_epsilon") b.set("qwen2.attention.layer_norm_rms_epsilon", 1e-6f);
    return b;
  };
  for (const char* key :
       {"general.architecture", "block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "vocab_size", "attention.layer_norm_rms_epsilon"}) {
    SCOPED_TRACE(key);
    built::expect_bad_file(config_of(without(key)), {"m.gguf: ", std::string(key) + " is missing"});
  }
  const struct {
    const char* label;
    std::function<void(B&)> change;
    std::vector<std::string> words;
  } rows[] = {
      {"no layers", [](B& b) { b.set("qwen2.block_count", 0u); }, {"qwen2.block_count"}},
      {"too many layers", [](B& b) { b.set("qwen2.block_count", 4'000'000'000u); }, {"qwen2.block_count"}},
      {"layers as text", [](B& b) { b.set("qwen2.block_count", "2"); }, {"qwen2.block_count"}},
      {"negative width",
       [](B& b) { b.key("qwen2.embedding_length", B::i32, raw(-64)); },
       {"qwen2.embedding_length"}},
      {"heads by layer",
       [](B& b) { b.set_array("qwen2.attention.head_count", B::u32, 1, raw(4u)); },
       {"qwen2.attention.head_count"}},
      {"epsilon 0", [](B& b) { b.set("qwen2.attention.layer_norm_rms_epsilon", 0.0f); }, {"rms_norm_eps"}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.label);
    const std::string changed = row.words[0].substr(0, row.words[0].find(' '));
    GgufBuilder b =
        without(changed.starts_with("qwen2.") ? changed.substr(6) : "attention.layer_norm_rms_epsilon");
    row.change(b);
    built::expect_bad_file(config_of(b), {"m.gguf: ", row.words[0]});
  }
  const struct {
    const char* label;
    std::function<void(B&)> add;  // to a good model
    std::vector<std::string> words;
  } additions[] = {
      {"part of a head",
       [](B& b) { b.set("qwen2.rope.dimension_count", 8u); },
       {"qwen2.rope.dimension_count"}},
      {"other value size",
       [](B& b) { b.set("qwen2.attention.value_length", 8u); },
       {"qwen2.attention.value_length"}},
      {"unknown scaling",
       [](B& b) { b.set("qwen2.rope.scaling.type", "longrope"); },
       {"qwen2.rope.scaling.type"}},
      {"yarn without factor",
       [](B& b) { b.set("qwen2.rope.scaling.type", "yarn"); },
       {"qwen2.rope.scaling.factor"}},
      {"factor without type",
       [](B& b) { b.set("qwen2.rope.scaling.factor", 4.0f); },
       {"qwen2.rope.scaling.factor"}},
      {"theta below 0", [](B& b) { b.set("qwen2.rope.freq_base", -1.0f); }, {"rope_theta"}},
      {"theta not finite",
       [](B& b) { b.set("qwen2.rope.freq_base", std::numeric_limits<float>::infinity()); },
       {"qwen2.rope.freq_base"}},
      {"experts", [](B& b) { b.set("qwen2.expert_count", 8u); }, {"qwen2.expert_count"}},
      {"eos out of range",
       [](B& b) { b.set("tokenizer.ggml.eos_token_id", 3'000'000'000u); },
       {"tokenizer.ggml.eos_token_id"}},
  };
  for (const auto& row : additions) {
    SCOPED_TRACE(row.label);
    GgufBuilder b = small_gguf();
    row.add(b);
    built::expect_bad_file(config_of(b), {"m.gguf: ", row.words[0]});
  }
  GgufBuilder gemma;
  gemma.set("general.architecture", "gemma2");
  built::expect_bad_file(config_of(gemma), {"m.gguf: general.architecture gemma2", "qwen2 and llama"});
}

}  // namespace
}  // namespace snug::formats
