#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <limits>

#include "unit/formats/file_builder.h"

namespace snug::formats {
namespace {

using built::as_bytes, built::raw, built::GgufBuilder, built::small_gguf;

TEST(Gguf, ReadsEveryKindOfValue) {
  GgufBuilder b;
  b.key("u8", GgufBuilder::u8, raw<std::uint8_t>(200))
      .key("i8", GgufBuilder::i8, raw<std::int8_t>(-3))
      .key("u16", GgufBuilder::u16, raw<std::uint16_t>(60000))
      .key("i16", GgufBuilder::i16, raw<std::int16_t>(-300))
      .key("u32", GgufBuilder::u32, raw<std::uint32_t>(4'000'000'000u))
      .key("i32", GgufBuilder::i32, raw<std::int32_t>(-70000))
      .key("u64", GgufBuilder::u64, raw<std::uint64_t>(UINT64_MAX))
      .key("i64", GgufBuilder::i64, raw<std::int64_t>(INT64_MIN))
      .key("f64", GgufBuilder::f64, raw<double>(0.1))
      .set("f32", 0.5f)
      .set("yes", true)
      .set("text", "härter")
      .set_array("strings", GgufBuilder::string, 2, GgufBuilder::text("a") + GgufBuilder::text(""))
      .set_array("ints", GgufBuilder::i16, 2, raw<std::int16_t>(-1) + raw<std::int16_t>(7))
      .set_array("floats", GgufBuilder::f32, 1, raw(1.5f))
      .set_array("none", GgufBuilder::string, 0, "");
  const std::string file = b.build();
  const auto gguf = parse_gguf(as_bytes(file), "m.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.error().to_string();
  EXPECT_EQ(gguf->metadata.size(), 16u);
  const auto integer = [&](std::string_view key) {
    const auto value = gguf->get_int(key, INT64_MIN, INT64_MAX);
    EXPECT_TRUE(value.ok()) << value.error().to_string();
    return value.ok() ? **value : 0;
  };
  EXPECT_EQ(integer("u8"), 200);
  EXPECT_EQ(integer("i8"), -3);
  EXPECT_EQ(integer("u16"), 60000);
  EXPECT_EQ(integer("i16"), -300);
  EXPECT_EQ(integer("u32"), 4'000'000'000);
  EXPECT_EQ(integer("i32"), -70000);
  EXPECT_EQ(integer("i64"), INT64_MIN);
  built::expect_bad_file(gguf->get_int("u64", 0, INT64_MAX), {"m.gguf", "u64"});
  EXPECT_EQ(**gguf->get_number("f64"), 0.1);
  EXPECT_EQ(**gguf->get_number("f32"), 0.5);
  EXPECT_EQ(**gguf->get_number("i8"), -3.0);
  EXPECT_TRUE(**gguf->get_bool("yes"));
  EXPECT_EQ(**gguf->get_string("text"), "härter");
  EXPECT_EQ(*gguf->get_strings("strings"), (std::vector<std::string_view>{"a", ""}));
  EXPECT_TRUE(gguf->get_strings("none")->empty());
  EXPECT_EQ(gguf->get_strings("ints"), nullptr);
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(gguf->metadata.at("ints")),
            (std::vector<std::int64_t>{-1, 7}));
  EXPECT_EQ(std::get<std::vector<double>>(gguf->metadata.at("floats")), std::vector<double>{1.5});
}

TEST(Gguf, LookupsNameFileAndKey) {
  GgufBuilder b;
  b.set("n", 7u).set("nan", std::numeric_limits<float>::quiet_NaN()).set("text", "x");
  const std::string file = b.build();
  const auto gguf = parse_gguf(as_bytes(file), "m.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.error().to_string();
  EXPECT_FALSE(gguf->get_int("absent", 0, 1)->has_value());
  EXPECT_FALSE(gguf->get_number("absent")->has_value());
  EXPECT_FALSE(gguf->get_bool("absent")->has_value());
  EXPECT_FALSE(gguf->get_string("absent")->has_value());
  built::expect_bad_file(gguf->get_int("n", 8, 9), {"m.gguf", "n must be from 8 to 9, not 7"});
  built::expect_bad_file(gguf->get_int("text", 0, 9), {"m.gguf", "text must be one whole number"});
  built::expect_bad_file(gguf->get_number("nan"), {"m.gguf", "nan must be a number"});
  built::expect_bad_file(gguf->get_bool("n"), {"m.gguf", "n must be true or false"});
  built::expect_bad_file(gguf->get_string("n"), {"m.gguf", "n must be a string"});
}

TEST(Gguf, PlacesTensorsFromTheFilesStart) {
  for (const std::uint64_t alignment : {32u, 64u}) {
    for (const std::uint32_t version : {2u, 3u}) {
      GgufBuilder b;
      b.version = version;
      b.alignment = alignment;
      b.set("general.alignment", static_cast<std::uint32_t>(alignment));
      b.tensor("q", {64, 3}, 2 /* Q4_0 */, 3 * 2 * 18).tensor("n", {5}, 0 /* F32 */, 20);
      const std::string file = b.build();
      const auto gguf = parse_gguf(as_bytes(file), "m.gguf");
      ASSERT_TRUE(gguf.ok()) << gguf.error().to_string();
      EXPECT_EQ(gguf->version, version);
      ASSERT_EQ(gguf->tensors.size(), 2u);
      const TensorEntry& q = gguf->tensors[0];
      EXPECT_EQ(q.shape, (std::vector<std::int64_t>{3, 64}));
      EXPECT_EQ(q.format, quant::Format::q4_0);
      EXPECT_EQ(q.bytes, 108);
      EXPECT_EQ(q.offset % static_cast<std::int64_t>(alignment), 0);
      EXPECT_EQ(gguf->tensors[1].offset, q.offset + 128);
      EXPECT_EQ(gguf->tensors[1].offset + static_cast<std::int64_t>(alignment),
                static_cast<std::int64_t>(file.size()));
    }
  }
}

struct BadRow {
  const char* label;
  std::string bytes;
  std::vector<std::string> words;
};

// A builder changed by `change`.
template <class Change>
std::string with(Change&& change) {
  GgufBuilder b = small_gguf();
  change(b);
  return b.build();
}

std::vector<BadRow> bad_rows() {
  using B = GgufBuilder;
  const std::string good = with([](B& b) { b.tensor("w", {32}, 0, 128); });
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 62;
  return {
      {"three bytes", "GGU", {"magic"}},
      {"other magic", "GGML" + good.substr(4), {"magic"}},
      {"only magic", "GGUF", {"version", "cut off", "it has 4"}},
      {"version 1", with([](B& b) { b.version = 1; }), {"version", "1 is not supported"}},
      {"version 4", with([](B& b) { b.version = 4; }), {"version", "4 is not supported"}},
      {"version 0", with([](B& b) { b.version = 0; }), {"version"}},
      {"big-endian", with([](B& b) { b.version = 0x03000000; }), {"version", "big-endian"}},
      {"no counts", good.substr(0, 12), {"tensor_count", "cut off"}},
      {"absurd tensor count",
       with([](B& b) { b.tensor_count = UINT64_MAX; }),
       {"tensor_count", "18446744073709551615"}},
      {"many tensors", with([](B& b) { b.tensor_count = 200'000; }), {"tensor_count", "200000"}},
      {"absurd key count", with([](B& b) { b.key_count = UINT64_MAX / 2; }), {"metadata_kv_count"}},
      {"many keys", with([](B& b) { b.key_count = 60'000; }), {"metadata_kv_count", "60000"}},
      {"one key too many", with([](B& b) { b.key_count = 10; }), {"metadata key 9"}},
      {"one tensor too many", with([](B& b) { b.tensor("w", {32}, 0, 128).tensor_count = 2; }), {"tensor 1"}},
      {"cut in a key", good.substr(0, 40), {}},
      {"cut in the data",
       good.substr(0, good.size() - 1),
       {"tensor w", "cut off", "expected " + std::to_string(good.size()),
        "it has " + std::to_string(good.size() - 1)}},
      {"empty key", with([](B& b) { b.set("", 1u); }), {"metadata key 9"}},
      {"key is not text", with([](B& b) { b.set("a\xff", 1u); }), {"metadata key 9"}},
      {"overlong UTF-8 key", with([](B& b) { b.set("a\xc0\x80", 1u); }), {"metadata key 9"}},
      {"long key", with([](B& b) { b.set(std::string(1100, 'k'), 1u); }), {"metadata key 9", "1024"}},
      {"key twice", with([](B& b) { b.set("k", 1u).set("k", 1u); }), {"k: is there twice"}},
      {"unknown value type", with([](B& b) { b.key("k", 99, "xxxxxxxx"); }), {"k: value type 99"}},
      {"bool of 2", with([](B& b) { b.key("k", B::boolean, "\2"); }), {"k: 2 is not a truth value"}},
      {"string longer than the file",
       with([](B& b) { b.key("k", B::string, raw(kHuge)); }),
       {"k: a string of"}},
      {"string length 2^64-1",
       with([](B& b) { b.key("k", B::string, raw(UINT64_MAX)); }),
       {"k: a string of"}},
      {"absurd array",
       with([](B& b) { b.set_array("k", B::u8, UINT64_MAX, ""); }),
       {"k: 18446744073709551615"}},
      {"array count overflows",
       with([](B& b) { b.set_array("k", B::u64, (UINT64_MAX / 8) + 2, ""); }),
       {"k: "}},
      {"array longer than the file",
       with([](B& b) { b.set_array("k", B::string, 1000, "abc"); }),
       {"k: 1000"}},
      {"string array that ends early",
       with([](B& b) { b.set_array("k", B::string, 2, B::text("a") + raw(kHuge)); }),
       {"k: a string of"}},
      {"array of arrays",
       with([](B& b) { b.set_array("k", B::array, 1, std::string(64, '\0')); }),
       {"k: arrays of arrays"}},
      {"array of unknown type", with([](B& b) { b.set_array("k", 77, 1, "x"); }), {"k: element type 77"}},
      {"array of u64 beyond 63 bits",
       with([](B& b) { b.set_array("k", B::u64, 1, raw(UINT64_MAX)); }),
       {"k: 18446744073709551615 is out of range"}},
      {"alignment 0", with([](B& b) { b.set("general.alignment", 0u); }), {"general.alignment"}},
      {"alignment 48",
       with([](B& b) { b.set("general.alignment", 48u); }),
       {"general.alignment", "power of two"}},
      {"alignment 2^30", with([](B& b) { b.set("general.alignment", 1u << 30); }), {"general.alignment"}},
      {"alignment is text", with([](B& b) { b.set("general.alignment", "32"); }), {"general.alignment"}},
      {"empty tensor name", with([](B& b) { b.tensor("", {32}, 0, 128); }), {"tensor 0: a name"}},
      {"tensor twice",
       with([](B& b) { b.tensor("w", {32}, 0, 128).tensor("w", {32}, 0, 128); }),
       {"tensor w", "twice"}},
      {"no dimensions", with([](B& b) { b.tensor("w", {}, 0, 128); }), {"tensor w", "n_dims"}},
      {"five dimensions",
       with([](B& b) {
         b.tensor("w", {1, 1, 1, 1, 1}, 0, 4);
       }),
       {"tensor w", "n_dims", "5"}},
      {"zero dimension",
       with([](B& b) {
         b.tensor("w", {32, 0}, 0, 0);
       }),
       {"tensor w", "shape [0, 32]"}},
      {"product overflows",
       with([](B& b) {
         b.tensor("w", {kHuge, 16}, 0, 128);
       }),
       {"tensor w", "too large"}},
      {"bytes overflow", with([](B& b) { b.tensor("w", {kHuge}, 0, 128); }), {"tensor w", "too large"}},
      {"dimension beyond 63 bits",
       with([](B& b) { b.tensor("w", {UINT64_MAX}, 0, 128); }),
       {"tensor w", "shape"}},
      {"unknown tensor type",
       with([](B& b) { b.tensor("w", {32}, 4, 128); }),
       {"tensor w", "type 4", "q4_0"}},
      {"row is not whole blocks",
       with([](B& b) {
         b.tensor("w", {40, 2}, 2, 128);
       }),
       {"tensor w", "rows of 40", "32 q4_0"}},
      {"row is less than a block",
       with([](B& b) {
         b.tensor("w", {128, 2}, 12, 144);
       }),
       {"tensor w", "256 q4_k"}},
      {"offset not aligned", with([](B& b) { b.tensor("w", {32}, 0, 160, 4); }), {"tensor w", "offset 4"}},
      {"offset past the end", with([](B& b) { b.tensor("w", {32}, 0, 128, 64); }), {"tensor w", "cut off"}},
      {"offset near 2^63",
       with([](B& b) { b.tensor("w", {32}, 0, 128, INT64_MAX - 31); }),
       {"tensor w", "out of range"}},
      {"offset beyond 63 bits",
       with([](B& b) { b.tensor("w", {32}, 0, 128, UINT64_MAX - 31); }),
       {"tensor w", "out of range"}},
      {"overlap",
       with([](B& b) { b.tensor("w", {32}, 0, 128).tensor("v", {32}, 0, 128, 96); }),
       {"tensor v", "overlaps tensor w"}},
  };
}

TEST(Gguf, RefusesMalformedFiles) {
  for (BadRow& row : bad_rows()) {
    SCOPED_TRACE(row.label);
    row.words.push_back("m.gguf: ");
    built::expect_bad_file(parse_gguf(as_bytes(row.bytes), "m.gguf"), row.words);
  }
}

// Not a row of the table: it takes a file as large as the limit.
TEST(Gguf, RefusesMoreArrayElementsThanAnyModelHas) {
  std::string bytes = with([](GgufBuilder& b) { b.set_array("k", GgufBuilder::u8, 17'000'000, ""); });
  bytes.resize(bytes.size() + 17'000'000);
  built::expect_bad_file(parse_gguf(as_bytes(bytes), "m.gguf"), {"m.gguf: k: 17000000 elements", "16777216"});
}

}  // namespace
}  // namespace snug::formats
