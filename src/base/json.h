// Helpers over nlohmann-json: parsing with limits, and typed fields whose errors name file and field.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace snug {

using Json = nlohmann::json;
// Keeps the order of keys: chat templates print objects in the order they were written.
using OrderedJson = nlohmann::ordered_json;

inline constexpr int kMaxJsonDepth = 128;

// Parses text; `name` (a file or a field) begins the error's message, `code` is its kind.
// Deeper nesting than kMaxJsonDepth is an error, so that later recursion over the value is bounded.
Result<Json> parse_json(std::string_view text, std::string_view name, ErrorCode code = ErrorCode::bad_file);
Result<OrderedJson> parse_ordered_json(std::string_view text, std::string_view name,
                                       ErrorCode code = ErrorCode::bad_file);

// A typed field of an object. Missing or null gives nullopt; a wrong type or range is a bad_file error
// "FILE: FIELD must be …".
Result<std::optional<std::int64_t>> optional_int(const Json& object, std::string_view field,
                                                 std::string_view file, std::int64_t min, std::int64_t max);
Result<std::optional<double>> optional_number(const Json& object, std::string_view field,
                                              std::string_view file);
Result<std::optional<bool>> optional_bool(const Json& object, std::string_view field, std::string_view file);
Result<std::optional<std::string>> optional_string(const Json& object, std::string_view field,
                                                   std::string_view file);
Result<std::int64_t> required_int(const Json& object, std::string_view field, std::string_view file,
                                  std::int64_t min, std::int64_t max);

}  // namespace snug
