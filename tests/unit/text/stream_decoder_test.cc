#include "text/stream_decoder.h"

#include <gmock/gmock.h>

#include <random>

#include "text/utf8.h"
#include "unit/text/tokenizer_small.h"

namespace snug::text {
namespace {

using Ids = std::vector<TokenId>;

class StreamDecoderTest : public testing::Test {
 protected:
  static Tokenizer make() {
    TokenizerSpec spec = small_spec("gpt-2");
    spec.added = {{.id = 300, .content = "<|end|>", .special = true}};
    return make_tokenizer(std::move(spec));
  }
  const Tokenizer tokenizer_ = make();

  std::vector<std::string> pieces(const Ids& ids, bool skip_special = true) const {
    StreamDecoder decoder(tokenizer_, skip_special);
    std::vector<std::string> out;
    for (const TokenId id : ids) out.push_back(decoder.push(id));
    out.push_back(decoder.finish());
    return out;
  }
};

// A10: what was sent is never sent again, here "A 世ab" byte by byte.
TEST_F(StreamDecoderTest, OnlyAppends) {
  EXPECT_THAT(pieces({'A', ' ', 0xE4, 0xB8, 0x96, 'a', 'b'}),
              testing::ElementsAre("A", " ", "", "", "\u4E16", "a", "b", ""));
}

// A11: half a character, then a token that begins with a space.
TEST_F(StreamDecoderTest, HoldsAnUnfinishedTail) {
  EXPECT_THAT(pieces({0xE4, 0xB8, 264}), testing::ElementsAre("", "", "\uFFFD world", ""));
  EXPECT_THAT(pieces({0xF0, 0x9F, 0xE4, 0xB8, 0x96}),
              testing::ElementsAre("", "", "\uFFFD", "", "\u4E16", ""));
}

// A13: the answer ends inside a character (max_tokens); nothing of it is sent, and no U+FFFD.
TEST_F(StreamDecoderTest, DropsACharacterCutAtTheEnd) {
  EXPECT_THAT(pieces({0xED, 0x95, 0x9C, 0xED, 0x95}), testing::ElementsAre("", "", "\uD55C", "", "", ""));
}

TEST_F(StreamDecoderTest, SkipsSpecialTokensWhereAsked) {
  EXPECT_THAT(pieces({259, 300}), testing::ElementsAre("hello", "", ""));
  EXPECT_THAT(pieces({259, 300}, false), testing::ElementsAre("hello", "<|end|>", ""));
}

TEST_F(StreamDecoderTest, PiecesJoinedAreTheWholeText) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    Ids ids;
    for (int i = 0; i < 40; ++i) {
      // Mostly bytes of multi-byte characters, so that all ways to break one come up.
      ids.push_back(std::uniform_int_distribution<int>(random() % 4 == 0 ? 0 : 0x80,
                                                       random() % 8 == 0 ? 302 : 0xF5)(random));
    }
    ids.push_back('.');  // finishes whatever was unfinished
    for (const bool skip : {true, false}) {
      std::string joined;
      for (const std::string& piece : pieces(ids, skip)) {
        ASSERT_TRUE(utf8_is_valid(piece));
        joined += piece;
      }
      ASSERT_EQ(joined, tokenizer_.decode(ids, skip));
    }
  }
}

// A14: the stop string comes in several pieces; none of it is sent.
TEST(StopMatcher, FindsAStopThatSpansPieces) {
  StopMatcher matcher({"DEFGHIJ"});
  std::string sent;
  for (const char* piece : {"A", "BC", "DE", "FG", "HIJ", "K"}) sent += matcher.push(piece);
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.matched(), "DEFGHIJ");
  EXPECT_EQ(sent + matcher.finish(), "ABC");
}

// A16: only what may yet become a stop is held, and it is given back when it does not.
TEST(StopMatcher, HoldsOnlyAProperPrefixOfAStop) {
  StopMatcher matcher({"</tool>", "\n\n"});
  EXPECT_EQ(matcher.push("text <"), "text ");
  EXPECT_EQ(matcher.push("b"), "<b");
  EXPECT_EQ(matcher.push("</tool_call>"), "</tool_call>");
  EXPECT_EQ(matcher.push("\n"), "");
  EXPECT_EQ(matcher.push("x</to"), "\nx");
  EXPECT_EQ(matcher.finish(), "</to");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, TheMatchCompleteFirstCounts) {
  StopMatcher shorter({"abc", "ab"});
  EXPECT_EQ(shorter.push("xabc"), "x");
  EXPECT_EQ(shorter.matched(), "ab");
  StopMatcher inner({"abcd", "bc"});
  EXPECT_EQ(inner.push("xabcd"), "xa");
  EXPECT_EQ(inner.matched(), "bc");
  StopMatcher same_end({"bc", "abc"});
  EXPECT_EQ(same_end.push("xabc"), "x");
  EXPECT_EQ(same_end.matched(), "abc");
  StopMatcher overlapping({"aab"});
  EXPECT_EQ(overlapping.push("aa"), "");
  EXPECT_EQ(overlapping.push("aab"), "aa");
}

TEST(StopMatcher, LeavesOutEmptyStops) {
  StopMatcher matcher({"", "x"});
  EXPECT_EQ(matcher.push("ab"), "ab");
  EXPECT_FALSE(matcher.stopped());
  StopMatcher none({});
  EXPECT_EQ(none.push("ab"), "ab");
  EXPECT_EQ(none.finish(), "");
}

// What the matcher must find, looking at the whole text at once.
std::string before_stop(const std::string& text, const std::vector<std::string>& stops, bool& stopped) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    stopped = longest > 0;
    if (stopped) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopMatcher, DoesNotDependOnHowTextIsCut) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::vector<std::string> letters = {"a", "b", "\u00e9", "\u4E16"};
  const auto make = [&](int most) {
    std::string out;
    for (int i = std::uniform_int_distribution<int>(1, most)(random); i > 0; --i)
      out += letters[random() % 4];
    return out;
  };
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (int i = 0; i < 3; ++i) stops.push_back(make(6));
    const std::string text = make(40);
    bool expect_stopped = false;
    const std::string expected = before_stop(text, stops, expect_stopped);
    StopMatcher matcher(stops);
    std::string sent;
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t size = 0;
      for (auto n = 1 + random() % 4; n > 0 && begin + size < text.size(); --n) {
        size += utf8_step(std::string_view(text).substr(begin + size)).size;
      }
      const std::string piece = matcher.push(std::string_view(text).substr(begin, size));
      ASSERT_TRUE(utf8_is_valid(piece));
      sent += piece;
      ASSERT_TRUE(expected.starts_with(sent));
      begin += size;
    }
    sent += matcher.finish();
    ASSERT_EQ(sent, expected) << text;
    ASSERT_EQ(matcher.stopped(), expect_stopped);
    found += expect_stopped;
  }
  EXPECT_GT(found, 300);  // both ways to end were tried
  EXPECT_LT(found, 2990);
}

}  // namespace
}  // namespace snug::text
