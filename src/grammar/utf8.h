// Texts of the user as characters and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace snug::grammar {

// Nothing if the text is not valid UTF-8.
std::optional<std::u32string> utf8_characters(std::string_view text);
// Writes up to four bytes and returns how many.
int utf8_encode(char32_t c, std::uint8_t* out);
std::string utf8_of(char32_t c);

}  // namespace snug::grammar
