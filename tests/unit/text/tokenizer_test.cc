#include "text/tokenizer.h"

#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "unit/text/tokenizer_small.h"

namespace snug::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<TokenId>;

// Expected ids here and below: Hugging Face tokenizers 0.23 with the same vocabulary and pre-tokeniser.
TEST(Tokenizer, SplitsDigitsOneByOneAsSmolLm) {
  const Tokenizer t = make_tokenizer(small_spec("smollm"));
  EXPECT_THAT(t.encode("hello world"), ElementsAre(259, 264));
  EXPECT_THAT(t.encode(" 12"), ElementsAre(32, 49, 50));
  EXPECT_THAT(t.encode("hello 12  3"), ElementsAre(259, 32, 49, 50, 266, 51));
  EXPECT_THAT(t.encode("a     b"), ElementsAre(97, 267, 32, 98));
  EXPECT_THAT(t.encode("it's IT'S"), ElementsAre(271, 268, 32, 73, 84, 39, 83));
  EXPECT_THAT(t.encode("e\u0301\u00e9"), ElementsAre(101, 204, 129, 270));
  EXPECT_THAT(t.encode("\u0f3312"), ElementsAre(224, 188, 179, 49, 50));
}

TEST(Tokenizer, SplitsAsGpt2) {
  const Tokenizer t = make_tokenizer(small_spec("gpt-2"));
  EXPECT_THAT(t.encode(" 12"), ElementsAre(32, 265));
  EXPECT_THAT(t.encode("hello 12  3"), ElementsAre(259, 32, 265, 32, 32, 51));
  EXPECT_THAT(t.encode("\u180e \u2028"), ElementsAre(225, 160, 142, 32, 226, 128, 168));
  EXPECT_THAT(t.encode("x\n\n  y\r\n"), ElementsAre(120, 10, 10, 32, 32, 121, 13, 10));
}

TEST(Tokenizer, SplitsAndNormalisesAsQwen2) {
  TokenizerSpec spec = small_spec("qwen2");
  spec.nfc = true;
  const Tokenizer t = make_tokenizer(std::move(spec));
  EXPECT_THAT(t.encode("e\u0301\u00e9"), ElementsAre(270, 270));
  EXPECT_THAT(t.encode("hello 12  3"), ElementsAre(259, 32, 49, 50, 32, 32, 51));
  EXPECT_THAT(t.encode(""), ElementsAre());
}

TEST(Tokenizer, ReadsInvalidUtf8AsReplacementCharacters) {
  const Tokenizer t = make_tokenizer(small_spec("gpt-2"));
  EXPECT_EQ(t.encode("a\xE4\xB8"
                     "b\xFF"),
            t.encode("a\uFFFDb\uFFFD"));
  EXPECT_EQ(t.decode(Ids{0x61, 0xE4, 0xB8, 0x62, 0xFF}, false), "a\uFFFDb\uFFFD");
}

TEST(Tokenizer, GivesBytesAndIds) {
  TokenizerSpec spec = small_spec("gpt-2");
  spec.added = {{.id = 300, .content = "<|end|>", .special = true}};
  const Tokenizer t = make_tokenizer(std::move(spec));
  EXPECT_EQ(t.vocab_size(), 301);
  EXPECT_EQ(t.token_bytes(264), " world");
  EXPECT_EQ(t.token_bytes(300), "<|end|>");
  EXPECT_EQ(t.token_bytes(280), "");  // a hole
  EXPECT_EQ(t.token_bytes(-1), "");
  EXPECT_EQ(t.token_bytes(301), "");
  EXPECT_EQ(t.id_of("Ġworld"), 264);
  EXPECT_EQ(t.id_of("<|end|>"), 300);
  EXPECT_EQ(t.id_of("nothing"), -1);
  EXPECT_EQ(t.id_of(""), -1);
  EXPECT_TRUE(t.is_special(300));
  EXPECT_FALSE(t.is_special(264));
  EXPECT_FALSE(t.is_special(999));
  EXPECT_EQ(t.decode(Ids{259, 300, 999, -7, 264}, true), "hello world");
  EXPECT_EQ(t.decode(Ids{259, 300, 264}, false), "hello<|end|> world");
}

