// The tokenizer's parts by themselves: UTF-8, byte-level characters, NFC, merging.
#include <gmock/gmock.h>

#include <random>

#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/nfc.h"
#include "text/string_table.h"
#include "text/utf8.h"

namespace snug::text {
namespace {

std::string replaced(std::string_view bytes) {
  std::string out;
  EXPECT_EQ(utf8_append_replaced(bytes, true, out), bytes.size());
  return out;
}

// Expected: Python's bytes.decode("utf-8", errors="replace").
TEST(Utf8, ReplacesMaximalSubparts) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(replaced("\xE4\xB8"), r);
  EXPECT_EQ(replaced("\xE4\xB8"
                     "a"),
            r + "a");
  EXPECT_EQ(replaced("\xF0\x9F\x98"), r);
  EXPECT_EQ(replaced("\xC0\x80"), r + r);
  EXPECT_EQ(replaced("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replaced("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(replaced("\xE0\x80\x80"), r + r + r);
  EXPECT_EQ(replaced("\xF0\x80\x80\x80"), r + r + r + r);
  EXPECT_EQ(replaced("\xFF\xFE"), r + r);
  EXPECT_EQ(replaced("a\x80\xE2\x82\xAC"
                     "b\xE2\x82"),
            "a" + r +
                "\u20AC"
                "b" +
                r);
  EXPECT_EQ(replaced("\xF1\x80\x80\xE4\xB8\x96"), r + "\u4E16");
  EXPECT_EQ(replaced("\xF8\x88\x80"), r + r + r);
}

TEST(Utf8, LeavesAnUnfinishedCharacter) {
  std::string out;
  EXPECT_EQ(utf8_append_replaced("ab\xFF\xF0\x9F\x98", false, out), 3u);
  EXPECT_EQ(out, "ab\uFFFD");
  EXPECT_EQ(utf8_append_replaced("abcdefghijkl", false, out), 12u);
}

TEST(Utf8, EncodesAndDecodesEveryCharacter) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    utf8_append(c, text);
    ASSERT_TRUE(utf8_is_valid(text)) << static_cast<unsigned>(c);
    std::size_t size = 0;
    ASSERT_EQ(utf8_decode(text, size), c);
    ASSERT_EQ(size, text.size());
  }
}

TEST(ByteLevel, IsABijectionOfBytes) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const std::string characters = to_byte_level(all);
  EXPECT_TRUE(utf8_is_valid(characters));
  std::string back;
  EXPECT_TRUE(append_token_bytes(characters, back));
  EXPECT_EQ(back, all);
  EXPECT_EQ(to_byte_level(" \n"), "ĠĊ");
}

TEST(ByteLevel, KeepsLiteralText) {
  for (const char* text : {"a b", "\u4E16", "<\uFF5C>", "\xFF"}) {
    std::string out = "x";
    EXPECT_FALSE(append_token_bytes(text, out));
    EXPECT_EQ(out, std::string("x").append(text));
  }
}

TEST(Nfc, ComposesAndOrders) {
  EXPECT_EQ(to_nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(to_nfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093c");          // excluded from composing
  EXPECT_EQ(to_nfc("q\u0307\u0323"), "q\u0323\u0307");  // below goes before above
  EXPECT_EQ(to_nfc("a\u0323\u0302"), "\u1ead");
  EXPECT_EQ(to_nfc("\u0eba\u0ec9\u0e38"), "\u0eba\u0e38\u0ec9");  // U+0EBA came after Unicode 9: it stays
  EXPECT_EQ(to_nfc("\u0ec9\u0eba"), "\u0ec9\u0eba");
  EXPECT_TRUE(is_plainly_nfc("plain caf\u00e9 \u02ff"));
  EXPECT_FALSE(is_plainly_nfc("e\u0301"));
}

TEST(StringTable, FindsTheFirstOfEqualStrings) {
  StringTable table;
  for (const char* text : {"a", "", "b", "a"}) table.add(text);
  EXPECT_EQ(table.find("a"), -1);  // not yet indexed
  table.build_index();
  EXPECT_EQ(table.find("a"), 0);
  EXPECT_EQ(table.find("b"), 2);
  EXPECT_EQ(table.find(""), -1);
  EXPECT_EQ(table.find("c"), -1);
  EXPECT_EQ(table.at(3), "a");
  EXPECT_EQ(table.at(1), "");
}

// Random merges over few letters make long chains of dependent merges.
TEST(Bpe, HeapAndScanAgree) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  for (int round = 0; round < 200; ++round) {
    std::vector<TokenizerSpec::Merge> merges;
    TokenId next = 3;
    for (int i = 0; i < 40; ++i) merges.push_back({below(next), below(next), next}), ++next;
    std::shuffle(merges.begin(), merges.end(), random);
    const MergeTable table(merges);
    BpeScratch scan, heap;
    for (int i = below(300); i > 0; --i) scan.ids.push_back(below(3));
    heap.ids = scan.ids;
    bpe_merge_scan(table, scan);
    bpe_merge_heap(table, heap);
    ASSERT_EQ(scan.ids, heap.ids);
    for (std::size_t i = 0; i + 1 < scan.ids.size(); ++i) {
      ASSERT_EQ(table.find(scan.ids[i], scan.ids[i + 1]).rank, MergeTable::kNone);  // nothing left to merge
    }
  }
}

TEST(Bpe, TheLastOfEqualPairsCounts) {
  const std::vector<TokenizerSpec::Merge> merges = {{1, 2, 5}, {2, 3, 6}, {1, 2, 7}};
  const MergeTable table(merges);
  EXPECT_EQ(table.find(1, 2).result, 7);
  EXPECT_EQ(table.find(1, 2).rank, 2u);
  EXPECT_EQ(table.find(2, 1).rank, MergeTable::kNone);
  EXPECT_EQ(MergeTable().find(0, 0).rank, MergeTable::kNone);
}

}  // namespace
}  // namespace snug::text
