#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include "unit/formats/file_builder.h"

namespace snug::formats {
namespace {

using built::as_bytes, built::raw, built::safetensors;

TEST(Safetensors, ReadsEntriesInOrderOfPlace) {
  const std::string file = safetensors(R"({"__metadata__":{"format":"pt"},)"
                                       R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[16,28]},)"
                                       R"("a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
                                       R"("c":{"dtype":"F16","shape":[],"data_offsets":[28,30]}}   )",
                                       30);
  const auto result = parse_safetensors(as_bytes(file), "m.safetensors");
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  ASSERT_EQ(result->size(), 3u);
  const std::int64_t data = static_cast<std::int64_t>(file.size()) - 30;
  const auto& [a, b, c] = std::tie((*result)[0], (*result)[1], (*result)[2]);
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.format, quant::Format::f32);
  EXPECT_EQ(a.offset, data);
  EXPECT_EQ(a.bytes, 16);
  EXPECT_EQ(b.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(b.format, quant::Format::bf16);
  EXPECT_EQ(b.offset, data + 16);
  EXPECT_EQ(b.bytes, 12);
  EXPECT_TRUE(c.shape.empty());
  EXPECT_EQ(c.format, quant::Format::f16);
  EXPECT_EQ(c.bytes, 2);
}

TEST(Safetensors, EmptyHeaderHasNoTensors) {
  const auto result = parse_safetensors(as_bytes(safetensors("{}", 0)), "m.safetensors");
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_TRUE(result->empty());
}

struct BadRow {
  const char* label;
  std::string bytes;
  std::vector<std::string> words;
};

std::string one(std::string_view dtype, std::string_view shape, std::string_view offsets,
                std::size_t data_bytes) {
  return safetensors("{\"w\":{\"dtype\":" + std::string(dtype) + ",\"shape\":" + std::string(shape) +
                         ",\"data_offsets\":" + std::string(offsets) + "}}",
                     data_bytes);
}

std::string two(std::string_view first, std::string_view second, std::size_t data_bytes) {
  return safetensors(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":)" + std::string(first) +
                         R"(},"b":{"dtype":"F32","shape":[4],"data_offsets":)" + std::string(second) + "}}",
                     data_bytes);
}

