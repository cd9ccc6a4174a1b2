// Byte sizes as people write them: 12GiB (1024), 16GB (1000), 4096.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace snug {

// Takes B, KiB MiB GiB TiB and KB MB GB TB (any letter case, decimals allowed); usage error otherwise.
Result<std::int64_t> parse_bytes(std::string_view text);

// "13.2 GiB", "527 MiB", "96 B".
std::string format_bytes(std::int64_t bytes);

}  // namespace snug
