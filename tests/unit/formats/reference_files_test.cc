// Checkpoints that other programs wrote: ../shared/golden, where it is present.
#include <gtest/gtest.h>

#include "base/file.h"
#include "formats/checkpoint.h"
#include "formats/safetensors.h"

namespace snug::formats {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = SNUG_GOLDEN_DIR;

class ReferenceFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::is_directory(kGolden)) GTEST_SKIP() << "reference data is absent: " << kGolden;
  }
};

HfConfig config_of(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  auto text = read_text_file(path, 1 << 20);
  EXPECT_TRUE(text.ok());
  auto json = parse_json(*text, path.string());
  EXPECT_TRUE(json.ok());
  auto config = parse_hf_config(*json, path.string());
  EXPECT_TRUE(config.ok()) << config.error().to_string();
  return config.ok() ? *config : HfConfig{};
}

TEST_F(ReferenceFiles, SafetensorsFolders) {
  const struct {
    const char* folder;
    std::size_t tensors, files;
    std::int64_t bytes, hidden, layers, head_dim, kv_heads, vocab;
    bool tied;
  } rows[] = {
      {"text/qwen2-h128", 51, 5, 8004096, 256, 4, 128, 1, 2048, false},
      {"text/qwen2-h64-tied", 38, 1, 9692160, 384, 3, 64, 2, 2048, true},
      {"text/qwen2-mha", 26, 1, 1012480, 128, 2, 32, 4, 1000, true},
      {"text/qwen2-yarn", 26, 1, 2286080, 256, 2, 128, 1, 1000, true},
      {"vl/qwen25vl-tiny", 93, 1, 9615744, 256, 3, 128, 1, 2048, false},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.folder);
    const fs::path folder = kGolden / row.folder;
    const auto index = open_safetensors_folder(folder);
    ASSERT_TRUE(index.ok()) << index.error().to_string();
    EXPECT_TRUE(index->warnings.empty());
    EXPECT_EQ(index->files.size(), row.files);
    EXPECT_EQ(index->tensors.size(), row.tensors);
    EXPECT_EQ(index->total_bytes(), row.bytes);
    const HfConfig config = config_of(folder);
    EXPECT_EQ(config.hidden_size, row.hidden);
    EXPECT_EQ(config.num_hidden_layers, row.layers);
    EXPECT_EQ(config.head_dim, row.head_dim);
    EXPECT_EQ(config.num_key_value_heads, row.kv_heads);
    EXPECT_EQ(config.vocab_size, row.vocab);
    EXPECT_EQ(config.tie_word_embeddings, row.tied);
    EXPECT_EQ(config.rope.theta, 1e6);
    EXPECT_EQ(config.dtype, "bfloat16");
    EXPECT_EQ(config.sliding_window, std::nullopt);
    EXPECT_EQ(config.eos_token_ids, std::vector<std::int32_t>{2});
    const auto embedding = std::ranges::find_if(
        index->tensors, [](const auto& t) { return t.first.ends_with("embed_tokens.weight"); });
    ASSERT_NE(embedding, index->tensors.end());
    EXPECT_EQ(embedding->second.shape, (std::vector<std::int64_t>{row.vocab, row.hidden}));
    EXPECT_EQ(embedding->second.format, quant::Format::bf16);
  }
}

TEST_F(ReferenceFiles, YarnAndMrope) {
  const HfConfig yarn = config_of(kGolden / "text/qwen2-yarn");
  EXPECT_EQ(yarn.rope.type, RopeConfig::Type::yarn);
  EXPECT_EQ(yarn.rope.factor, 4.0);
  EXPECT_EQ(yarn.rope.original_max_positions, 256);
  EXPECT_EQ(yarn.max_position_embeddings, 4096);
  const HfConfig vl = config_of(kGolden / "vl/qwen25vl-tiny");
  EXPECT_EQ(vl.model_type, "qwen2_5_vl");
  EXPECT_EQ(vl.rope.type, RopeConfig::Type::plain);
  EXPECT_EQ(vl.rope.mrope_section, (std::vector<int>{16, 24, 24}));
}

TEST_F(ReferenceFiles, Gguf) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(kGolden / "gguf")) {
    if (entry.path().extension() != ".gguf") continue;
    ++files;
    const std::string name = entry.path().filename().string();
    SCOPED_TRACE(name);
    const auto mapped = MappedFile::open(entry.path());
    ASSERT_TRUE(mapped.ok());
    const auto gguf = parse_gguf(mapped->bytes(), name);
    ASSERT_TRUE(gguf.ok()) << gguf.error().to_string();
    EXPECT_EQ(gguf->tensors.size(), 27u);
    EXPECT_EQ(gguf->get_strings("tokenizer.ggml.tokens")->size(), 512u);
    std::int64_t end = 0, sum = 0;
    for (const TensorEntry& t : gguf->tensors) {
      end = std::max(end, t.offset + t.bytes);
      sum += t.bytes;
      if (t.name == "output.weight") {
        EXPECT_EQ(t.shape, (std::vector<std::int64_t>{512, 256}));
      }
    }
    EXPECT_EQ(end, static_cast<std::int64_t>(mapped->bytes().size()));
    if (name == "tiny-f16.gguf") {
      // Weights of 2 bytes; norms and biases of 4.
      std::int64_t matrices = 0, vectors = 0;
      for (const TensorEntry& t : gguf->tensors) {
        std::int64_t n = 1;
        for (const std::int64_t dim : t.shape) n *= dim;
        (t.shape.size() == 1 ? vectors : matrices) += n;
      }
      EXPECT_EQ(sum, 2 * matrices + 4 * vectors);
    }
    const auto config = config_from_gguf(*gguf);
    ASSERT_TRUE(config.ok()) << config.error().to_string();
    EXPECT_EQ(config->hidden_size, 256);
    EXPECT_EQ(config->num_hidden_layers, 2);
    EXPECT_EQ(config->head_dim, 128);
    EXPECT_EQ(config->num_key_value_heads, 1);
    EXPECT_EQ(config->vocab_size, 512);
    EXPECT_EQ(config->rope.theta, 1e6);
    EXPECT_FALSE(config->tie_word_embeddings);
    EXPECT_EQ(config->eos_token_ids, std::vector<std::int32_t>{268});
    EXPECT_EQ(config->bos_token_id, 266);
  }
  EXPECT_EQ(files, 13);
}

// Other data with an integer tensor inside: refused by name and type.
TEST_F(ReferenceFiles, IntegerTensors) {
  const fs::path path = kGolden / "vl/golden.safetensors";
  const auto mapped = MappedFile::open(path);
  ASSERT_TRUE(mapped.ok());
  const auto result = parse_safetensors(mapped->bytes(), "golden.safetensors");
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("I32"), std::string::npos) << result.error().message;
}

}  // namespace
}  // namespace snug::formats
