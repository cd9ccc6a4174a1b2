// The strict door for weights, the mixes of formats and the size tables.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "model/size_table.h"
#include "model/workspace.h"
#include "support/tiny_model.h"

namespace snug::model {
namespace {

// A checkpoint that fits the configuration exactly; no file is behind it, since only names and shapes count.
formats::Checkpoint complete(const Config& config) {
  formats::Checkpoint checkpoint;
  checkpoint.path = "tiny";
  for (const auto& spec : weight_specs(config)) {
    const auto format = spec.is_matrix() ? quant::Format::bf16 : quant::Format::f32;
    checkpoint.weights.tensors[spec.hf_name] = {spec.hf_name, format, spec.shape};
  }
  return checkpoint;
}

void expect_refused(const Config& config, const formats::Checkpoint& checkpoint,
                    const std::vector<std::string>& words) {
  const auto bound = bind_weights(config, checkpoint);
  ASSERT_FALSE(bound.ok()) << words.front();
  EXPECT_EQ(bound.error().code, ErrorCode::bad_file);
  for (const auto& word : words) {
    EXPECT_NE(bound.error().to_string().find(word), std::string::npos)
        << word << " is not in: " << bound.error().to_string();
  }
}

TEST(BindWeights, TakesACompleteCheckpoint) {
  const Config config = test::tiny_config();
  const auto checkpoint = complete(config);
  const auto bound = bind_weights(config, checkpoint);
  ASSERT_TRUE(bound.ok()) << bound.error().to_string();
  EXPECT_EQ(bound->size(), 3u + 2 * 12);
  std::set<std::string> names;
  for (const auto& weight : *bound) {
    EXPECT_EQ(weight.tensor.name, weight.spec.hf_name);
    EXPECT_TRUE(names.insert(weight.tensor.name).second);
  }
}

TEST(BindWeights, EachMissingTensorIsNamed) {
  const Config config = test::tiny_config();
  for (const auto& spec : weight_specs(config)) {
    auto checkpoint = complete(config);
    checkpoint.weights.tensors.erase(spec.hf_name);
    expect_refused(config, checkpoint, {spec.hf_name, "missing", "tiny"});
  }
}

TEST(BindWeights, NamesWhatIsLeftOver) {
  const Config config = test::tiny_config();
  auto checkpoint = complete(config);
  checkpoint.weights.tensors["model.layers.2.mlp.up_proj.weight"] = {"model.layers.2.mlp.up_proj.weight"};
  expect_refused(config, checkpoint, {"model.layers.2.mlp.up_proj.weight", "2 layers"});
  // Buffers of old checkpoints are computed here.
  checkpoint = complete(config);
  checkpoint.weights.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {};
  EXPECT_TRUE(bind_weights(config, checkpoint).ok());
}

TEST(BindWeights, NamesAWrongShapeAndAWrongFormat) {
  const Config config = test::tiny_config();
  auto checkpoint = complete(config);
  checkpoint.weights.tensors["model.layers.1.mlp.down_proj.weight"].shape = {96, 64};
  expect_refused(config, checkpoint, {"model.layers.1.mlp.down_proj.weight", "(96, 64)", "(64, 96)"});
  checkpoint = complete(config);
  checkpoint.weights.tensors["model.norm.weight"].shape = {64, 1};
  expect_refused(config, checkpoint, {"model.norm.weight", "(64, 1)"});
  checkpoint = complete(config);
  checkpoint.weights.tensors["model.layers.0.input_layernorm.weight"].format = quant::Format::q8_0;
  expect_refused(config, checkpoint, {"model.layers.0.input_layernorm.weight", "q8_0", "f32"});
  checkpoint = complete(config);
  checkpoint.weights.tensors["model.layers.0.self_attn.k_proj.bias"].format = quant::Format::q4_0;
  expect_refused(config, checkpoint, {"model.layers.0.self_attn.k_proj.bias", "q4_0"});
}

// Cases B01, B02 and B04.
TEST(BindWeights, TiedAndUntiedHeads) {
  Config tied = test::tiny_config();
  tied.tied = true;
  auto checkpoint = complete(tied);
  ASSERT_FALSE(checkpoint.weights.tensors.contains("lm_head.weight"));
  const auto without = bind_weights(tied, checkpoint);
  ASSERT_TRUE(without.ok()) << without.error().to_string();
  checkpoint.weights.tensors["lm_head.weight"] = {"lm_head.weight", quant::Format::bf16, {128, 64}};
  const auto with = bind_weights(tied, checkpoint);
  ASSERT_TRUE(with.ok()) << with.error().to_string();
  EXPECT_EQ(with->size(), without->size());

  const Config untied = test::tiny_config();
  checkpoint = complete(untied);
  checkpoint.weights.tensors.erase("lm_head.weight");
  expect_refused(untied, checkpoint, {"lm_head.weight", "missing"});
}

std::map<quant::Format, int> matrices_by_format(const std::vector<BoundWeight>& weights) {
  std::map<quant::Format, int> count;
  for (const auto& w : weights) {
    if (w.spec.is_matrix()) ++count[w.tensor.format];
  }
  return count;
}

// The numbers of the public Qwen2.5-0.5B-Instruct GGUF files: its width of 896 is no multiple of 256.
TEST(FormatMix, MatchesThePublicFiles) {
  const Config config = *config_by_name("qwen2.5-0.5b");
  const auto mix = weights_of_type(config, "q4_k_m");
  ASSERT_TRUE(mix.ok());
  using quant::Format;
  EXPECT_EQ(matrices_by_format(*mix),
            (std::map<Format, int>{
                {Format::q5_0, 132}, {Format::q4_k, 12}, {Format::q6_k, 12}, {Format::q8_0, 13}}));
  const auto q4_0 = weights_of_type(config, "q4_0");
  ASSERT_TRUE(q4_0.ok());
  EXPECT_EQ(matrices_by_format(*q4_0), (std::map<Format, int>{{Format::q4_0, 168}, {Format::q8_0, 1}}));
  std::int64_t bytes = 0;
  for (const auto& w : *q4_0) bytes += w.tensor.bytes;
  EXPECT_GE(bytes, 346'000'000);
  EXPECT_LE(bytes, 349'000'000);
}

TEST(FormatMix, EveryFormatGivesWholeBlocks) {
  for (const char* name : {"qwen2.5-0.5b", "qwen2.5-7b"}) {
    const Config config = *config_by_name(name);
    for (const auto& format : quant::all_formats()) {
      const auto weights = weights_of_type(config, format.name);
      ASSERT_TRUE(weights.ok()) << format.name;
      for (const auto& w : *weights) {
        if (w.spec.is_matrix()) {
          EXPECT_EQ(w.spec.shape[1] % quant::info(w.tensor.format).block_elems, 0)
              << format.name << " " << w.spec.hf_name;
        } else {
          EXPECT_EQ(w.tensor.format, quant::Format::f32);
        }
      }
    }
  }
  const auto unknown = weights_of_type(test::tiny_config(), "q4_7");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::usage);
  EXPECT_NE(unknown.error().remedy.find("q4_k_m"), std::string::npos);
}

TEST(SizeTable, ActivationsDoNotDependOnTheContext) {
  Config config = *config_by_name("qwen2.5-7b");
  const ForwardLimits limits{.tokens = 512, .sequences = 4, .logit_rows = 4, .threads = 2};
  const auto bytes = [&] {
    return total_bytes(activation_rows(config, limits), Device::host, Lifetime::run);
  };
  const std::int64_t at_32k = bytes();
  config.max_positions = 1'000'000;
  EXPECT_EQ(bytes(), at_32k);
}

TEST(SizeTable, TheWorkspaceTakesExactlyItsRows) {
  const Config config = test::tiny_config();
  const ForwardLimits limits{.tokens = 17, .sequences = 3, .logit_rows = 3, .threads = 2};
  Ledger ledger;
  const auto workspace = Workspace::create(config, limits, ledger);
  ASSERT_TRUE(workspace.ok());
  const auto rows = activation_rows(config, limits);
  EXPECT_EQ(ledger.current(Device::host), total_bytes(rows, Device::host, Lifetime::run));
  EXPECT_EQ(ledger.rows().size(), rows.size());
}

TEST(SizeTable, KvOfSevenB) {
  // 28 layers, K and V, 4 heads of 128, two bytes: 56 KiB a token.
  EXPECT_EQ(kv_row(*config_by_name("qwen2.5-7b"), 32, 32, DType::f16).bytes, 1024 * 56 * 1024);
}

}  // namespace
}  // namespace snug::model
