#include "formats/hf_config.h"

#include <gtest/gtest.h>

#include "unit/formats/file_builder.h"

namespace snug::formats {
namespace {

// Qwen2.5-7B's geometry in the 4.x style.
Json qwen4() {
  return Json::parse(R"({
    "model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "rms_norm_eps": 1e-06,
    "max_position_embeddings": 32768, "max_window_layers": 28, "sliding_window": 131072,
    "use_sliding_window": false, "rope_theta": 1000000.0, "tie_word_embeddings": false, "hidden_act": "silu",
    "torch_dtype": "bfloat16", "bos_token_id": 151643, "eos_token_id": 151645})");
}

// The same in the 5.x style.
Json qwen5() {
  Json json = qwen4();
  for (const char* field : {"rope_theta", "torch_dtype"}) json.erase(field);
  json["dtype"] = "bfloat16";
  json["rope_parameters"] = {{"rope_theta", 1000000.0}, {"rope_type", "default"}};
  json["sliding_window"] = nullptr;
  json["layer_types"] = Json::array();
  for (int i = 0; i < 28; ++i) json["layer_types"].push_back("full_attention");
  return json;
}

HfConfig parsed(const Json& json) {
  auto result = parse_hf_config(json, "config.json");
  EXPECT_TRUE(result.ok()) << result.error().to_string();
  return result.ok() ? *result : HfConfig{};
}

void expect_same_text(const HfConfig& a, const HfConfig& b) {
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.num_hidden_layers, b.num_hidden_layers);
  EXPECT_EQ(a.num_attention_heads, b.num_attention_heads);
  EXPECT_EQ(a.num_key_value_heads, b.num_key_value_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.intermediate_size, b.intermediate_size);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.max_position_embeddings, b.max_position_embeddings);
  EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
  EXPECT_EQ(a.tie_word_embeddings, b.tie_word_embeddings);
  EXPECT_EQ(a.attention_bias, b.attention_bias);
  EXPECT_EQ(a.sliding_window, b.sliding_window);
  EXPECT_EQ(a.max_window_layers, b.max_window_layers);
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.rope.type, b.rope.type);
  EXPECT_EQ(a.rope.theta, b.rope.theta);
  EXPECT_EQ(a.rope.factor, b.rope.factor);
  EXPECT_EQ(a.rope.original_max_positions, b.rope.original_max_positions);
  EXPECT_EQ(a.rope.mrope_section, b.rope.mrope_section);
  EXPECT_EQ(a.eos_token_ids, b.eos_token_ids);
  EXPECT_EQ(a.bos_token_id, b.bos_token_id);
}

TEST(HfConfig, BothStylesAreTheSame) {
  const HfConfig old_style = parsed(qwen4());
  EXPECT_EQ(old_style.file, "config.json");
  EXPECT_EQ(old_style.model_type, "qwen2");
  EXPECT_EQ(old_style.hidden_size, 3584);
  EXPECT_EQ(old_style.num_key_value_heads, 4);
  EXPECT_EQ(old_style.head_dim, 128);
  EXPECT_EQ(old_style.dtype, "bfloat16");
  EXPECT_EQ(old_style.rope.theta, 1e6);
  EXPECT_TRUE(old_style.attention_bias);
  EXPECT_FALSE(old_style.tie_word_embeddings);
  EXPECT_EQ(old_style.eos_token_ids, std::vector<std::int32_t>{151645});
  EXPECT_EQ(old_style.bos_token_id, 151643);
  EXPECT_EQ(old_style.pad_token_id, std::nullopt);
  expect_same_text(old_style, parsed(qwen5()));
}

TEST(HfConfig, Defaults) {
  Json json = qwen4();
  for (const char* field :
       {"num_key_value_heads", "rms_norm_eps", "tie_word_embeddings", "hidden_act", "rope_theta",
        "torch_dtype", "eos_token_id", "bos_token_id", "max_window_layers"}) {
    json.erase(field);
  }
  const HfConfig config = parsed(json);
  EXPECT_EQ(config.num_key_value_heads, 28);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.rope.theta, 1e4);
  EXPECT_EQ(config.dtype, "");
  EXPECT_TRUE(config.eos_token_ids.empty());
  EXPECT_EQ(config.max_window_layers, 28);
  json["head_dim"] = 64;
  EXPECT_EQ(parsed(json).head_dim, 64);
}

