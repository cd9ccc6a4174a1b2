#include "engine/sampling_params.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

namespace snug::engine {
namespace {

Error wrong(std::string_view field, std::string_view value, std::string_view range) {
  return {ErrorCode::usage, fmt::format("{} must be {}, not {}", field, range, value),
          fmt::format("correct {} or leave it out", field)};
}

// Also false for NaN.
bool within(double value, double low, double high) {
  return value >= low && value <= high;
}

Status check_number(std::string_view field, double value, double low, double high) {
  if (within(value, low, high)) return {};
  return wrong(field, fmt::format("{}", value), fmt::format("from {} to {}", low, high));
}

}  // namespace

Status validate(const SamplingParams& params, int vocab) {
  if (params.max_tokens < 1) return wrong("max_tokens", fmt::format("{}", params.max_tokens), "at least 1");
  if (!std::isfinite(params.temperature) || params.temperature < 0) {
    return wrong("temperature", fmt::format("{}", params.temperature), "a finite number, at least 0");
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return wrong("top_p", fmt::format("{}", params.top_p), "above 0 and at most 1");
  }
  if (params.top_k < -1)
    return wrong("top_k", fmt::format("{}", params.top_k), "at least 1, or 0 or -1 for off");
  SNUG_TRY(check_number("min_p", params.min_p, 0, 1));
  if (!std::isfinite(params.repetition_penalty) || params.repetition_penalty <= 0) {
    return wrong("repetition_penalty", fmt::format("{}", params.repetition_penalty),
                 "a finite number above 0");
  }
  SNUG_TRY(check_number("presence_penalty", params.presence_penalty, -2, 2));
  SNUG_TRY(check_number("frequency_penalty", params.frequency_penalty, -2, 2));
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= vocab) {
      return wrong("logit_bias", fmt::format("id {}", id),
                   fmt::format("given for token ids from 0 to {}", vocab - 1));
    }
    SNUG_TRY(check_number(fmt::format("logit_bias of id {}", id), static_cast<double>(bias), -100, 100));
  }
  for (const std::string& stop : params.stop) {
    if (stop.empty()) return wrong("stop", "an empty one", "a list of strings that are not empty");
  }
  if (params.n < 1 || params.n > kMaxN) {
    return wrong("n", fmt::format("{}", params.n), fmt::format("from 1 to {}", kMaxN));
  }
  if (params.logprobs && (*params.logprobs < 0 || *params.logprobs > kMaxLogprobs)) {
    return wrong("logprobs", fmt::format("{}", *params.logprobs), fmt::format("from 0 to {}", kMaxLogprobs));
  }
  return {};
}

}  // namespace snug::engine
