// Unicode Normalization Form C (UAX #15) as Hugging Face tokenizers has it: by the tables of Unicode 9.
#pragma once

#include <string>
#include <string_view>

namespace snug::text {

// `text` must be valid UTF-8. Time is linear but for sorting runs of combining marks (n log n).
std::string to_nfc(std::string_view text);

// True if `text` is certainly in NFC already (all of it below U+0300); a cheap test that most text passes.
bool is_plainly_nfc(std::string_view text);

}  // namespace snug::text
