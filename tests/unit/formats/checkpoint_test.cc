#include "formats/checkpoint.h"

#include <gtest/gtest.h>

#include "base/process.h"
#include "unit/formats/file_builder.h"

namespace snug::formats {
namespace {

namespace fs = std::filesystem;
using built::GgufBuilder, built::safetensors_of, built::small_gguf, built::TempFolder;

constexpr const char* kConfig =
    R"({"model_type":"qwen2","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"intermediate_size":128,)"
    R"("vocab_size":100,"max_position_embeddings":64,"eos_token_id":5})";

TEST(Checkpoint, FolderWithoutTokenizer) {
  TempFolder folder;
  folder.write("config.json", kConfig);
  folder.write("generation_config.json", R"({"eos_token_id":[5,6],"top_k":20})");
  folder.write("model.safetensors", safetensors_of({"a"}));
  const auto result = open_checkpoint(folder.path());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(result->kind, Checkpoint::Kind::hugging_face);
  EXPECT_EQ(result->path, folder.path());
  EXPECT_EQ(result->config.hidden_size, 64);
  EXPECT_EQ(result->generation.eos_token_ids, (std::vector<std::int32_t>{5, 6}));
  EXPECT_EQ(result->generation.top_k, 20);
  EXPECT_EQ(result->weights.tensors.size(), 1u);
  EXPECT_FALSE(result->tokenizer.has_value());
  ASSERT_TRUE(result->tokenizer_error.has_value());
  EXPECT_NE(result->tokenizer_error->message.find("tokenizer.json"), std::string::npos);  // case B20
}

TEST(Checkpoint, GgufFileUnderAnyName) {
  TempFolder folder;
  GgufBuilder b = small_gguf();
  b.set("tokenizer.ggml.eos_token_id", 7u).tensor("output.weight", {64, 100}, 0, 25600);
  for (const char* name : {"m.gguf", "sha256-0123"}) {
    const auto result = open_checkpoint(folder.write(name, b.build()));
    ASSERT_TRUE(result.ok()) << result.error().to_string();
    EXPECT_EQ(result->kind, Checkpoint::Kind::gguf);
    EXPECT_EQ(result->config.eos_token_ids, std::vector<std::int32_t>{7});
    EXPECT_EQ(result->weights.total_bytes(), 25600);
    EXPECT_FALSE(result->tokenizer.has_value());
    EXPECT_TRUE(result->tokenizer_error.has_value());
  }
}

std::string split_part(std::uint32_t number, std::uint32_t count, const std::string& tensor,
                       std::uint32_t total) {
  GgufBuilder b;
  if (number == 0) b = small_gguf();
  b.set("split.no", number).set("split.count", count).set("split.tensors.count", total);
  b.tensor(tensor, {64}, 0, 256);
  return b.build();
}

TEST(Checkpoint, SplitGguf) {
  TempFolder folder;
  const fs::path first = folder.write("m-00001-of-00002.gguf", split_part(0, 2, "a", 2));
  built::expect_bad_file(open_checkpoint(first), {"2 parts, 1 of them are present", "m-00002-of-00002.gguf"});
  const fs::path second = folder.write("m-00002-of-00002.gguf", split_part(1, 2, "output.weight", 2));
  auto result = open_checkpoint(first);
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(result->weights.files.size(), 2u);
  EXPECT_EQ(result->weights.tensors.at("a").file, 0);
  EXPECT_EQ(result->weights.tensors.at("output.weight").file, 1);
  EXPECT_FALSE(result->config.tie_word_embeddings);  // the second part's tensors count

  built::expect_bad_file(open_checkpoint(second), {"part 2 of 2", "m-00001-of-00002.gguf"});
  built::expect_bad_file(open_checkpoint(folder.write("renamed.gguf", split_part(0, 2, "a", 2))),
                         {"renamed.gguf", "-00001-of-00002.gguf"});
  folder.write("m-00002-of-00002.gguf", split_part(1, 2, "a", 2));
  built::expect_bad_file(open_checkpoint(first),
                         {"m-00002-of-00002.gguf", "tensor a", "m-00001-of-00002.gguf"});
  folder.write("m-00002-of-00002.gguf", split_part(0, 2, "b", 2));
  built::expect_bad_file(open_checkpoint(first), {"m-00002-of-00002.gguf", "split.no"});
  folder.write("m-00002-of-00002.gguf", split_part(1, 2, "b", 3));
  folder.write("m-00001-of-00002.gguf", split_part(0, 2, "a", 3));
  built::expect_bad_file(open_checkpoint(first),
                         {"split.tensors.count", "3 tensors expected, the parts hold 2"});
}

TEST(Checkpoint, SaysWhatIsWrongWithThePath) {
  TempFolder folder;
  const fs::path missing = folder.path() / "nowhere";
  built::expect_bad_file(open_checkpoint(missing), {missing.string(), "no such file", "snug pull"});
  built::expect_bad_file(open_checkpoint(folder.write("m.safetensors", safetensors_of({"a"}))),
                         {"m.safetensors", "give its folder: " + folder.path().string()});
  for (const char* name : {"pytorch_model.bin", "m.pt", "m.pth", "m.ckpt"}) {
    built::expect_bad_file(open_checkpoint(folder.write(name, "PK")), {name, "pickle", "safetensors"});
  }
  built::expect_bad_file(open_checkpoint(folder.write("notes.txt", "hello")), {"notes.txt", "not a model"});
  built::expect_bad_file(open_checkpoint(folder.write("short.gguf", "GG")), {"short.gguf", "magic"});
  built::expect_bad_file(open_checkpoint(folder.write("empty.gguf", "")), {"empty.gguf", "empty"});
}

TEST(Checkpoint, SaysWhatIsWrongWithTheFolder) {
  TempFolder folder;
  built::expect_bad_file(open_checkpoint(folder.path()), {folder.path().string(), "config.json is missing"});
  folder.write("m.gguf", small_gguf().build());
  built::expect_bad_file(open_checkpoint(folder.path()), {"config.json is missing", "m.gguf"});
  folder.write("config.json", kConfig);
  built::expect_bad_file(open_checkpoint(folder.path()), {"model.safetensors"});
  folder.write("pytorch_model.bin", "PK");
  built::expect_bad_file(open_checkpoint(folder.path()), {"pytorch_model.bin", "pickle", "safetensors"});
  folder.write("model.safetensors", safetensors_of({"a"}));
  EXPECT_TRUE(open_checkpoint(folder.path()).ok());
  folder.write("generation_config.json", R"({"top_p":7})");
  built::expect_bad_file(open_checkpoint(folder.path()), {"generation_config.json: top_p"});
  folder.write("config.json", R"({"model_type":"qwen2")");
  built::expect_bad_file(open_checkpoint(folder.path()), {"config.json: not valid JSON"});
  folder.write("config.json", std::string(5 << 20, ' '));
  built::expect_bad_file(open_checkpoint(folder.path()), {"config.json", "5242880 bytes"});
  Json quantised = Json::parse(kConfig);
  quantised["quantization_config"] = {{"quant_method", "awq"}};
  folder.write("config.json", quantised.dump());
  built::expect_bad_file(open_checkpoint(folder.path()),
                         {"config.json: quantization_config.quant_method awq"});
}

// Case B22.
TEST(Checkpoint, AdapterAloneNamesItsBase) {
  TempFolder folder;
  folder.write("adapter_model.safetensors", safetensors_of({"a"}));
  folder.write("adapter_config.json", R"({"base_model_name_or_path":"Qwen/Qwen2.5-7B"})");
  built::expect_bad_file(open_checkpoint(folder.path()), {"adapter_config.json", "only an adapter",
                                                          "Qwen/Qwen2.5-7B", "base_model_name_or_path"});
  folder.write("adapter_config.json", R"({"base_model_name_or_path":null})");
  built::expect_bad_file(open_checkpoint(folder.path()),
                         {"adapter_config.json", "base_model_name_or_path is missing"});
  folder.write("adapter_config.json", "{");
  built::expect_bad_file(open_checkpoint(folder.path()), {"adapter_config.json", "not valid JSON"});
}

// The skeleton costs next to nothing, however large the weights are.
TEST(Checkpoint, OpeningTouchesNoWeight) {
  TempFolder folder;
  folder.write("config.json", kConfig);
  const std::int64_t floats = 64 << 20;  // 256 MiB, a hole in the file system
  const std::string header = R"({"a":{"dtype":"F32","shape":[)" + std::to_string(floats) +
                             R"(],"data_offsets":[0,)" + std::to_string(4 * floats) + "]}}";
  const fs::path path = folder.write("model.safetensors", built::safetensors(header, 0));
  fs::resize_file(path, fs::file_size(path) + static_cast<std::uintmax_t>(4 * floats));
  const std::int64_t before = resident_bytes();
  const auto result = open_checkpoint(folder.path());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(result->weights.total_bytes(), 4 * floats);
  EXPECT_LT(resident_bytes() - before, 16 << 20);
}

}  // namespace
}  // namespace snug::formats