std::vector<BadRow> bad_rows() {
  const std::string good = one("\"F32\"", "[4]", "[0,16]", 16);
  const std::string total = std::to_string(good.size());
  return {
      {"too short for a size", "abc", {"header size", "it has 3"}},
      {"header larger than the file",
       raw<std::uint64_t>(1000) + "{}",
       {"header size", "expected 1008", "it has 10"}},
      {"header larger than allowed", raw<std::uint64_t>(100'000'001) + "{}", {"header size", "100000001"}},
      {"header size near 2^64",
       raw<std::uint64_t>(UINT64_MAX) + "{}",
       {"header size", "18446744073709551615"}},
      {"cut in the header", good.substr(0, 30), {"header size", "it has 30"}},
      {"cut in the data",
       good.substr(0, good.size() - 1),
       {"cut off", "expected " + total, "it has " + std::to_string(good.size() - 1)}},
      {"bytes after the data", good + "x", {"1 bytes follow", "expected " + total}},
      {"empty header", raw<std::uint64_t>(0), {"header"}},
      {"not JSON", safetensors("{\"a\":", 0), {"header", "not valid JSON"}},
      {"invalid UTF-8", safetensors("{\"\xff\":{}}", 0), {"header", "not valid JSON"}},
      {"text after the header", safetensors("{} {}", 0), {"header", "not valid JSON"}},
      {"an array", safetensors("[]", 0), {"header", "object"}},
      {"entry is a number", safetensors(R"({"w":3})", 0), {"tensor w", "wrong kind"}},
      {"entry is a list", safetensors(R"({"w":[]})", 0), {"tensor w", "wrong kind"}},
      {"metadata of numbers", safetensors(R"({"__metadata__":{"a":1}})", 0), {"__metadata__", "text"}},
      {"unknown dtype",
       one("\"F64\"", "[4]", "[0,32]", 32),
       {"tensor w", "dtype", "F64", "F32, F16 and BF16"}},
      {"integer dtype", one("\"I64\"", "[4]", "[0,32]", 32), {"tensor w", "dtype", "I64"}},
      {"dtype not text", one("3", "[4]", "[0,16]", 16), {"tensor w", "dtype"}},
      {"shape not a list", one("\"F32\"", "4", "[0,16]", 16), {"tensor w", "shape"}},
      {"negative dimension", one("\"F32\"", "[-4]", "[0,16]", 16), {"tensor w", "shape"}},
      {"fraction as dimension", one("\"F32\"", "[4.5]", "[0,16]", 16), {"tensor w", "shape"}},
      {"nested shape", one("\"F32\"", "[[4]]", "[0,16]", 16), {"tensor w", "shape"}},
      {"zero dimension", one("\"F32\"", "[0]", "[0,0]", 0), {"tensor w", "shape [0]"}},
      {"dimension beyond 63 bits",
       one("\"F32\"", "[18446744073709551615]", "[0,16]", 16),
       {"tensor w", "shape"}},
      {"product overflows",
       one("\"F32\"", "[4294967296,4294967296,4]", "[0,16]", 16),
       {"tensor w", "too large"}},
      {"bytes overflow", one("\"F32\"", "[4611686018427387904]", "[0,16]", 16), {"tensor w", "too large"}},
      {"nine dimensions", one("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]", 4), {"tensor w", "dimensions"}},
      {"one offset", one("\"F32\"", "[4]", "[0]", 16), {"tensor w", "data_offsets"}},
      {"three offsets", one("\"F32\"", "[4]", "[0,16,16]", 16), {"tensor w", "data_offsets"}},
      {"offsets backwards",
       one("\"F32\"", "[4]", "[16,0]", 16),
       {"tensor w", "data_offsets", "before they begin"}},
      {"offsets past the end", one("\"F32\"", "[5]", "[0,20]", 16), {"data_offsets", "cut off"}},
      {"offset near 2^64", one("\"F32\"", "[4]", "[0,18446744073709551615]", 16), {"data_offsets", "2^64"}},
      {"size disagrees with shape",
       one("\"F32\"", "[3]", "[0,16]", 16),
       {"tensor w", "hold 16 bytes", "need 12"}},
      {"size disagrees with dtype",
       one("\"BF16\"", "[4]", "[0,16]", 16),
       {"tensor w", "hold 16 bytes", "need 8"}},
      {"overlap", two("[0,16]", "[8,24]", 24), {"tensor b", "overlap tensor a"}},
      {"same place", two("[0,16]", "[0,16]", 16), {"overlap"}},
      {"hole between", two("[0,16]", "[20,36]", 36), {"tensor b", "hole of 4 bytes"}},
      {"hole in front", one("\"F32\"", "[4]", "[4,20]", 20), {"tensor w", "hole of 4 bytes"}},
      {"a field is missing",
       safetensors(R"({"w":{"dtype":"F32","shape":[4]}})", 16),
       {"tensor w", "data_offsets"}},
      {"no dtype", safetensors(R"({"w":{}})", 0), {"tensor w", "dtype is missing"}},
      {"unknown field", safetensors(R"({"w":{"strides":[1]}})", 0), {"tensor w", "field"}},
      {"field twice",
       safetensors(R"({"w":{"dtype":"F32","dtype":"F16"}})", 0),
       {"tensor w", "dtype is there twice"}},
      {"tensor twice",
       safetensors(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                   8),
       {"tensor w", "twice"}},
      {"empty name",
       safetensors(R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4),
       {"name of tensor 0"}},
      {"control character in a name",
       safetensors("{\"a\\u001b[31m\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4),
       {"name of tensor 0"}},
      {"long name",
       safetensors("{\"" + std::string(2000, 'n') + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                   4),
       {"name of tensor 0", "1024"}},
  };
}

TEST(Safetensors, RefusesMalformedFiles) {
  for (BadRow& row : bad_rows()) {
    SCOPED_TRACE(row.label);
    row.words.push_back("m.safetensors: ");
    built::expect_bad_file(parse_safetensors(as_bytes(row.bytes), "m.safetensors"), row.words);
  }
}

}  // namespace
}  // namespace snug::formats
