#include "engine/sampling_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace snug::engine {
namespace {

constexpr int kVocab = 100;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct BadCase {
  const char* field;
  std::function<void(SamplingParams&)> change;
};

TEST(SamplingParams, NamesTheFieldThatIsWrong) {
  const BadCase cases[] = {
      {"temperature", [](auto& p) { p.temperature = kNan; }},
      {"temperature", [](auto& p) { p.temperature = kInf; }},
      {"temperature", [](auto& p) { p.temperature = -0.1; }},
      {"top_p", [](auto& p) { p.top_p = 0; }},
      {"top_p", [](auto& p) { p.top_p = 1.01; }},
      {"top_p", [](auto& p) { p.top_p = kNan; }},
      {"top_k", [](auto& p) { p.top_k = -2; }},
      {"min_p", [](auto& p) { p.min_p = -0.1; }},
      {"min_p", [](auto& p) { p.min_p = 1.1; }},
      {"min_p", [](auto& p) { p.min_p = kNan; }},
      {"repetition_penalty", [](auto& p) { p.repetition_penalty = 0; }},
      {"repetition_penalty", [](auto& p) { p.repetition_penalty = kInf; }},
      {"repetition_penalty", [](auto& p) { p.repetition_penalty = kNan; }},
      {"presence_penalty", [](auto& p) { p.presence_penalty = 2.5; }},
      {"presence_penalty", [](auto& p) { p.presence_penalty = kNan; }},
      {"frequency_penalty", [](auto& p) { p.frequency_penalty = -2.5; }},
      {"logit_bias", [](auto& p) { p.logit_bias[kVocab] = -100; }},
      {"logit_bias", [](auto& p) { p.logit_bias[-1] = 1; }},
      {"logit_bias", [](auto& p) { p.logit_bias[3] = 101; }},
      {"logit_bias", [](auto& p) { p.logit_bias[3] = static_cast<float>(kNan); }},
      {"max_tokens", [](auto& p) { p.max_tokens = 0; }},
      {"n", [](auto& p) { p.n = 0; }},
      {"n", [](auto& p) { p.n = kMaxN + 1; }},
      {"stop",
       [](auto& p) {
         p.stop = {"a", ""};
       }},
      {"logprobs", [](auto& p) { p.logprobs = kMaxLogprobs + 1; }},
      {"logprobs", [](auto& p) { p.logprobs = -1; }},
  };
  for (const BadCase& bad : cases) {
    SamplingParams params;
    bad.change(params);
    const Status status = validate(params, kVocab);
    ASSERT_FALSE(status.ok()) << bad.field;
    EXPECT_EQ(status.error().code, ErrorCode::usage);
    EXPECT_TRUE(status.error().message.starts_with(bad.field)) << status.error().message;
  }
}

TEST(SamplingParams, NamesTheIdOutsideTheVocabulary) {
  SamplingParams params;
  params.logit_bias[191222] = -100;
  const Status status = validate(params, 151665);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("191222"), std::string::npos) << status.error().message;
  params.logit_bias = {{151664, -100.0f}};
  EXPECT_TRUE(validate(params, 151665).ok());
  params.logit_bias = {{151665, -100.0f}};  // the padded tail
  EXPECT_FALSE(validate(params, 151665).ok());
}

TEST(SamplingParams, TakesDefaultsAndLimits) {
  EXPECT_TRUE(validate({}, kVocab).ok());
  SamplingParams params;
  params.temperature = 0;
  params.min_p = 1;
  params.n = kMaxN;
  params.logprobs = kMaxLogprobs;
  params.stop = {"x"};
  params.presence_penalty = params.frequency_penalty = -2;
  for (const int top_k : {-1, 0, 1, 1'000'000}) {
    params.top_k = top_k;
    EXPECT_TRUE(validate(params, kVocab).ok()) << top_k;
  }
}

}  // namespace
}  // namespace snug::engine
