// JSON as it goes out.
#pragma once

#include <string>

#include "base/json.h"

namespace snug::server {

// One line. Bytes that are not UTF-8, as of a token that is half a character, become U+FFFD.
template <class AnyJson>
std::string to_text(const AnyJson& json) {
  return json.dump(-1, ' ', false, AnyJson::error_handler_t::replace);
}

}  // namespace snug::server
