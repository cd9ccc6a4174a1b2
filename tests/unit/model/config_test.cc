#include "model/config.h"

#include <gtest/gtest.h>

#include "support/tiny_model.h"

namespace snug::model {
namespace {

formats::Checkpoint checkpoint_of(const Json& json) {
  formats::Checkpoint checkpoint;
  auto parsed = formats::parse_hf_config(json, "config.json");
  EXPECT_TRUE(parsed.ok()) << parsed.error().to_string();
  if (parsed.ok()) checkpoint.config = *parsed;
  return checkpoint;
}

Json tiny_json() {
  return test::tiny_config_json(test::tiny_config());
}

void expect_refused(const Json& json, const std::string& words) {
  const auto config = config_from(checkpoint_of(json));
  ASSERT_FALSE(config.ok()) << words;
  EXPECT_EQ(config.error().code, ErrorCode::bad_file);
  EXPECT_NE(config.error().message.find("config.json"), std::string::npos) << config.error().message;
  EXPECT_NE(config.error().message.find(words), std::string::npos) << config.error().message;
}

TEST(Config, TheSameFromAFolderAndAGgufFile) {
  const test::TempFolder folder;
  const Config tiny = test::tiny_config();
  const auto tensors = test::tiny_tensors(tiny, quant::Format::bf16, 1);
  test::write_hf_folder(folder, tiny, tensors);
  const auto gguf = folder.write("tiny.gguf", test::gguf_bytes(tiny, tensors));
  for (const auto& path : {folder.path(), gguf}) {
    const auto checkpoint = formats::open_checkpoint(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_string();
    const auto config = config_from(*checkpoint);
    ASSERT_TRUE(config.ok()) << config.error().to_string();
    EXPECT_EQ(config->architecture, "qwen2");
    EXPECT_EQ(config->hidden, 64);
    EXPECT_EQ(config->layers, 2);
    EXPECT_EQ(config->heads, 4);
    EXPECT_EQ(config->kv_heads, 2);
    EXPECT_EQ(config->head_dim, 16);
    EXPECT_EQ(config->intermediate, 96);
    EXPECT_EQ(config->vocab, 128);
    EXPECT_EQ(config->max_positions, 512);
    EXPECT_EQ(config->rms_eps, 1e-6f);
    EXPECT_TRUE(config->qkv_bias);
    EXPECT_FALSE(config->tied);
    EXPECT_FALSE(config->interleaved_rope);
    EXPECT_EQ(config->rope.theta, 10000.0);
    EXPECT_EQ(config->window_of_layer(1), 0);
    const auto bound = bind_weights(*config, *checkpoint);
    ASSERT_TRUE(bound.ok()) << bound.error().to_string();
    EXPECT_EQ(bound->size(), tensors.size());
  }
}

TEST(Config, LlamaHasNoBiasesAndGgufInterleavesItsRope) {
  Json json = tiny_json();
  json["model_type"] = "llama";
  auto checkpoint = checkpoint_of(json);
  auto config = config_from(checkpoint);
  ASSERT_TRUE(config.ok()) << config.error().to_string();
  EXPECT_FALSE(config->qkv_bias);
  EXPECT_FALSE(config->interleaved_rope);
  checkpoint.kind = formats::Checkpoint::Kind::gguf;
  EXPECT_TRUE(config_from(checkpoint)->interleaved_rope);
}

// Case B17.
TEST(Config, SlidingWindowCountsOnlyWhereTheFlagSaysSo) {
  Json json = tiny_json();
  json["sliding_window"] = 100;
  json["max_window_layers"] = 1;
  json["use_sliding_window"] = false;
  auto config = config_from(checkpoint_of(json));
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->window_of_layer(0), 0);
  EXPECT_EQ(config->window_of_layer(1), 0);
  json["use_sliding_window"] = true;
  config = config_from(checkpoint_of(json));
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->window_of_layer(0), 0);
  EXPECT_EQ(config->window_of_layer(1), 100);
  json["max_window_layers"] = 2;  // no layer is left
  EXPECT_EQ(config_from(checkpoint_of(json))->window_of_layer(1), 0);
}

TEST(Config, RefusesWhatItCannotRun) {
  Json json = tiny_json();
  json["quantization_config"] = {{"quant_method", "awq"}};
  expect_refused(json, "awq");
  json = tiny_json();
  json["head_dim"] = 12;
  expect_refused(json, "head_dim 12");
  json["head_dim"] = 264;
  expect_refused(json, "head_dim 264");
  // The file's reader refuses this already; a caller that fills in the fields itself must not get past it.
  auto llama = checkpoint_of(tiny_json());
  llama.config.model_type = "llama";
  llama.config.attention_bias = true;
  EXPECT_FALSE(config_from(llama).ok());
  llama.config.model_type = "mamba";
  const auto unknown = config_from(llama);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("mamba"), std::string::npos);
  EXPECT_NE(unknown.error().remedy.find("qwen2"), std::string::npos);
}

TEST(Config, PublicGeometries) {
  const auto known = config_by_name("qwen2.5-7b");
  ASSERT_TRUE(known.ok());
  EXPECT_EQ(known->head_dim, 128);
  EXPECT_EQ(known->q_dim(), 3584);
  EXPECT_EQ(known->kv_dim(), 512);
  EXPECT_FALSE(known->tied);
  const auto unknown = config_by_name("qwen9");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::usage);
  EXPECT_NE(unknown.error().remedy.find("qwen2.5-0.5b, qwen2.5-1.5b"), std::string::npos);
}

}  // namespace
}  // namespace snug::model
