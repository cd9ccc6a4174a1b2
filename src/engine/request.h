// A request as the engine sees it: token ids in, token events out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/sampler.h"
#include "engine/sampling_params.h"

namespace snug::engine {

using RequestId = std::int64_t;

struct Request {
  std::vector<std::int32_t> prompt;  // at least one id, each < vocab
  SamplingParams params;             // already validated; n is the caller's business: one request, one answer
  std::uint64_t seed = 0;            // of this answer's draws
  std::vector<std::int32_t> eos_ids;  // any of these ends it, unless params.ignore_eos
};

enum class FinishReason : std::uint8_t { stop, length, error };
constexpr const char* name_of(FinishReason reason) {
  return reason == FinishReason::stop ? "stop" : reason == FinishReason::length ? "length" : "error";
}

// What one step brought for one request. An eos token is reported with `finished` and is not part of the
// text.
struct Event {
  RequestId request = 0;
  std::optional<Sampled> token;  // absent on an error
  bool is_eos = false;
  std::optional<FinishReason> finished;
  std::optional<Error> error;
};

}  // namespace snug::engine
