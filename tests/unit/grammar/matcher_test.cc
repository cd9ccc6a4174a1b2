#include <gmock/gmock.h>

#include "unit/grammar/texts.h"

namespace snug::grammar {
namespace {

// Whether a token may come after `text`, found byte by byte.
bool slow_allows(const GrammarPtr& grammar, const std::string& text, const std::string& token) {
  return !token.empty() && read(grammar, text + token).bytes == text.size() + token.size();
}

// Single bytes and pieces of JSON and other text.
std::vector<std::string> random_tokens(std::mt19937& random) {
  std::vector<std::string> tokens{""};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const std::string_view pieces[] = {"\"",  "{",    "}",    "[",   "]",    ":",        ",",    " ", "\n",
                                     "\\",  "a",    "b",    "id",  "name", "1",        "0",    "-", ".",
                                     "e",   "true", "null", "é",   "世",   "\xe4\xb8", "\x96", "😀", "\xf0",
                                     "u00", "\"}",  "\":",  "\",", "x",    "next",     "v"};
  for (int i = 0; i < 300; ++i) {
    std::string token;
    for (auto n = 1 + random() % 5; n > 0; --n) token += pieces[random() % std::size(pieces)];
    tokens.push_back(token);
  }
  tokens.push_back(tokens.back());  // two tokens of one text
  return tokens;
}

const char* const kSchemas[] = {
    "true",
    R"({"type":"object"})",
    R"({"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string","maxLength":5},"a":{"type":"array","items":{"type":"number"}}},"required":["name"]})",
    R"({"type":"object","properties":{"a":{"enum":["a","ab","x"]}},"additionalProperties":{"type":"string"}})",
    R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v","next"]}},"$ref":"#/$defs/n"})",
    R"({"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"array","items":{"type":"array"}},{"type":"string","pattern":"^(a|ab|世)+$"}]})",
};

TEST(Matcher, MasksEqualASlowSearch) {
  std::mt19937 random(1);
  std::vector<GrammarPtr> grammars;
  for (const auto* text : kSchemas) grammars.push_back(schema(text));
  for (const auto* pattern : {"(a|b|世)*x?", "[^a]*a", "(\\w+ ?){1,3}", ".{0,4}é"})
    grammars.push_back(regex(pattern));
  for (int round = 0; round < 3; ++round) {
    const auto tokens = random_tokens(random);
    const auto vocabulary = make_vocabulary(tokens);
    for (const auto& grammar : grammars) {
      for (int walk = 0; walk < 3; ++walk) {
        TokenMatcher matcher(grammar, vocabulary);
        std::string text;
        for (int step = 0; step < 12; ++step) {
          const auto mask = matcher.allowed();
          for (std::size_t token = 0; token < tokens.size(); ++token) {
            ASSERT_EQ((mask[token / 64] >> (token % 64) & 1) != 0, slow_allows(grammar, text, tokens[token]))
                << "after " << text << " token " << tokens[token];
          }
          const auto allowed = tokens_of(mask);
          const auto here = read(grammar, text);
          EXPECT_EQ(matcher.may_end(), here.may_end) << text;
          EXPECT_EQ(matcher.must_end(), here.must_end) << text;
          EXPECT_EQ(matcher.must_end(), allowed.empty()) << text;
          if (allowed.empty()) break;
          const auto token = allowed[random() % allowed.size()];
          text += tokens[static_cast<std::size_t>(token)];
          matcher.accept(token);
        }
      }
    }
  }
}

TEST(Matcher, EmptyTokensAreNeverAllowed) {
  TokenMatcher matcher(regex(".*"), make_vocabulary({"a", "", "b"}));
  EXPECT_TRUE(matcher.allows(0));
  EXPECT_FALSE(matcher.allows(1));
  EXPECT_TRUE(matcher.allows(2));
  EXPECT_FALSE(matcher.allows(3));
  EXPECT_FALSE(matcher.allows(-1));
}

// A token that is half a character is allowed where a character that begins so is.
TEST(Matcher, TokensInsideACharacter) {
  TokenMatcher matcher(regex("[世界]"),
                       make_vocabulary({"\xe4", "\xb8\x96", "\xe5", "\x95\x8c", "\x96", "\xb8", "\xe7\x95"}));
  EXPECT_THAT(tokens_of(matcher.allowed()), testing::ElementsAre(0, 6));
  matcher.accept(0);
  EXPECT_FALSE(matcher.may_end());
  EXPECT_THAT(tokens_of(matcher.allowed()), testing::ElementsAre(1, 5));
  matcher.accept(5);
  EXPECT_THAT(tokens_of(matcher.allowed()), testing::ElementsAre(4));
  matcher.accept(4);
  EXPECT_TRUE(matcher.may_end());
  EXPECT_TRUE(matcher.must_end());
}

TEST(Matcher, Choice) {
  const auto grammar = compile_choice({"yes", "yesterday", "no"});
  ASSERT_TRUE(grammar.ok());
  EXPECT_TRUE(accepts(*grammar, "yes"));
  EXPECT_TRUE(accepts(*grammar, "yesterday"));
  EXPECT_FALSE(accepts(*grammar, "yest"));
  EXPECT_FALSE(read(*grammar, "yes").must_end);
  EXPECT_TRUE(read(*grammar, "no").must_end);
  EXPECT_FALSE(compile_choice({}).ok());
}

}  // namespace
}  // namespace snug::grammar
