#include <gmock/gmock.h>

#include "unit/grammar/texts.h"

namespace snug::grammar {
namespace {

TEST(Regex, ReadsWholeTexts) {
  struct Case {
    const char* pattern;
    std::vector<const char*> yes, no;
  };
  const Case cases[] = {
      {"", {""}, {"a"}},
      {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
      {"^abc$", {"abc"}, {"ab", "^abc"}},
      {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
      {"(ab)*c", {"c", "abc", "ababc"}, {"ab", "aabc"}},
      {"(?:a|b)+", {"a", "abba"}, {"", "abc"}},
      {"(?<year>\\d{4})-(?P<month>\\d\\d)", {"2024-12"}, {"202-12", "2024-1"}},
      {"a{2,3}", {"aa", "aaa"}, {"a", "aaaa"}},
      {"a{2}", {"aa"}, {"a", "aaa"}},
      {"a{2,}", {"aa", "aaaaaa"}, {"a"}},
      {"a{0}b", {"b"}, {"ab"}},
      {"a*?b+?c??", {"b", "aabbc"}, {"c"}},
      {"x{,3}", {"x{,3}"}, {"xx"}},
      {"[a-c_]+", {"abc_"}, {"d", ""}},
      {"[^a-c]", {"d", "\n", "é", "😀"}, {"a", "", "de"}},
      {"[]a]", {"]", "a"}, {"b"}},
      {"[a\\]\\-z]", {"]", "-", "z"}, {"b"}},
      {"[\\d.]+", {"1.5"}, {"x"}},
      {".", {"a", "é", "世", "😀"}, {"\n", "", "ab"}},
      {"\\w+\\s\\S", {"ab_1 x", "a\tx"}, {"a-b x"}},
      {"\\W\\D", {"-x"}, {"ax", "-1"}},
      {"\\.\\*\\/\\$", {".*/$"}, {"a*/$"}},
      {"\\n\\t\\x41\\u00e9\\u{1F600}\\ud83d\\ude00", {"\n\tAé😀😀"}, {}},
      {"[世界é]+", {"世é界"}, {"是"}},
      {"[一-龥]{2}", {"世界"}, {"世", "ab"}},
      {"((a|b)(c|d)){2}", {"acbd"}, {"ac", "acb"}},
      {"(a*)*", {"", "aaa"}, {"b"}},
      {"(|a)+", {"", "aa"}, {"b"}},
  };
  for (const auto& c : cases) {
    const auto grammar = regex(c.pattern);
    ASSERT_NE(grammar, nullptr);
    for (const auto* text : c.yes) EXPECT_TRUE(accepts(grammar, text)) << c.pattern << " on " << text;
    for (const auto* text : c.no) EXPECT_FALSE(accepts(grammar, text)) << c.pattern << " on " << text;
  }
}

TEST(Regex, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"a(?=b)", "look-ahead"},
      {"a(?!b)", "look-ahead"},
      {"(?<=a)b", "look-behind"},
      {"(?<!a)b", "look-behind"},
      {"(a)\\1", "back-reference \\1"},
      {"(?P<x>a)(?P=x)", "back-reference"},
      {"(?<x>a)\\k<x>", "back-reference \\k"},
      {"(?i)a", "group (?i"},
      {"(?>a)", "atomic"},
      {"a*+", "possessive"},
      {"\\ba", "word boundary"},
      {"\\p{L}", "Unicode property"},
      {"\\Aa", "anchor \\A"},
      {"a^b", "anchor"},
      {"(^a)", "anchor"},
      {"a$b", "anchor"},
      {"(a", "without its )"},
      {"a)", "without its ("},
      {"[a", "without its ]"},
      {"[b-a]", "backwards"},
      {"[\\d-z]", "no single character"},
      {"*a", "nothing before"},
      {"a**", "two quantifiers"},
      {"a{3,2}", "counts down"},
      {"a{20000}", "above the limit"},
      {"\\", "backslash at the end"},
      {"\\u12", "hexadecimal"},
      {"\\ud800", "no character"},
      {"\xff", "not valid UTF-8"},
      {"[[:alpha:]]", "[:name:]"},
  };
  for (const auto& [pattern, expected] : cases) {
    const auto grammar = compile_regex(pattern);
    ASSERT_FALSE(grammar.ok()) << pattern;
    EXPECT_EQ(grammar.error().code, ErrorCode::usage);
    EXPECT_THAT(grammar.error().to_string(), testing::HasSubstr(expected)) << pattern;
  }
}

}  // namespace
}  // namespace snug::grammar
