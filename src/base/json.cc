#include "base/json.h"

#include <fmt/format.h>

#include <cmath>

namespace snug {
namespace {

// nlohmann's parser does not recurse, so depth is checked on the text before anything is built.
int nesting_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

template <class J>
Result<J> parse(std::string_view text, std::string_view name, ErrorCode code) {
  if (nesting_depth(text) > kMaxJsonDepth) {
    return Error{code, fmt::format("{}: JSON nested deeper than {} levels", name, kMaxJsonDepth),
                 "flatten it, or check that this is the right file"};
  }
  try {
    return J::parse(text);
  } catch (const typename J::exception& e) {
    return Error{code, fmt::format("{}: not valid JSON: {}", name, e.what()),
                 "fetch or write the file again"};
  }
}

Error wrong(std::string_view file, std::string_view field, std::string_view expected, const Json& got) {
  std::string text = got.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return {ErrorCode::bad_file, fmt::format("{}: {} must be {}, not {}", file, field, expected, text),
          fmt::format("correct {} in that file", field)};
}

const Json* find(const Json& object, std::string_view field) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(field);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view name, ErrorCode code) {
  return parse<Json>(text, name, code);
}

Result<OrderedJson> parse_ordered_json(std::string_view text, std::string_view name, ErrorCode code) {
  return parse<OrderedJson>(text, name, code);
}

Result<std::optional<std::int64_t>> optional_int(const Json& object, std::string_view field,
                                                 std::string_view file, std::int64_t min, std::int64_t max) {
  const Json* value = find(object, field);
  if (value == nullptr) return std::optional<std::int64_t>{};
  const auto expected = fmt::format("a whole number from {} to {}", min, max);
  if (value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
    return wrong(file, field, expected, *value);
  }
  if (!value->is_number_integer()) return wrong(file, field, expected, *value);
  const auto number = value->get<std::int64_t>();
  if (number < min || number > max) return wrong(file, field, expected, *value);
  return std::optional(number);
}

Result<std::optional<double>> optional_number(const Json& object, std::string_view field,
                                              std::string_view file) {
  const Json* value = find(object, field);
  if (value == nullptr) return std::optional<double>{};
  if (!value->is_number() || !std::isfinite(value->get<double>()))
    return wrong(file, field, "a number", *value);
  return std::optional(value->get<double>());
}

Result<std::optional<bool>> optional_bool(const Json& object, std::string_view field, std::string_view file) {
  const Json* value = find(object, field);
  if (value == nullptr) return std::optional<bool>{};
  if (!value->is_boolean()) return wrong(file, field, "true or false", *value);
  return std::optional(value->get<bool>());
}

Result<std::optional<std::string>> optional_string(const Json& object, std::string_view field,
                                                   std::string_view file) {
  const Json* value = find(object, field);
  if (value == nullptr) return std::optional<std::string>{};
  if (!value->is_string()) return wrong(file, field, "a string", *value);
  return std::optional(value->get<std::string>());
}

Result<std::int64_t> required_int(const Json& object, std::string_view field, std::string_view file,
                                  std::int64_t min, std::int64_t max) {
  SNUG_ASSIGN(const auto value, optional_int(object, field, file, min, max));
  if (!value) {
    return Error{ErrorCode::bad_file, fmt::format("{}: {} is missing", file, field),
                 fmt::format("add {} to that file, or fetch the file again", field)};
  }
  return *value;
}

}  // namespace snug
