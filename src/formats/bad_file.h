// What the readers of this folder share: their errors, and the rule for names read from files.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace snug::formats {

// "FILE: WHAT", exit code 4.
inline Error bad_file(std::string_view file, std::string_view what, std::string_view remedy = {}) {
  std::string message(file);
  message.append(": ").append(what);
  return {ErrorCode::bad_file, std::move(message), std::string(remedy)};
}

inline constexpr std::size_t kMaxNameBytes = 1024;

// Tensor names and keys: valid UTF-8, 1 to kMaxNameBytes bytes, no control characters (they reach terminals).
bool is_valid_name(std::string_view name);

}  // namespace snug::formats
