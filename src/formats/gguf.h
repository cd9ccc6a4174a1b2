// GGUF v2 and v3. Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/weight_index.h"

namespace snug::formats {

// An array of strings stays in the file: views into the mapping.
using GgufValue = std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view,
                               std::vector<std::string_view>, std::vector<std::int64_t>, std::vector<double>>;

struct Gguf {
  std::string name;
  std::uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<TensorEntry> tensors;  // shapes reversed to row-major; offsets absolute

  // Typed lookups; bad_file "NAME: KEY …" for a wrong type or range. nullopt/empty if absent.
  Result<std::optional<std::int64_t>> get_int(std::string_view key, std::int64_t min, std::int64_t max) const;
  Result<std::optional<double>> get_number(std::string_view key) const;
  Result<std::optional<bool>> get_bool(std::string_view key) const;
  Result<std::optional<std::string_view>> get_string(std::string_view key) const;
  const std::vector<std::string_view>* get_strings(std::string_view key) const;
};

// `bytes` is the whole file and must outlive the result. Counts, lengths and offsets are checked against the
// file's size before anything is allocated for them.
Result<Gguf> parse_gguf(std::span<const std::byte> bytes, std::string_view name);

}  // namespace snug::formats
