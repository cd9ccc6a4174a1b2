#include <fmt/format.h>

#include <algorithm>

#include "formats/bad_file.h"
#include "formats/hf_config.h"
#include "formats/token_ids.h"

namespace snug::formats {
namespace {

constexpr std::size_t kMaxEosTokens = 1024;

struct Range {
  const char* field;
  double min, max;
  bool above_min;  // min itself is not allowed
};

Result<std::optional<double>> number_in(const Json& json, const Range& range, std::string_view file) {
  SNUG_ASSIGN(const auto value, optional_number(json, range.field, file));
  if (value && (*value < range.min || *value > range.max || (range.above_min && *value == range.min))) {
    return bad_file(file,
                    fmt::format("{} must be {} {} and at most {}, not {}", range.field,
                                range.above_min ? "above" : "at least", range.min, range.max, *value),
                    fmt::format("correct {} in that file", range.field));
  }
  return value;
}

}  // namespace

Result<std::vector<std::int32_t>> optional_token_ids(const Json& object, std::string_view field,
                                                     std::string_view file) {
  std::vector<std::int32_t> ids;
  const auto at = object.find(field);
  if (at == object.end() || at->is_null()) return ids;
  const auto refuse = [&] {
    return bad_file(file, fmt::format("{} must be a token id or a list of token ids", field),
                    fmt::format("correct {} in that file", field));
  };
  if (at->is_array() && at->size() > kMaxEosTokens) return refuse();
  const Json list = at->is_array() ? *at : Json::array({*at});
  for (const Json& id : list) {
    if (!id.is_number_integer()) return refuse();
    const auto wide = id.get<std::int64_t>();  // beyond 63 bits: negative
    if (wide < 0 || wide > INT32_MAX) return refuse();
    const auto value = static_cast<std::int32_t>(wide);
    if (std::ranges::find(ids, value) == ids.end()) ids.push_back(value);
  }
  return ids;
}

Result<GenerationConfig> parse_generation_config(const Json& json, std::string_view file) {
  if (!json.is_object()) return bad_file(file, "must be a JSON object", "fetch the file again");
  GenerationConfig config;
  SNUG_ASSIGN(config.eos_token_ids, optional_token_ids(json, "eos_token_id", file));
  SNUG_ASSIGN(config.temperature, number_in(json, {"temperature", 0.0, 100.0, false}, file));
  SNUG_ASSIGN(config.top_p, number_in(json, {"top_p", 0.0, 1.0, true}, file));
  SNUG_ASSIGN(config.min_p, number_in(json, {"min_p", 0.0, 1.0, false}, file));
  SNUG_ASSIGN(config.repetition_penalty, number_in(json, {"repetition_penalty", 0.0, 100.0, true}, file));
  SNUG_ASSIGN(config.top_k, optional_int(json, "top_k", file, -1, INT32_MAX));
  SNUG_ASSIGN(config.do_sample, optional_bool(json, "do_sample", file));
  return config;
}

}  // namespace snug::formats
