// Sampling parameters, named and meant as in the OpenAI and vLLM APIs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace snug::engine {

struct SamplingParams {
  int max_tokens = 256;
  double temperature = 1.0;                  // 0: greedy
  double top_p = 1.0;                        // (0, 1]
  int top_k = 0;                             // 0 or -1: off
  double min_p = 0.0;                        // [0, 1]
  double repetition_penalty = 1.0;           // > 0; over prompt and output tokens
  double presence_penalty = 0.0;             // [-2, 2]; over output tokens
  double frequency_penalty = 0.0;            // [-2, 2]; over output tokens
  std::map<std::int32_t, float> logit_bias;  // [-100, 100]
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  int n = 1;
  std::optional<int> logprobs;  // how many alternatives to report (0: just the chosen token's)
  bool ignore_eos = false;
};

inline constexpr int kMaxLogprobs = 20;
inline constexpr int kMaxN = 128;

// usage error naming the field, its value and its range: NaN, infinities, ids outside the vocabulary (padded
// tail included: `vocab` is the tokenizer's size where there is one), n 0, top_p 0, max_tokens 0, empty stop
// strings.
Status validate(const SamplingParams& params, int vocab);

}  // namespace snug::engine
