// Random damage to well-formed files: the readers may accept or refuse, and must stay inside the file.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "formats/checkpoint.h"
#include "formats/safetensors.h"
#include "unit/formats/file_builder.h"

namespace snug::formats {
namespace {

using built::as_bytes, built::raw, built::GgufBuilder;

// Flips, overwrites, cuts or repeats bytes; the first 4 stay, so that most mutants get past the magic.
std::string mutate(std::string bytes, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (std::size_t i = 0, n = 1 + below(4); i < n && bytes.size() > 16; ++i) {
    const std::size_t at = 4 + below(bytes.size() - 12);
    switch (below(5)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(random());
        break;
      case 2:
        bytes.replace(at, 8, raw(std::uint64_t{1} << below(64)));
        break;
      case 3:
        bytes.resize(at);
        break;
      default:
        bytes.insert(at, bytes.substr(at, below(32)));
    }
  }
  return bytes;
}

// Runs `parse` on mutants, each in a buffer of exactly its size so that a sanitizer sees a read past it.
void run_mutants(const std::string& good, int count,
                 const std::function<bool(std::span<const std::byte>)>& parse) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::printf("seed %u\n", seed);
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const std::string bytes = mutate(good, random);
    const std::vector<std::byte> exact(as_bytes(bytes).begin(), as_bytes(bytes).end());
    if (!parse(exact)) ++refused;
  }
  EXPECT_GT(refused, count / 10);
}

bool inside(const TensorEntry& t, std::size_t size) {
  return t.offset >= 0 && t.bytes >= 0 && static_cast<std::size_t>(t.offset) <= size &&
         static_cast<std::size_t>(t.bytes) <= size - static_cast<std::size_t>(t.offset);
}

TEST(Mutation, Safetensors) {
  run_mutants(built::safetensors_of({"a.weight", "b.weight", "c.bias"}), 3000,
              [](std::span<const std::byte> bytes) {
                const auto result = parse_safetensors(bytes, "mutant");
                if (!result.ok()) {
                  EXPECT_EQ(result.error().code, ErrorCode::bad_file);
                  EXPECT_TRUE(result.error().message.starts_with("mutant: ")) << result.error().message;
                  return false;
                }
                for (const TensorEntry& t : *result) EXPECT_TRUE(inside(t, bytes.size())) << t.name;
                return true;
              });
}

TEST(Mutation, Gguf) {
  GgufBuilder b = built::small_gguf();
  b.set_array("tokenizer.ggml.tokens", GgufBuilder::string, 3,
              GgufBuilder::text("a") + GgufBuilder::text("bc") + GgufBuilder::text("d"));
  b.set_array("tokenizer.ggml.token_type", GgufBuilder::i32, 2, raw(1) + raw(3));
  b.tensor("token_embd.weight", {64, 3}, 2, 108).tensor("output_norm.weight", {64}, 0, 256);
  run_mutants(b.build(), 3000, [](std::span<const std::byte> bytes) {
    const auto result = parse_gguf(bytes, "mutant");
    if (!result.ok()) {
      EXPECT_EQ(result.error().code, ErrorCode::bad_file);
      EXPECT_TRUE(result.error().message.starts_with("mutant: ")) << result.error().message;
      return false;
    }
    for (const TensorEntry& t : result->tensors) EXPECT_TRUE(inside(t, bytes.size())) << t.name;
    return config_from_gguf(*result).ok();
  });
}

TEST(Mutation, Config) {
  const std::string good =
      R"({"model_type":"qwen2","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,)"
      R"("intermediate_size":128,"vocab_size":100,"max_position_embeddings":64,)"
      R"("rope_scaling":{"type":"yarn","factor":4.0},"eos_token_id":[1,2]})";
  run_mutants(good, 3000, [](std::span<const std::byte> bytes) {
    const auto json = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "mutant");
    if (!json.ok()) return false;
    const auto generation = parse_generation_config(*json, "mutant");
    const auto config = parse_hf_config(*json, "mutant");
    if (!config.ok()) return false;
    EXPECT_GT(config->head_dim, 0);
    EXPECT_GT(config->num_key_value_heads, 0);
    EXPECT_EQ(config->num_attention_heads % config->num_key_value_heads, 0);
    return generation.ok();
  });
}

}  // namespace
}  // namespace snug::formats
