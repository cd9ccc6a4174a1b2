// The pre-tokeniser patterns that checkpoints use, by the name GGUF gives them. Sources: the pre_tokenizer of
// each model's tokenizer.json; names: https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp
#include <algorithm>
#include <array>

#include "text/tokenizer.h"

namespace snug::text {
namespace {

constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array<std::string_view, 4> kGpt2Names = {"gpt-2", "phi-2", "olmo", "mpt"};
constexpr std::array<std::string_view, 3> kQwen2Names = {"qwen2", "deepseek-r1-qwen", "stablelm2"};
constexpr std::array<std::string_view, 4> kLlama3Names = {"llama-bpe", "llama3", "llama-v3", "smaug-bpe"};
// Digits one by one, then GPT-2's.
constexpr std::array<std::string_view, 5> kDigitsNames = {"smollm", "starcoder", "refact", "command-r",
                                                          "codeshell"};

}  // namespace

std::vector<std::string> split_patterns_by_name(std::string_view name) {
  const auto is_in = [&](const auto& names) { return std::ranges::find(names, name) != names.end(); };
  if (is_in(kQwen2Names)) return {kQwen2};
  if (is_in(kGpt2Names)) return {kGpt2};
  if (is_in(kDigitsNames)) return {"\\p{N}", kGpt2};
  if (is_in(kLlama3Names)) return {kLlama3};
  return {};
}

}  // namespace snug::text
