#include "base/bytes.h"

#include <gtest/gtest.h>

#include <utility>

namespace snug {
namespace {

TEST(Bytes, ParsesSizes) {
  const std::pair<const char*, std::int64_t> cases[] = {
      {"0", 0},
      {"4096", 4096},
      {"96B", 96},
      {"1KiB", 1024},
      {"1kib", 1024},
      {"1KB", 1000},
      {"1kb", 1000},
      {"527MiB", 527ll << 20},
      {"900MB", 900'000'000},
      {"12GiB", 12ll << 30},
      {"12 GiB", 12ll << 30},
      {"1.5GiB", 3ll << 29},
      {"16gb", 16'000'000'000},
      {"2TiB", 2ll << 40},
      {"2TB", 2'000'000'000'000},
  };
  for (const auto& [text, bytes] : cases) {
    const auto parsed = parse_bytes(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(Bytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", " ", "GiB", "-1", "-1GiB", "12Gi", "12G", "12XB", "12GiBs", "1 2", "nan",
                           "inf", "1e30", "9999999TiB", "0x10", "12GiB 3MiB"}) {
    const auto parsed = parse_bytes(text);
    ASSERT_FALSE(parsed.ok()) << text << " was taken as " << *parsed;
    EXPECT_EQ(parsed.error().code, ErrorCode::usage);
    EXPECT_NE(parsed.error().message.find(std::string("'") + text + "'"), std::string::npos);
    EXPECT_FALSE(parsed.error().remedy.empty());
  }
}

TEST(Bytes, Formats) {
  const std::pair<std::int64_t, const char*> cases[] = {
      {0, "0 B"},
      {96, "96 B"},
      {1023, "1023 B"},
      {1024, "1.00 KiB"},
      {527ll << 20, "527 MiB"},
      {1536ll << 20, "1.50 GiB"},
      {(13ll << 30) + (205ll << 20), "13.2 GiB"},
      {5ll << 40, "5.00 TiB"},
      {-(2ll << 20), "-2.00 MiB"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(format_bytes(bytes), text) << bytes;
}

}  // namespace
}  // namespace snug