TEST(HfConfig, Llama) {
  const Json json = Json::parse(R"({
    "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152, "rms_norm_eps": 1e-05,
    "max_position_embeddings": 8192, "rope_theta": 100000, "rope_scaling": null, "rope_interleaved": false,
    "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false, "torch_dtype": "torch.bfloat16",
    "eos_token_id": [2, 0, 2], "pad_token_id": -1})");
  const HfConfig config = parsed(json);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.dtype, "bfloat16");
  EXPECT_EQ(config.eos_token_ids, (std::vector<std::int32_t>{2, 0}));
  EXPECT_EQ(config.pad_token_id, std::nullopt);
}

// Case B14: the window is stated before or after stretching, and means the same.
TEST(HfConfig, YarnIsTheSameForBothStatedWindows) {
  for (const std::int64_t stated : {32768, 131072}) {
    Json json = qwen4();
    json["max_position_embeddings"] = stated;
    json["rope_scaling"] = {{"factor", 4.0}, {"original_max_position_embeddings", 32768}, {"type", "yarn"}};
    const HfConfig config = parsed(json);
    EXPECT_EQ(config.rope.type, RopeConfig::Type::yarn);
    EXPECT_EQ(config.rope.factor, 4.0);
    EXPECT_EQ(config.rope.original_max_positions, 32768);
    EXPECT_EQ(config.rope.theta, 1e6);
    EXPECT_EQ(config.rope.beta_fast, 32.0);
    EXPECT_EQ(config.rope.beta_slow, 1.0);
    EXPECT_EQ(config.rope.attention_factor, std::nullopt);
    EXPECT_EQ(config.max_position_embeddings, 131072);
  }
}

TEST(HfConfig, YarnWithoutOriginalWindowTakesTheStatedOne) {
  Json json = qwen5();
  json["rope_parameters"] = {
      {"factor", 2}, {"rope_type", "yarn"}, {"rope_theta", 5e5}, {"attention_factor", 1.5}};
  const HfConfig config = parsed(json);
  EXPECT_EQ(config.rope.original_max_positions, 32768);
  EXPECT_EQ(config.rope.theta, 5e5);
  EXPECT_EQ(config.rope.attention_factor, 1.5);
  EXPECT_EQ(config.max_position_embeddings, 65536);
}

// YaRN added by hand, as Qwen's README says, to a file in the new style.
TEST(HfConfig, RopeScalingBesideRopeParameters) {
  Json json = qwen5();
  json["rope_scaling"] = {{"factor", 4.0}, {"original_max_position_embeddings", 32768}, {"type", "yarn"}};
  const HfConfig config = parsed(json);
  EXPECT_EQ(config.rope.type, RopeConfig::Type::yarn);
  EXPECT_EQ(config.rope.theta, 1e6);
}

// Case B13: all spellings of M-RoPE.
TEST(HfConfig, MropeSpellings) {
  const char* spellings[] = {R"({"type":"mrope"})",
                             R"({"rope_type":"mrope"})",
                             R"({"type":"default"})",
                             R"({"rope_type":"default"})",
                             R"({"type":"mrope","rope_type":"default"})",
                             R"({"type":"default","rope_type":"default"})",
                             "{}"};
  for (const char* spelling : spellings) {
    SCOPED_TRACE(spelling);
    Json json = qwen4();
    json["model_type"] = "qwen2_5_vl";
    json["rope_scaling"] = Json::parse(spelling);
    json["rope_scaling"]["mrope_section"] = {16, 24, 24};
    const HfConfig config = parsed(json);
    EXPECT_EQ(config.rope.type, RopeConfig::Type::plain);
    EXPECT_EQ(config.rope.mrope_section, (std::vector<int>{16, 24, 24}));
    EXPECT_EQ(config.max_position_embeddings, 32768);
  }
}

