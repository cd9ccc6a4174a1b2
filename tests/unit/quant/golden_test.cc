// Decoding against another implementation's figures: every tensor of small GGUF files in all types.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "quant/format.h"
#include "unit/quant/gguf_mini.h"

namespace snug::quant {
namespace {

namespace fs = std::filesystem;

void check_tensor(const Json& want, const testing::MiniTensor& tensor) {
  const auto format = format_from_gguf_type(tensor.type);
  ASSERT_TRUE(format) << "type " << tensor.type;
  const auto n = want.at("n").get<std::int64_t>();
  ASSERT_EQ(tensor.elements, n);
  ASSERT_GE(static_cast<std::int64_t>(tensor.bytes.size()), bytes_of(*format, n));
  std::vector<float> got(static_cast<std::size_t>(n));
  info(*format).decode(tensor.bytes.data(), got.data(), n);

  const auto first = want.at("first").get<std::vector<double>>(),
             last = want.at("last").get<std::vector<double>>();
  ASSERT_EQ(first.size(), 8u);
  ASSERT_EQ(last.size(), 4u);
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_EQ(got[i], static_cast<float>(first[i])) << "first " << i;
  for (std::size_t i = 0; i < last.size(); ++i) {
    EXPECT_EQ(got[got.size() - last.size() + i], static_cast<float>(last[i])) << "last " << i;
  }
  double sum = 0, sumsq = 0, sumabs = 0;
  for (const float x : got) {
    sum += x;
    sumsq += static_cast<double>(x) * x;
    sumabs += std::fabs(x);
  }
  EXPECT_NEAR(sum, want.at("sum").get<double>(), 1e-12 * sumabs);  // the order of summation
  EXPECT_NEAR(sumsq, want.at("sumsq").get<double>(), 1e-12 * sumsq);
}

TEST(QuantGolden, DecodesAsAnotherImplementation) {
  const fs::path folder = fs::path(SNUG_GOLDEN_DIR) / "gguf";
  if (!fs::exists(folder / "dequantized.json")) GTEST_SKIP() << "no reference data at " << folder;
  auto text = read_text_file(folder / "dequantized.json", 16u << 20);
  ASSERT_TRUE(text.ok()) << text.error().to_string();
  auto json = parse_json(*text, "dequantized.json");
  ASSERT_TRUE(json.ok()) << json.error().to_string();

  std::set<Format> seen;
  for (const auto& [name, tensors] : json->items()) {
    if (!fs::exists(folder / name)) {
      std::printf("%s has figures but no file\n", name.c_str());
      continue;
    }
    auto file = MappedFile::open(folder / name);
    ASSERT_TRUE(file.ok()) << file.error().to_string();
    const testing::MiniGguf gguf(file->bytes());
    EXPECT_EQ(gguf.tensors().size(), tensors.size());
    for (const auto& tensor : gguf.tensors()) {
      SCOPED_TRACE(name + " " + tensor.name);
      ASSERT_TRUE(tensors.contains(tensor.name));
      check_tensor(tensors.at(tensor.name), tensor);
      if (const auto format = format_from_gguf_type(tensor.type)) seen.insert(*format);
    }
  }
  for (const FormatInfo& f : all_formats()) {
    if (f.format == Format::bf16) continue;  // has a file in some copies only; codec_test covers every value
    EXPECT_TRUE(seen.contains(f.format)) << f.name << " was in no file";
  }
}

}  // namespace
}  // namespace snug::quant
