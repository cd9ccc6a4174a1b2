#include "llm/skeleton.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "llm/llm.h"
#include "support/tiny_model.h"

namespace snug::llm {
namespace {

using test::TempFolder;

void write_tiny(const TempFolder& folder) {
  const auto config = test::tiny_config();
  test::write_hf_folder(folder, config, test::tiny_tensors(config, quant::Format::bf16, 4));
}

// Case A17: whatever any file names ends an answer.
TEST(Skeleton, EosIsTheUnionOfAllFiles) {
  const TempFolder folder;
  write_tiny(folder);  // config.json names 5
  folder.write("generation_config.json", R"({"eos_token_id":[7,5],"temperature":0.25,"top_k":9,"top_p":0.5,)"
                                         R"("repetition_penalty":1.1,"do_sample":true})");
  const auto skeleton = open_skeleton(folder.path().string());
  ASSERT_TRUE(skeleton.ok()) << skeleton.error().to_string();
  auto ids = skeleton->eos_ids;
  std::ranges::sort(ids);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{5, 7}));
  const auto params = skeleton->default_sampling();
  EXPECT_EQ(params.temperature, 0.25);
  EXPECT_EQ(params.top_k, 9);
  EXPECT_EQ(params.top_p, 0.5);
  EXPECT_EQ(params.repetition_penalty, 1.1);

  folder.write("generation_config.json", R"({"do_sample":false,"temperature":0.25})");
  EXPECT_EQ(open_skeleton(folder.path().string())->default_sampling().temperature, 0.0);
}

TEST(Skeleton, WithoutATokenizerOnlyIdsCanBeGiven) {
  const TempFolder folder;
  write_tiny(folder);
  auto skeleton = open_skeleton(folder.path().string());
  ASSERT_TRUE(skeleton.ok()) << skeleton.error().to_string();
  EXPECT_EQ(skeleton->usable_vocab(), 128);
  EXPECT_GT(skeleton->weight_bytes(), 0);
  const auto ids = skeleton->encode("text");
  ASSERT_FALSE(ids.ok());
  EXPECT_NE(ids.error().message.find("tokenizer.json"), std::string::npos);
  const auto chat = skeleton->render_chat(OrderedJson::array(), nullptr, true);
  ASSERT_FALSE(chat.ok());
  EXPECT_EQ(chat.error().code, ErrorCode::usage);

  LoadOptions options;
  options.budget.host = 1ll << 30;
  options.wishes.max_model_len = 64;
  auto llm = LLM::load(std::move(*skeleton), options);
  ASSERT_TRUE(llm.ok()) << llm.error().to_string();
  GenerateRequest request{.prompt = {1, 2, 3}};
  request.params.max_tokens = 6;
  request.params.ignore_eos = true;
  const auto result = (*llm)->generate(request);
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(result->completions[0].token_ids.size(), 6u);
  EXPECT_EQ(result->completions[0].text, "");
}

TEST(Skeleton, RandomModels) {
  const auto skeleton = open_skeleton("random:qwen2.5-0.5b:q4_0");
  ASSERT_TRUE(skeleton.ok());
  EXPECT_EQ(skeleton->random_type, "q4_0");
  EXPECT_EQ(skeleton->usable_vocab(), 151936);
  EXPECT_GT(skeleton->weight_bytes(), 346'000'000);
  EXPECT_EQ(open_skeleton("random:qwen2.5-0.5b")->random_type, "bf16");
  for (const char* name : {"random:", "random:nope", "random:qwen2.5-0.5b:q9"}) {
    const auto unknown = open_skeleton(name);
    ASSERT_FALSE(unknown.ok()) << name;
    EXPECT_EQ(unknown.error().code, ErrorCode::usage) << name;
  }
  EXPECT_FALSE(skeleton->encode("text").ok());
}

TEST(Skeleton, MissingModelIsABadFile) {
  const TempFolder folder;
  const auto missing = open_skeleton((folder.path() / "none").string());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::bad_file);
  EXPECT_NE(missing.error().message.find("none"), std::string::npos);
}

// The plan refuses before anything large is taken.
TEST(Load, RefusesWhatDoesNotFitAtOnce) {
  auto skeleton = open_skeleton("random:qwen2.5-72b");
  ASSERT_TRUE(skeleton.ok());
  LoadOptions options;
  options.budget.host = 1ll << 30;
  const auto llm = LLM::load(std::move(*skeleton), options);
  ASSERT_FALSE(llm.ok());
  EXPECT_EQ(llm.error().code, ErrorCode::does_not_fit);
  EXPECT_NE(llm.error().message.find("1.00 GiB"), std::string::npos) << llm.error().message;
}

}  // namespace
}  // namespace snug::llm
