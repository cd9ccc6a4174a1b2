#include "server/fields.h"

#include <fmt/format.h>

#include <cmath>

namespace snug::server {
namespace {

const OrderedJson kNull;

}  // namespace

Fields::Fields(const OrderedJson& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {
  if (!object.is_object()) fail("", "must be a JSON object");
}

const OrderedJson* Fields::find(const std::string& name) {
  asked_.insert(name);
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void Fields::fail(const std::string& name, const std::string& message) {
  if (fault_) return;
  const std::string field = prefix_ + name;
  fault_ = ApiError{400, (field.empty() ? std::string("the body") : field) + " " + message, field, ""};
}

std::optional<bool> Fields::boolean(const std::string& name) {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, "must be true or false");
  return std::nullopt;
}

std::optional<double> Fields::number(const std::string& name) {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  fail(name, "must be a number");
  return std::nullopt;
}

std::optional<std::int64_t> Fields::integer(const std::string& name, std::int64_t min, std::int64_t max) {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  // 8.0 is an integer in JSON, and some clients write it so.
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  const bool whole = value->is_number_integer() || number == std::floor(number);
  const bool fits = value->is_number_unsigned()
                        ? value->get<std::uint64_t>() <=
                              static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
                        : std::abs(number) < 9e18;
  if (whole && fits) {
    const auto integer =
        value->is_number_integer() ? value->get<std::int64_t>() : static_cast<std::int64_t>(number);
    if (integer >= min && integer <= max) return integer;
  }
  fail(name, fmt::format("must be a whole number from {} to {}", min, max));
  return std::nullopt;
}

std::optional<std::string> Fields::string(const std::string& name) {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  fail(name, "must be a string");
  return std::nullopt;
}

std::optional<std::vector<std::string>> Fields::strings(const std::string& name) {
  const OrderedJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::vector{value->get<std::string>()};
  std::vector<std::string> all;
  bool good = value->is_array();
  for (std::size_t i = 0; good && i < value->size(); ++i) {
    good = (*value)[i].is_string();
    if (good) all.push_back((*value)[i].get<std::string>());
  }
  if (good) return all;
  fail(name, "must be a string or a list of strings");
  return std::nullopt;
}

const OrderedJson& Fields::any(const std::string& name) {
  const OrderedJson* value = find(name);
  return value == nullptr ? kNull : *value;
}

std::vector<std::string> Fields::unknown() const {
  std::vector<std::string> names;
  if (!object_.is_object()) return names;
  for (const auto& [name, value] : object_.items()) {
    if (!asked_.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace snug::server