TEST(Tokenizer, TakesTheLongestAddedTokenAtTheLeftmostPlace) {
  TokenizerSpec spec = small_spec("gpt-2");
  spec.added = {{.id = 300, .content = "<x>", .special = true},
                {.id = 301, .content = "<x><x>", .special = true},
                {.id = 302, .content = "<tool>"}};
  const Tokenizer t = make_tokenizer(std::move(spec));
  EXPECT_THAT(t.encode("<x><x><x>he<tool>"), ElementsAre(301, 300, 256, 302));
  // Without parse_special only the token that is not special is found.
  EXPECT_THAT(t.encode("<x><tool>", {.parse_special = false}), ElementsAre('<', 'x', '>', 302));
}

TEST(Tokenizer, HonoursStripAndSingleWord) {
  TokenizerSpec spec = small_spec("gpt-2");
  spec.added = {{.id = 300, .content = "<l>", .lstrip = true},
                {.id = 301, .content = "<r>", .rstrip = true},
                {.id = 302, .content = "cat", .single_word = true}};
  const Tokenizer t = make_tokenizer(std::move(spec));
  EXPECT_THAT(t.encode("a \n<l> b"), ElementsAre('a', 300, 32, 'b'));
  EXPECT_THAT(t.encode("a <r> \u3000b"), ElementsAre('a', 32, 301, 'b'));
  EXPECT_THAT(t.encode("cat-cats"), ElementsAre(302, '-', 'c', 'a', 't', 's'));
  EXPECT_THAT(t.encode("\u00e9cat"), ElementsAre(270, 'c', 'a', 't'));
}

TEST(Tokenizer, LooksForNormalisedAddedTokensInNormalisedText) {
  TokenizerSpec spec = small_spec("gpt-2");
  spec.nfc = true;
  spec.added = {{.id = 300, .content = "<e\u0301>", .normalized = true}, {.id = 301, .content = "[e\u0301]"}};
  const Tokenizer t = make_tokenizer(std::move(spec));
  EXPECT_THAT(t.encode("<\u00e9><e\u0301>"), ElementsAre(300, 300));
  EXPECT_THAT(t.encode("[e\u0301][\u00e9]"), ElementsAre(301, '[', 270, ']'));
}

TEST(Tokenizer, AddsBosAndEosWhereAsked) {
  TokenizerSpec spec = small_spec("gpt-2");
  spec.added = {{.id = 300, .content = "<s>", .special = true}};
  spec.bos = 300;
  spec.eos = 300;
  spec.add_bos = spec.add_eos = true;
  const Tokenizer t = make_tokenizer(std::move(spec));
  EXPECT_THAT(t.encode("he"), ElementsAre(300, 256, 300));
  EXPECT_THAT(t.encode("he", {.add_special = false}), ElementsAre(256));
  EXPECT_EQ(t.bos(), 300);
}

TEST(Tokenizer, IgnoreMergesTakesWholeWordsOfTheVocabularyOnly) {
  TokenizerSpec spec = small_spec("gpt-2");
  spec.ignore_merges = true;
  spec.tokens.push_back("held");
  spec.added = {{.id = 300, .content = "hers", .single_word = true}};
  const Tokenizer t = make_tokenizer(std::move(spec));
  EXPECT_THAT(t.encode("held"), ElementsAre(272));
  EXPECT_THAT(t.encode("ahers"), ElementsAre('a', 256, 'r', 's'));
  EXPECT_THAT(t.encode(".hers2 hersx"), ElementsAre('.', 256, 'r', 's', '2', 32, 256, 'r', 's', 'x'));
}

TEST(Tokenizer, LeavesOutBytesWithoutATokenOrPutsUnk) {
  TokenizerSpec spec = small_spec("gpt-2");
  spec.tokens['z'].clear();
  TokenizerSpec with_unk = spec;
  with_unk.unk = '?';
  EXPECT_THAT(make_tokenizer(std::move(spec)).encode("azb"), ElementsAre('a', 'b'));
  EXPECT_THAT(make_tokenizer(std::move(with_unk)).encode("azb"), ElementsAre('a', '?', 'b'));
}

