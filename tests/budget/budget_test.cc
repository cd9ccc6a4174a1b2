// What the plan predicts against what the operating system counts.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cli/model_files.h"

namespace snug::program {
namespace {

constexpr std::int64_t kMB = 1'000'000;

class Budget : public testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitizer's shadow memory is not the program's";
  }

  // Measured at most predicted, and within 2 % of it; the program's own reading agrees with the system's.
  Json expect_agreement(std::vector<std::string> args) {
    args.insert(args.end(), {"--json", "--threads", "2"});
    const Outcome outcome = run_snug(args, {.limit = std::chrono::seconds(300)});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    if (outcome.exit_code != 0) return {};
    const Json memory = outcome.json()["memory"];
    const auto predicted = memory["predicted"]["host"].get<std::int64_t>();
    const auto peak = memory["peak"]["host"].get<std::int64_t>();
    SCOPED_TRACE(testing::Message() << testing::PrintToString(args) << "\npredicted " << predicted
                                    << ", peak " << peak << " ("
                                    << 100.0 * static_cast<double>(peak) / static_cast<double>(predicted)
                                    << " %), by the system " << outcome.peak_bytes);
    EXPECT_LE(outcome.peak_bytes, predicted);
    EXPECT_GE(static_cast<double>(peak), 0.98 * static_cast<double>(predicted));
    EXPECT_NEAR(static_cast<double>(peak), static_cast<double>(outcome.peak_bytes),
                0.01 * static_cast<double>(peak));
    EXPECT_LE(predicted, memory["budget"]["host"].get<std::int64_t>());
    return memory;
  }
};

TEST_F(Budget, RandomWeights) {
  for (const char* type : {"q4_0", "q8_0"}) {
    expect_agreement(
        {"run", std::string("random:qwen2.5-0.5b:") + type, "--token-ids", "5,6,7", "--max-tokens", "4"});
  }
  expect_agreement({"run", "random:qwen2.5-0.5b:q4_0", "--token-ids", "5,6,7", "--max-tokens", "4",
                    "--max-model-len", "8192", "--max-num-seqs", "2"});
}

TEST_F(Budget, ABudgetThatIsGivenIsKept) {
  // A smaller prefill chunk is taken before the plan gives up.
  std::vector<std::string> args = {"run", "random:qwen2.5-0.5b:q4_0", "--token-ids", "5,6,7",  "--max-tokens",
                                   "4",   "--max-model-len",          "16384",       "--json", "--threads",
                                   "2"};
  const auto free = run_snug(args).json()["memory"]["predicted"]["host"].get<std::int64_t>();
  const std::int64_t budget = free - 8 * kMB;
  args.insert(args.end(), {"--host-memory", std::to_string(budget)});
  const Outcome outcome = run_snug(args);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["memory"]["budget"]["host"], budget);
  EXPECT_LE(outcome.peak_bytes, budget);
}

class SmolLM2Budget : public Budget {
 protected:
  void SetUp() override {
    Budget::SetUp();
    const char* path = std::getenv("SNUG_TEST_SMOLLM2");
    if (path == nullptr)
      GTEST_SKIP() << "SNUG_TEST_SMOLLM2 does not name the model's file: scripts/test.sh sets it";
    model_ = path;
  }
  std::string model_;
};

TEST_F(SmolLM2Budget, ShortAndLongContexts) {
  expect_agreement({"run", model_, "-p", "Hello", "--max-tokens", "4"});
  expect_agreement({"run", model_, "-p", "Hello", "--max-tokens", "4", "--max-model-len", "8192"});
  std::string text;
  for (int i = 0; i < 600; ++i) text += "word ";
  expect_agreement({"run", model_, "-p", text, "--max-tokens", "4", "--max-model-len", "8192"});
}

TEST_F(SmolLM2Budget, TakesLittleBesidesTheFileAndTheCache) {
  const std::int64_t context = 4096;
  const Json memory = expect_agreement(
      {"run", model_, "-p", "Hello", "--max-tokens", "4", "--max-model-len", std::to_string(context)});
  ASSERT_TRUE(memory.contains("peak"));
  // 30 layers, keys and values, 3 heads of 64 numbers of 2 bytes.
  const std::int64_t kv = context * 30 * 2 * 3 * 64 * 2;
  const auto file = static_cast<std::int64_t>(fs::file_size(model_));
  EXPECT_LE(memory["peak"]["host"].get<std::int64_t>(), file + kv + 150 * kMB);
}

// Qwen2.5's tokenizer, the largest at hand, beside a small model that knows its first thousand tokens.
class Skeleton : public Budget {
 protected:
  void SetUp() override {
    Budget::SetUp();
    const fs::path tokenizer = fs::path(SNUG_SHARED_TOKENIZER_DIR) / "qwen2.5";
    if (!fs::exists(tokenizer)) GTEST_SKIP() << "Qwen2.5's tokenizer is not at " << tokenizer;
    SNUG_NEEDS_GOLDEN_MODELS();
    copy_model("qwen2-mha", folder_.path());
    write_file(folder_ / "tokenizer_config.json", read_file(tokenizer / "tokenizer_config.json"));
    const std::string unpack = "gzip -dc '" + (tokenizer / "tokenizer.json.gz").string() + "' > '" +
                               (folder_ / "tokenizer.json").string() + "'";
    ASSERT_EQ(std::system(unpack.c_str()), 0);
  }
  const TempFolder folder_;
};

TEST_F(Skeleton, StaysBelow80MB) {
  const Outcome inspected = run_snug({"inspect", folder_.path(), "--json"});
  ASSERT_EQ(inspected.exit_code, 0) << inspected.err;
  EXPECT_EQ(inspected.json()["tokenizer"]["vocab_size"], 151665);
  EXPECT_LE(inspected.peak_bytes, 80 * kMB);

  // Refused before weights are touched, with tokenizer, template and prompt in memory.
  const Outcome refused = run_snug({"run", folder_.path(), "-p", "a", "--host-memory", "10MiB", "--json"});
  EXPECT_EQ(refused.exit_code, 3) << refused.err;
  EXPECT_LE(refused.peak_bytes, 80 * kMB);
}

}  // namespace
}  // namespace snug::program
