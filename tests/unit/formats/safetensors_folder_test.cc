#include <gtest/gtest.h>

#include "formats/safetensors.h"
#include "unit/formats/file_builder.h"

namespace snug::formats {
namespace {

using built::safetensors_of, built::TempFolder;

constexpr const char* kIndex = "model.safetensors.index.json";

std::string index_of(const std::vector<std::pair<std::string, std::string>>& map) {
  std::string json = R"({"metadata":{"total_size":1},"weight_map":{)";
  for (std::size_t i = 0; i < map.size(); ++i) {
    json += (i ? ",\"" : "\"") + map[i].first + "\":\"" + map[i].second + "\"";
  }
  return json + "}}";
}

TEST(SafetensorsFolder, OneFile) {
  TempFolder folder;
  folder.write("model.safetensors", safetensors_of({"a", "b"}));
  folder.write("extra.safetensors", "broken, but nobody asked for it");
  const auto result = open_safetensors_folder(folder.path());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(result->tensors.size(), 2u);
  EXPECT_EQ(result->total_bytes(), 32);
  EXPECT_TRUE(result->warnings.empty());
  const TensorEntry& b = result->tensors.at("b");
  EXPECT_EQ(result->data(b), result->files[0]->bytes().data() + b.offset);
}

// Shard names may be padded in any way: they come from the index alone (case B08).
TEST(SafetensorsFolder, ShardsAsTheIndexNamesThem) {
  TempFolder folder;
  folder.write("model-00001-of-000002.safetensors", safetensors_of({"a", "b"}));
  folder.write("part_two.safetensors", safetensors_of({"c"}));
  folder.write(kIndex, index_of({{"a", "model-00001-of-000002.safetensors"},
                                 {"b", "model-00001-of-000002.safetensors"},
                                 {"c", "part_two.safetensors"}}));
  const auto result = open_safetensors_folder(folder.path());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(result->files.size(), 2u);
  EXPECT_EQ(result->total_bytes(), 48);
  EXPECT_TRUE(result->warnings.empty());
  EXPECT_EQ(result->files[result->tensors.at("c").file]->path().filename(), "part_two.safetensors");
}

TEST(SafetensorsFolder, MissingShardsAreListed) {
  TempFolder folder;
  folder.write("s1.safetensors", safetensors_of({"a"}));
  folder.write(kIndex, index_of({{"a", "s1.safetensors"}, {"b", "s2.safetensors"}, {"c", "s3.safetensors"}}));
  built::expect_bad_file(
      open_safetensors_folder(folder.path()),
      {kIndex, "weight_map", "names 3 files, 1 of them are present", "s2.safetensors, s3.safetensors"});
}

TEST(SafetensorsFolder, OneFileIsUsedWhereShardsAreMissing) {
  TempFolder folder;
  folder.write("model.safetensors", safetensors_of({"a"}));
  folder.write(kIndex, index_of({{"a", "s1.safetensors"}}));
  const auto result = open_safetensors_folder(folder.path());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(result->tensors.size(), 1u);
  ASSERT_EQ(result->warnings.size(), 1u);
  EXPECT_NE(result->warnings[0].find("s1.safetensors"), std::string::npos);
}

TEST(SafetensorsFolder, IndexIsPreferredWhereItsShardsExist) {
  TempFolder folder;
  folder.write("model.safetensors", safetensors_of({"a"}, 8));
  folder.write("s1.safetensors", safetensors_of({"a"}, 4));
  folder.write(kIndex, index_of({{"a", "s1.safetensors"}}));
  const auto result = open_safetensors_folder(folder.path());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(result->total_bytes(), 16);
}

TEST(SafetensorsFolder, StaleIndexIsRebuiltFromHeaders) {
  TempFolder folder;
  folder.write("s1.safetensors", safetensors_of({"a", "d"}));
  folder.write("s2.safetensors", safetensors_of({"b"}));
  folder.write(kIndex,
               index_of({{"a", "s2.safetensors"}, {"b", "s1.safetensors"}}));  // swapped; d not listed
  const auto result = open_safetensors_folder(folder.path());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(result->files[result->tensors.at("a").file]->path().filename(), "s1.safetensors");
  EXPECT_EQ(result->files[result->tensors.at("b").file]->path().filename(), "s2.safetensors");
  EXPECT_EQ(result->tensors.count("d"), 1u);
  ASSERT_EQ(result->warnings.size(), 2u);
  EXPECT_NE(result->warnings[0].find("2 tensors are in another shard"), std::string::npos)
      << result->warnings[0];
  EXPECT_NE(result->warnings[1].find("(d)"), std::string::npos) << result->warnings[1];
}

TEST(SafetensorsFolder, TensorInNoShard) {
  TempFolder folder;
  folder.write("s1.safetensors", safetensors_of({"a"}));
  folder.write(kIndex, index_of({{"a", "s1.safetensors"}, {"lost.weight", "s1.safetensors"}}));
  built::expect_bad_file(open_safetensors_folder(folder.path()), {kIndex, "1 of 2 tensors", "lost.weight"});
}

TEST(SafetensorsFolder, TensorInTwoShards) {
  TempFolder folder;
  folder.write("s1.safetensors", safetensors_of({"a"}));
  folder.write("s2.safetensors", safetensors_of({"a", "b"}, 8));
  folder.write("s3.safetensors", safetensors_of({"c"}));
  folder.write(kIndex, index_of({{"a", "s2.safetensors"}, {"b", "s2.safetensors"}, {"c", "s1.safetensors"}}));
  // The index knows which one counts, though c is in no shard that it names.
  built::expect_bad_file(open_safetensors_folder(folder.path()), {kIndex, "tensors are in no shard: c"});
  folder.write(kIndex, index_of({{"a", "s2.safetensors"},
                                 {"b", "s2.safetensors"},
                                 {"c", "s3.safetensors"},
                                 {"x", "s1.safetensors"}}));
  built::expect_bad_file(open_safetensors_folder(folder.path()), {kIndex, "in no shard: x"});
  folder.write("s1.safetensors", safetensors_of({"a", "x"}));
  const auto result = open_safetensors_folder(folder.path());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(result->tensors.at("a").bytes, 32);
  // Where the index does not say, nobody does.
  folder.write(kIndex, index_of({{"b", "s2.safetensors"}, {"c", "s3.safetensors"}, {"x", "s1.safetensors"}}));
  built::expect_bad_file(open_safetensors_folder(folder.path()),
                         {"s2.safetensors", "tensor a", "also in s1.safetensors"});
}

TEST(SafetensorsFolder, CutShardSaysBothSizes) {
  TempFolder folder;
  const std::string whole = safetensors_of({"a"});
  folder.write("s1.safetensors", whole.substr(0, whole.size() - 3));
  folder.write(kIndex, index_of({{"a", "s1.safetensors"}}));
  built::expect_bad_file(open_safetensors_folder(folder.path()),
                         {"s1.safetensors", "expected " + std::to_string(whole.size()),
                          "it has " + std::to_string(whole.size() - 3)});
}

TEST(SafetensorsFolder, RefusesMalformedIndex) {
  const struct {
    const char* label;
    std::string text;
    std::vector<std::string> words;
  } rows[] = {
      {"broken JSON", "{", {"not valid JSON"}},
      {"a list", "[]", {"object"}},
      {"no map", "{}", {"weight_map is missing"}},
      {"map is a list", R"({"weight_map":[]})", {"weight_map must be an object"}},
      {"map is empty", R"({"weight_map":{}})", {"weight_map"}},
      {"file is a number", R"({"weight_map":{"a":1}})", {"weight_map: a must name a file"}},
      {"parent folder", index_of({{"a", "../s1.safetensors"}}), {"weight_map", "../s1.safetensors"}},
      {"absolute", index_of({{"a", "/etc/s1.safetensors"}}), {"weight_map", "/etc/s1.safetensors"}},
      {"backslash", index_of({{"a", "..\\\\s1.safetensors"}}), {"weight_map"}},
      {"hidden", index_of({{"a", ".s1.safetensors"}}), {"weight_map"}},
      {"other kind of file", index_of({{"a", "pytorch_model.bin"}}), {"weight_map", "pytorch_model.bin"}},
      {"empty file name", index_of({{"a", ""}}), {"weight_map"}},
      {"zero byte", index_of({{"a", "s1\\u0000.safetensors"}}), {"weight_map", "not a file name"}},
      {"empty tensor name", index_of({{"", "s1.safetensors"}}), {"weight_map", "tensor name"}},
      {"deep nesting", std::string(200, '[') + std::string(200, ']'), {"nested"}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.label);
    TempFolder folder;
    folder.write("s1.safetensors", safetensors_of({"a"}));
    folder.write(kIndex, row.text);
    auto words = row.words;
    words.push_back(kIndex);
    built::expect_bad_file(open_safetensors_folder(folder.path()), words);
  }
}

TEST(SafetensorsFolder, NothingThere) {
  TempFolder folder;
  built::expect_bad_file(open_safetensors_folder(folder.path()), {"model.safetensors", kIndex});
  folder.write("model-00001-of-00002.safetensors", safetensors_of({"a"}));
  built::expect_bad_file(open_safetensors_folder(folder.path()), {kIndex, "is missing", "1 other"});
}

}  // namespace
}  // namespace snug::formats
