// eos_token_id and its kin: one id or a list.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace snug::formats {

// Missing or null: empty. Duplicates are dropped, order kept. bad_file "FILE: FIELD …" otherwise.
Result<std::vector<std::int32_t>> optional_token_ids(const Json& object, std::string_view field,
                                                     std::string_view file);

}  // namespace snug::formats
