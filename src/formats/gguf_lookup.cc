#include <fmt/format.h>

#include <cmath>

#include "formats/bad_file.h"
#include "formats/gguf.h"

namespace snug::formats {
namespace {

constexpr const char* kDamaged = "convert the model again, or fetch the file again";

}  // namespace

Result<std::optional<std::int64_t>> Gguf::get_int(std::string_view key, std::int64_t min,
                                                  std::int64_t max) const {
  const auto at = metadata.find(key);
  if (at == metadata.end()) return std::optional<std::int64_t>{};
  std::optional<std::int64_t> number;
  if (const auto* i = std::get_if<std::int64_t>(&at->second)) number = *i;
  if (const auto* u = std::get_if<std::uint64_t>(&at->second);
      u && *u <= static_cast<std::uint64_t>(INT64_MAX)) {
    number = static_cast<std::int64_t>(*u);
  }
  if (!number)
    return bad_file(name, fmt::format("{} must be one whole number from {} to {}", key, min, max), kDamaged);
  if (*number < min || *number > max) {
    return bad_file(name, fmt::format("{} must be from {} to {}, not {}", key, min, max, *number), kDamaged);
  }
  return number;
}

Result<std::optional<double>> Gguf::get_number(std::string_view key) const {
  const auto at = metadata.find(key);
  if (at == metadata.end()) return std::optional<double>{};
  std::optional<double> number;
  if (const auto* d = std::get_if<double>(&at->second)) number = *d;
  if (const auto* i = std::get_if<std::int64_t>(&at->second)) number = static_cast<double>(*i);
  if (const auto* u = std::get_if<std::uint64_t>(&at->second)) number = static_cast<double>(*u);
  if (!number || !std::isfinite(*number))
    return bad_file(name, fmt::format("{} must be a number", key), kDamaged);
  return number;
}

Result<std::optional<bool>> Gguf::get_bool(std::string_view key) const {
  const auto at = metadata.find(key);
  if (at == metadata.end()) return std::optional<bool>{};
  if (const auto* b = std::get_if<bool>(&at->second)) return std::optional(*b);
  return bad_file(name, fmt::format("{} must be true or false", key), kDamaged);
}

Result<std::optional<std::string_view>> Gguf::get_string(std::string_view key) const {
  const auto at = metadata.find(key);
  if (at == metadata.end()) return std::optional<std::string_view>{};
  if (const auto* text = std::get_if<std::string_view>(&at->second)) return std::optional(*text);
  return bad_file(name, fmt::format("{} must be a string", key), kDamaged);
}

const std::vector<std::string_view>* Gguf::get_strings(std::string_view key) const {
  const auto at = metadata.find(key);
  return at == metadata.end() ? nullptr : std::get_if<std::vector<std::string_view>>(&at->second);
}

}  // namespace snug::formats
