// Texts and vocabularies for the grammar's tests.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "grammar/grammar.h"

namespace snug::grammar {

using VocabularyPtr = std::shared_ptr<const Vocabulary>;

// Token i is the byte i.
inline VocabularyPtr byte_vocabulary() {
  static const VocabularyPtr vocabulary = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    return make_vocabulary(std::move(tokens));
  }();
  return vocabulary;
}

// A text byte by byte: how much of it can be read.
struct Read {
  std::size_t bytes = 0;
  bool may_end = false, must_end = false;
};
inline Read read(const GrammarPtr& grammar, std::string_view text) {
  TokenMatcher matcher(grammar, byte_vocabulary());
  Read result;
  for (const char byte : text) {
    const auto token = static_cast<std::int32_t>(static_cast<unsigned char>(byte));
    if (!matcher.allows(token)) return result;
    matcher.accept(token);
    ++result.bytes;
  }
  result.may_end = matcher.may_end();
  result.must_end = matcher.must_end();
  return result;
}
inline bool accepts(const GrammarPtr& grammar, std::string_view text) {
  const Read result = read(grammar, text);
  return result.bytes == text.size() && result.may_end;
}

inline GrammarPtr regex(std::string_view pattern) {
  auto grammar = compile_regex(pattern);
  EXPECT_TRUE(grammar.ok()) << pattern << ": " << grammar.error().to_string();
  return grammar.ok() ? *grammar : nullptr;
}
inline GrammarPtr schema(std::string_view text) {
  auto grammar = compile_json_schema(OrderedJson::parse(text));
  EXPECT_TRUE(grammar.ok()) << text << ": " << grammar.error().to_string();
  return grammar.ok() ? *grammar : nullptr;
}

inline std::vector<std::int32_t> tokens_of(std::span<const std::uint64_t> mask) {
  std::vector<std::int32_t> tokens;
  for (std::size_t word = 0; word < mask.size(); ++word) {
    for (std::uint64_t bits = mask[word]; bits != 0; bits &= bits - 1) {
      tokens.push_back(
          static_cast<std::int32_t>(word * 64 + static_cast<std::size_t>(std::countr_zero(bits))));
    }
  }
  return tokens;
}

}  // namespace snug::grammar