// Case B16: YaRN of a vision-language model is kept, whichever field says so.
TEST(HfConfig, YarnWithMrope) {
  for (const char* spelling : {R"({"type":"yarn"})", R"({"type":"mrope","rope_type":"yarn"})",
                               R"({"type":"yarn","rope_type":"default"})"}) {
    SCOPED_TRACE(spelling);
    Json json = qwen4();
    json["model_type"] = "qwen2_5_vl";
    json["rope_scaling"] = Json::parse(spelling);
    json["rope_scaling"].update({{"mrope_section", {16, 24, 24}}, {"factor", 4}});
    const HfConfig config = parsed(json);
    EXPECT_EQ(config.rope.type, RopeConfig::Type::yarn);
    EXPECT_EQ(config.rope.factor, 4.0);
    EXPECT_EQ(config.rope.mrope_section.size(), 3u);
  }
}

TEST(HfConfig, VisionLanguageInAllLayouts) {
  Json flat = qwen4();
  flat["model_type"] = "qwen2_5_vl";
  flat["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}};
  flat["vision_config"] = {{"hidden_size", 1280}, {"depth", 32}};

  Json text = qwen5();
  text["model_type"] = "qwen2_5_vl_text";
  text["rope_parameters"].update({{"type", "mrope"}, {"mrope_section", {16, 24, 24}}});
  Json nested = {{"model_type", "qwen2_5_vl"},
                 {"text_config", text},
                 {"vision_config", flat["vision_config"]},
                 {"tie_word_embeddings", false}};

  Json both = flat;  // with fields at the top that text_config overrides
  both["hidden_size"] = 1;
  both["text_config"] = text;

  const HfConfig expected = parsed(flat);
  EXPECT_EQ(expected.model_type, "qwen2_5_vl");
  EXPECT_EQ(expected.hidden_size, 3584);
  for (const Json& json : {nested, both, text}) {
    const HfConfig config = parsed(json);
    EXPECT_EQ(config.model_type, "qwen2_5_vl");
    expect_same_text(config, expected);
  }
  flat["model_type"] = "qwen2_vl";
  EXPECT_EQ(parsed(flat).model_type, "qwen2_vl");
  // Whether the head is tied is said for the whole model.
  nested["tie_word_embeddings"] = true;
  EXPECT_TRUE(parsed(nested).tie_word_embeddings);
  nested.erase("tie_word_embeddings");
  nested["text_config"]["tie_word_embeddings"] = true;
  EXPECT_TRUE(parsed(nested).tie_word_embeddings);
}

// Case B17: without the flag, the window's numbers do not matter.
TEST(HfConfig, SlidingWindow) {
  Json json = qwen4();
  json["max_window_layers"] = 21;
  json["sliding_window"] = 4096;
  EXPECT_EQ(parsed(json).sliding_window, std::nullopt);
  json.erase("use_sliding_window");
  EXPECT_EQ(parsed(json).sliding_window, std::nullopt);
  json["use_sliding_window"] = true;
  EXPECT_EQ(parsed(json).sliding_window, 4096);
  EXPECT_EQ(parsed(json).max_window_layers, 21);
  json["max_window_layers"] = 70;  // beyond the last layer: no layer uses it
  EXPECT_EQ(parsed(json).sliding_window, std::nullopt);

  json["layer_types"] = Json::array();
  for (int i = 0; i < 28; ++i) json["layer_types"].push_back(i < 20 ? "full_attention" : "sliding_attention");
  EXPECT_EQ(parsed(json).sliding_window, 4096);
  EXPECT_EQ(parsed(json).max_window_layers, 20);
  json["layer_types"][27] = "full_attention";
  built::expect_bad_file(parse_hf_config(json, "config.json"), {"config.json", "layer_types"});
  json["use_sliding_window"] = false;
  EXPECT_EQ(parsed(json).sliding_window, std::nullopt);
}

TEST(HfConfig, QuantizationIsNoted) {
  Json json = qwen4();
  EXPECT_EQ(parsed(json).quantization_method, std::nullopt);
  json["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  EXPECT_EQ(parsed(json).quantization_method, "gptq");
  json["quantization_config"] = {{"bits", 4}};
  EXPECT_EQ(parsed(json).quantization_method, "unknown");
}

TEST(HfConfig, RefusesBadFields) {
  const struct {
    const char* patch;  // merged into a good file; null removes a field
    std::vector<std::string> words;
  } rows[] = {
      {R"({"model_type":null})", {"model_type is missing"}},
      {R"({"model_type":"gemma"})", {"model_type gemma", "qwen2, llama"}},
      {R"({"model_type":7})", {"model_type"}},
      {R"({"hidden_size":null})", {"hidden_size is missing"}},
      {R"({"hidden_size":0})", {"hidden_size"}},
      {R"({"hidden_size":-5})", {"hidden_size"}},
      {R"({"hidden_size":2000000})", {"hidden_size"}},
      {R"({"hidden_size":"3584"})", {"hidden_size"}},
      {R"({"hidden_size":3584.5})", {"hidden_size"}},
      {R"({"hidden_size":18446744073709551615})", {"hidden_size"}},
      {R"({"hidden_size":3585})", {"hidden_size", "num_attention_heads"}},
      {R"({"num_hidden_layers":10001})", {"num_hidden_layers"}},
      {R"({"num_hidden_layers":[28]})", {"num_hidden_layers"}},
      {R"({"num_attention_heads":0})", {"num_attention_heads"}},
      {R"({"num_key_value_heads":5})", {"num_attention_heads", "num_key_value_heads"}},
      {R"({"num_key_value_heads":0})", {"num_key_value_heads"}},
      {R"({"head_dim":63})", {"head_dim"}},
      {R"({"head_dim":8192})", {"head_dim"}},
      {R"({"intermediate_size":null})", {"intermediate_size"}},
      {R"({"vocab_size":0})", {"vocab_size"}},
      {R"({"vocab_size":999999999})", {"vocab_size"}},
      {R"({"max_position_embeddings":0})", {"max_position_embeddings"}},
      {R"({"rms_norm_eps":0})", {"rms_norm_eps"}},
      {R"({"rms_norm_eps":-1e-6})", {"rms_norm_eps"}},
      {R"({"rms_norm_eps":"1e-6"})", {"rms_norm_eps"}},
      {R"({"hidden_act":"gelu"})", {"hidden_act"}},
      {R"({"tie_word_embeddings":1})", {"tie_word_embeddings"}},
      {R"({"torch_dtype":"int8"})", {"torch_dtype"}},
      {R"({"dtype":"float64"})", {"dtype"}},
      {R"({"eos_token_id":"</s>"})", {"eos_token_id"}},
      {R"({"eos_token_id":[1,-2]})", {"eos_token_id"}},
      {R"({"eos_token_id":4294967296})", {"eos_token_id"}},
      {R"({"bos_token_id":1.5})", {"bos_token_id"}},
      {R"({"use_sliding_window":"yes"})", {"use_sliding_window"}},
      {R"({"use_sliding_window":true,"sliding_window":0,"max_window_layers":1})", {"sliding_window"}},
      {R"({"sliding_window":-1})", {"sliding_window"}},
      {R"({"layer_types":["full_attention"]})", {"layer_types", "28"}},
      {R"({"layer_types":"full_attention"})", {"layer_types"}},
      {R"({"num_hidden_layers":1,"layer_types":["linear_attention"]})", {"layer_types"}},
      {R"({"rope_theta":0})", {"rope_theta"}},
      {R"({"rope_theta":"1e6"})", {"rope_theta"}},
      {R"({"rope_scaling":4})", {"rope_scaling"}},
      {R"({"rope_scaling":{"type":"dynamic","factor":2}})", {"rope_scaling", "dynamic", "yarn"}},
      {R"({"rope_scaling":{"rope_type":"llama3","factor":8}})", {"rope_scaling", "llama3"}},
      {R"({"rope_scaling":{"type":"yarn"}})", {"rope_scaling", "factor is missing"}},
      {R"({"rope_scaling":{"type":"linear"}})", {"rope_scaling", "factor is missing"}},
      {R"({"rope_scaling":{"type":"yarn","factor":0.5}})", {"rope_scaling", "factor"}},
      {R"({"rope_scaling":{"type":"yarn","factor":1e9}})", {"rope_scaling", "factor"}},
      {R"({"rope_scaling":{"factor":4,"original_max_position_embeddings":32768}})",
       {"rope_scaling", "factor 4"}},
      {R"({"rope_scaling":{"type":"default","factor":4}})", {"rope_scaling", "factor 4"}},
      {R"({"rope_scaling":{"type":"yarn","rope_type":"linear","factor":4}})", {"type and rope_type"}},
      {R"({"rope_scaling":{"type":"yarn","factor":4,"original_max_position_embeddings":0}})",
       {"original_max_position_embeddings"}},
      {R"({"rope_scaling":{"type":"yarn","factor":4,"beta_fast":1,"beta_slow":2}})", {"beta_fast"}},
      {R"({"rope_scaling":{"type":"yarn","factor":4,"attention_factor":-1}})", {"attention_factor"}},
      {R"({"rope_scaling":{"type":"yarn","factor":4,"mscale":1}})", {"mscale"}},
      {R"({"rope_scaling":{"type":"yarn","factor":4,"truncate":false}})", {"truncate"}},
      {R"({"rope_scaling":{"type":"mrope","mrope_section":[16,24,25]}})", {"mrope_section", "64"}},
      {R"({"rope_scaling":{"type":"mrope","mrope_section":[64]}})", {"mrope_section"}},
      {R"({"rope_scaling":{"type":"mrope","mrope_section":[16,-24,72]}})", {"mrope_section"}},
      {R"({"rope_parameters":{"full_attention":{"rope_type":"default"}}})", {"rope_parameters"}},
      {R"({"partial_rotary_factor":0.5})", {"partial_rotary_factor"}},
      {R"({"quantization_config":"gptq"})", {"quantization_config"}},
      {R"({"text_config":[]})", {"text_config"}},
      {R"({"model_type":"llama","attention_bias":true})", {"attention_bias"}},
      {R"({"model_type":"llama","mlp_bias":true})", {"mlp_bias"}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.patch);
    Json json = qwen4();
    json.merge_patch(Json::parse(row.patch));
    auto words = row.words;
    words.push_back("config.json: ");
    built::expect_bad_file(parse_hf_config(json, "config.json"), words);
  }
  for (const char* text : {"[]", "3", "null", "\"qwen2\""}) {
    built::expect_bad_file(parse_hf_config(Json::parse(text), "config.json"),
                           {"config.json: must be a JSON object"});
    built::expect_bad_file(parse_generation_config(Json::parse(text), "g.json"),
                           {"g.json: must be a JSON object"});
  }
}

TEST(GenerationConfig, ReadsWhatIsThere) {
  const auto config = parse_generation_config(
      Json::parse(R"({"eos_token_id":[151645,151643],"temperature":0.7,"top_p":0.8,"top_k":20,"min_p":0,
                      "repetition_penalty":1.05,"do_sample":true})"),
      "generation_config.json");
  ASSERT_TRUE(config.ok()) << config.error().to_string();
  EXPECT_EQ(config->eos_token_ids, (std::vector<std::int32_t>{151645, 151643}));
  EXPECT_EQ(config->temperature, 0.7);
  EXPECT_EQ(config->top_p, 0.8);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_EQ(config->min_p, 0.0);
  EXPECT_EQ(config->repetition_penalty, 1.05);
  EXPECT_EQ(config->do_sample, true);
  const auto empty = parse_generation_config(Json::parse(R"({"top_p":null})"), "generation_config.json");
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->eos_token_ids.empty());
  EXPECT_EQ(empty->top_p, std::nullopt);
  EXPECT_EQ(empty->do_sample, std::nullopt);
}

TEST(GenerationConfig, RefusesBadFields) {
  for (const char* text :
       {R"({"temperature":-1})", R"({"temperature":"hot"})", R"({"top_p":0})", R"({"top_p":1.5})",
        R"({"top_k":-2})", R"({"top_k":0.5})", R"({"min_p":2})", R"({"repetition_penalty":0})",
        R"({"do_sample":"yes"})", R"({"eos_token_id":{}})", R"({"eos_token_id":true})"}) {
    SCOPED_TRACE(text);
    const Json json = Json::parse(text);
    built::expect_bad_file(parse_generation_config(json, "g.json"), {"g.json: " + json.begin().key()});
  }
}

}  // namespace
}  // namespace snug::formats