TEST(Tokenizer, AddsAPrefixSpace) {
  TokenizerSpec spec = small_spec("gpt-2");
  spec.add_prefix_space = true;
  const Tokenizer t = make_tokenizer(std::move(spec));
  EXPECT_THAT(t.encode("world"), ElementsAre(264));
  EXPECT_THAT(t.encode(" world"), ElementsAre(264));
}

void expect_refused(TokenizerSpec spec, const std::string& what) {
  const auto result = Tokenizer::create(std::move(spec));
  ASSERT_FALSE(result.ok()) << what;
  EXPECT_EQ(result.error().code, ErrorCode::bad_file);
  EXPECT_THAT(result.error().message, testing::AllOf(HasSubstr("small"), HasSubstr(what)));
  EXPECT_FALSE(result.error().remedy.empty());
}

TEST(Tokenizer, RefusesWhatIsInconsistent) {
  const TokenizerSpec good = small_spec("gpt-2");
  TokenizerSpec spec = good;
  spec.added = {{.id = 'a', .content = "<x>"}};
  expect_refused(spec, "id 97 is both");
  spec.added = {{.id = 300, .content = "<x>"}, {.id = 300, .content = "<y>"}};
  expect_refused(spec, "id 300 is both");
  for (const TokenId id : {-1, 10'000'000, INT32_MAX}) {
    spec.added = {{.id = id, .content = "<x>"}};
    expect_refused(spec, "out of all proportion");
  }
  spec.added = {{.id = 300, .content = ""}};
  expect_refused(spec, "no text");
  spec = good;
  spec.merges.push_back({1, 2, 272});
  expect_refused(spec, "merge 16");
  spec.merges.back() = {-1, 2, 3};
  expect_refused(spec, "merge 16");
  spec = good;
  spec.eos = 272;
  expect_refused(spec, "eos");
  spec = good;
  for (const char* pattern : {"(", "[a[b]]", "[a&&b]", "\\h", "\\C", "\xFF"}) {
    spec.split_patterns = {pattern};
    expect_refused(spec, "pattern");
  }
}

TEST(Tokenizer, LosesNothingWhereAPatternGivesUp) {
  TokenizerSpec spec = small_spec("gpt-2");
  spec.merges.clear();
  const std::string text = std::string(40, 'a') + "! end";
  for (const char* pattern : {"(a+)+$", "(?=a)", "a\\Kb|"}) {  // explosive; empty matches; \K
    spec.split_patterns = {pattern};
    const Tokenizer t = make_tokenizer(spec);
    EXPECT_EQ(t.decode(t.encode(text), false), text) << pattern;
  }
}

TEST(Tokenizer, LongWordsTakeNoQuadraticTime) {
  TokenizerSpec spec = small_spec("qwen2");
  spec.nfc = true;
  const Tokenizer t = make_tokenizer(std::move(spec));
  std::string marks = "a";
  for (int i = 0; i < 50'000; ++i) marks += "\u0301\u0334";
  for (const std::string& text : {std::string(500'000, 'l'), std::string(500'000, ' '), marks}) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(t.encode(text).empty());
    // Quadratic time would be minutes.
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  }
}

TEST(Tokenizer, ServesManyThreads) {
  const Tokenizer t = make_tokenizer(small_spec("qwen2"));
  const std::string text = "hello world, it's 12 o'clock \u00e9\n";
  const Ids expected = t.encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 200; ++round) wrong[i] += t.encode(text) != expected;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

TEST(Tokenizer, KnowsPatternsByName) {
  for (const char* name : {"qwen2", "smollm", "gpt-2", "llama-bpe"}) {
    EXPECT_FALSE(split_patterns_by_name(name).empty()) << name;
  }
  EXPECT_TRUE(split_patterns_by_name("no-such").empty());
  EXPECT_EQ(split_patterns_by_name("smollm").size(), 2u);
}

}  // namespace
}  // namespace snug::text
