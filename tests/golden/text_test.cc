// Agreement with the reference forward passes: logits, hidden states, NLL and greedy tokens in float32.
#include <cmath>
#include <cstdio>
#include <map>

#include "golden/golden.h"

namespace snug::golden {
namespace {

class Text : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    SNUG_NEEDS_GOLDEN();
    folder_ = dir() / "text" / GetParam();
    cases_ = read_json(folder_ / "golden.json")["cases"];
  }
  std::filesystem::path folder_;
  Json cases_;
};

// tools/reference_bf16.py, transformers 5.17 on a GPU: relative RMS error of bfloat16 over all last logits.
const std::map<std::string, double> kReferenceError = {{"qwen2-h128", 1.686e-2},
                                                       {"qwen2-h64-tied", 1.747e-2},
                                                       {"qwen2-mha", 1.464e-2},
                                                       {"qwen2-yarn", 1.806e-2}};

constexpr float kLogitTolerance = 2e-4f;  // of the largest magnitude

TEST_P(Text, LogitsHiddenStatesAndNllAgree) {
  const Tensors reference(folder_ / "golden.safetensors");
  const auto llm = load(folder_, {});
  ASSERT_NE(llm, nullptr);
  const auto vocab = llm->skeleton().config.vocab;
  const auto hidden_size = llm->skeleton().config.hidden;
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "prompt " << i);
    const auto ids = cases_[i]["prompt"].get<std::vector<std::int32_t>>();
    std::vector<float> logits;
    std::vector<std::vector<float>> hidden(static_cast<std::size_t>(llm->skeleton().config.layers + 1));
    const auto status = llm->engine().evaluate(
        ids,
        [&](std::int64_t, std::int64_t count, const float* rows) -> Status {
          logits.insert(logits.end(), rows, rows + count * vocab);
          return {};
        },
        [&](int layer, std::int64_t, std::int64_t tokens, const float* values) {
          auto& all = hidden[static_cast<std::size_t>(layer)];
          all.insert(all.end(), values, values + tokens * hidden_size);
        });
    ASSERT_TRUE(status.ok()) << status.error().to_string();

    const auto prefix = "p" + std::to_string(i) + ".";
    const auto last = reference.read(prefix + "logits_last");
    const std::vector<float> my_last(logits.end() - vocab, logits.end());
    EXPECT_LE(largest_difference(my_last, last), kLogitTolerance * largest(last));
    if (reference.has(prefix + "logits")) {
      const auto all = reference.read(prefix + "logits");
      EXPECT_LE(largest_difference(logits, all), kLogitTolerance * largest(all));
    }
    for (std::size_t layer = 0; layer < hidden.size(); ++layer) {
      const auto name = prefix + "hidden" + std::to_string(layer);
      if (!reference.has(name)) continue;
      const auto expected = reference.read(name);
      EXPECT_LE(largest_difference(hidden[layer], expected), kLogitTolerance * largest(expected)) << name;
    }
    double nll = 0;
    for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
      const float* row = logits.data() + static_cast<std::int64_t>(t) * vocab;
      const float most = *std::max_element(row, row + vocab);
      double sum = 0;
      for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(row[v]) - most);
      nll += std::log(sum) + most - row[ids[t + 1]];
    }
    const double expected_nll = cases_[i]["nll_sum"];
    EXPECT_NEAR(nll, expected_nll, 1e-4 * expected_nll + 1e-9);
  }
}

// Prompts in chunks and several sequences in one batch give the reference's greedy tokens too.
TEST_P(Text, GreedyTokensAgreeAloneChunkedAndMixed) {
  for (const std::int64_t chunk : {1, 3, 16, 64, 512}) {
    for (const std::int64_t sequences : {1, 4}) {
      SCOPED_TRACE(testing::Message() << "chunk " << chunk << ", sequences " << sequences);
      const auto llm = load(folder_, {.chunk = chunk, .sequences = sequences});
      ASSERT_NE(llm, nullptr);
      auto& engine = llm->engine();
      std::map<engine::RequestId, std::size_t> case_of;
      for (std::size_t i = 0; i < cases_.size(); ++i) {
        const auto prompt = cases_[i]["prompt"].get<std::vector<std::int32_t>>();
        if (chunk < 16 && prompt.size() > 256) continue;  // minutes, and the same code
        const auto id = engine.submit({prompt, greedy(24), 0, {}});
        ASSERT_TRUE(id.ok()) << id.error().to_string();
        case_of[*id] = i;
      }
      std::map<engine::RequestId, std::vector<std::int32_t>> got;
      while (!engine.idle()) {
        for (const auto& event : engine.step()) {
          ASSERT_FALSE(event.error.has_value()) << event.error->to_string();
          got[event.request].push_back(event.token->token);
        }
      }
      ASSERT_EQ(got.size(), case_of.size());
      for (const auto& [id, tokens] : got) {
        EXPECT_EQ(tokens, cases_[case_of[id]]["greedy"].get<std::vector<std::int32_t>>())
            << "prompt " << case_of[id];
      }
      const auto healthy = engine.check();
      EXPECT_TRUE(healthy.ok()) << healthy.error().to_string();
    }
  }
}

TEST_P(Text, ChunkedLogitsEqualUnchunked) {
  const auto ids = cases_[5]["prompt"].get<std::vector<std::int32_t>>();
  const auto whole = load(folder_, {});
  ASSERT_NE(whole, nullptr);
  const auto expected = all_logits(*whole, ids);
  for (const std::int64_t chunk : {1, 3, 16, 64}) {
    const auto llm = load(folder_, {.chunk = chunk, .logit_rows = 1});
    ASSERT_NE(llm, nullptr);
    EXPECT_LE(largest_difference(all_logits(*llm, ids), expected), 2e-5f * largest(expected))
        << "chunk " << chunk;
  }
}

// bfloat16 is as near to the float32 reference as the reference's own bfloat16 is.
TEST_P(Text, BfloatErrsNoMoreThanTheReference) {
  if (!on_gpu()) GTEST_SKIP() << "the CPU's fast path rounds to 8 bits, not to bfloat16";
  const Tensors reference(folder_ / "golden.safetensors");
  const auto llm = load(folder_, {.precision = kernels::Precision::fast, .kv_dtype = DType::bf16});
  ASSERT_NE(llm, nullptr);
  const auto vocab = llm->skeleton().config.vocab;
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    const auto logits = all_logits(*llm, cases_[i]["prompt"].get<std::vector<std::int32_t>>());
    const auto last = reference.read("p" + std::to_string(i) + ".logits_last");
    for (std::int64_t v = 0; v < vocab; ++v) {
      const double want = last[static_cast<std::size_t>(v)];
      const double got = logits[logits.size() - static_cast<std::size_t>(vocab - v)];
      error += (got - want) * (got - want);
      norm += want * want;
    }
  }
  const double relative = std::sqrt(error / norm);
  std::printf("relative error %.3e, the reference's %.3e\n", relative, kReferenceError.at(GetParam()));
  EXPECT_LE(relative, kReferenceError.at(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Golden, Text,
                         testing::Values("qwen2-h128", "qwen2-h64-tied", "qwen2-mha", "qwen2-yarn"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace snug::golden
