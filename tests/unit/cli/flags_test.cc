#include "cli/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "cli/hub.h"
#include "cli/hub_files.h"

namespace snug::cli {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// $SNUG_CACHE points at a folder of the test's own.
class Resolve : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "snug-flags-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    cache_ = name;
    ::setenv("SNUG_CACHE", cache_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("SNUG_CACHE");
    fs::remove_all(cache_);
  }
  // As a pull leaves it: the files and the record of them.
  void pulled(const std::string& repo, const std::vector<std::string>& names) {
    const fs::path folder = repo_folder(cache_, repo, "main");
    fs::create_directories(folder);
    Manifest manifest;
    for (const auto& name : names) {
      std::ofstream(folder / name) << "x";
      manifest.files[name] = {name, 1, std::string(40, 'a')};
    }
    ASSERT_TRUE(write_manifest(folder, manifest, repo, "main").ok());
  }
  static Result<std::string> resolve(const std::string& model) {
    ModelFlags flags;
    flags.model = model;
    return flags.resolve();
  }
  fs::path cache_;
};

TEST_F(Resolve, PathsAndRandomModelsStayAsTheyAre) {
  EXPECT_EQ(resolve("random:qwen2.5-7b").value(), "random:qwen2.5-7b");
  EXPECT_EQ(resolve(cache_).value(), cache_.string());
}

TEST_F(Resolve, APulledFolderIsFoundByItsId) {
  pulled("org/name", {"config.json", "model.safetensors"});
  EXPECT_EQ(resolve("org/name").value(), (cache_ / "org/name").string());
}

TEST_F(Resolve, ARepositoryWithOneGgufFileIsThatFile) {
  pulled("org/name-GGUF", {"name-q4_k_m.gguf"});
  EXPECT_EQ(resolve("org/name-GGUF").value(), (cache_ / "org/name-GGUF" / "name-q4_k_m.gguf").string());
}

TEST_F(Resolve, AFolderWithoutAFinishedFileIsNotAModel) {
  fs::create_directories(cache_ / "org/begun");
  std::ofstream(cache_ / "org/begun" / "model.safetensors.part") << "x";
  const auto result = resolve("org/begun");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::bad_file);
  EXPECT_THAT(result.error().remedy, HasSubstr("snug pull org/begun"));
}

TEST_F(Resolve, OnlyWhatHasTheFormOfAnIdIsOfferedToPull) {
  for (const char* model : {"/nonexistent", "../up/down", "name", "a/b/c", ""}) {
    const auto result = resolve(model);
    ASSERT_FALSE(result.ok()) << model;
    EXPECT_EQ(result.error().code, ErrorCode::bad_file);
    EXPECT_THAT(result.error().remedy, testing::Not(HasSubstr("snug pull")));
  }
}

TEST(TokenIds, AreReadWithCommasSpacesAndBrackets) {
  EXPECT_THAT(parse_token_ids("5,6,7").value(), ElementsAre(5, 6, 7));
  EXPECT_THAT(parse_token_ids("[5, 6]").value(), ElementsAre(5, 6));
  EXPECT_THAT(parse_token_ids("").value(), ElementsAre());
  for (const char* text : {"5;6", "a", "5,6x", "2147483648", "1.5"}) {
    EXPECT_FALSE(parse_token_ids(text).ok()) << text;
  }
}

TEST(TokenIds, OutsideTheVocabularyAreNamed) {
  EXPECT_TRUE(check_token_ids({0, 9}, 10).ok());
  for (const int id : {10, -1}) {
    const Status status = check_token_ids({0, id}, 10);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::usage);
    EXPECT_THAT(status.error().message, HasSubstr("token id " + std::to_string(id)));
  }
}

TEST(SamplingFlagsApply, WhatIsGivenWinsAndTheRestStays) {
  engine::SamplingParams defaults;
  defaults.temperature = 0.7;
  defaults.top_k = 20;
  SamplingFlags flags;
  flags.temperature = 0.0;
  flags.logit_bias = R"({"5": -1.5, "7": 2})";
  const auto params = flags.apply(defaults);
  ASSERT_TRUE(params.ok());
  EXPECT_EQ(params->temperature, 0.0);
  EXPECT_EQ(params->top_k, 20);
  EXPECT_THAT(params->logit_bias, ElementsAre(std::pair(5, -1.5f), std::pair(7, 2.0f)));
}

}  // namespace
}  // namespace snug::cli
