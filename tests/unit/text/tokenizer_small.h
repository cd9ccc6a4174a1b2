// A vocabulary small enough to know by heart: bytes 0…255 are ids 0…255, then the tokens of sixteen merges.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/byte_level.h"
#include "text/tokenizer.h"

namespace snug::text {

inline TokenizerSpec small_spec(std::string_view patterns) {
  TokenizerSpec spec;
  spec.name = "small";
  for (int byte = 0; byte < 256; ++byte)
    spec.tokens.push_back(to_byte_level(std::string(1, static_cast<char>(byte))));
  const auto id_of = [&](const std::string& token) {
    for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
      if (spec.tokens[id] == token) return static_cast<TokenId>(id);
    }
    return TokenId{-1};
  };
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"h", "e"},   {"l", "l"}, {"he", "ll"},   {"hell", "o"}, {"Ġ", "w"}, {"o", "r"},
      {"Ġw", "or"}, {"l", "d"}, {"Ġwor", "ld"}, {"1", "2"},    {"Ġ", "Ġ"}, {"ĠĠ", "ĠĠ"},
      {"'", "s"},   {"Ġ", "1"}, {"Ã", "©"},     {"i", "t"}};
  for (const auto& [left, right] : merges) {
    spec.tokens.push_back(left + right);
    spec.merges.push_back({id_of(left), id_of(right), static_cast<TokenId>(spec.tokens.size()) - 1});
  }
  spec.split_patterns = split_patterns_by_name(patterns);
  return spec;
}

inline Tokenizer make_tokenizer(TokenizerSpec spec) {
  auto tokenizer = Tokenizer::create(std::move(spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  return std::move(tokenizer).value();
}

}  // namespace snug::text
