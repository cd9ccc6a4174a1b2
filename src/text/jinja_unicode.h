// Strings as Python sees them: sequences of code points. Text is UTF-8; a byte that is not counts as one
// character.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace snug::text::jinja {

struct CodePoint {
  char32_t value = 0;  // 0xDC00 + byte for a byte that is not UTF-8
  int size = 0;        // bytes it takes
};
CodePoint decode_at(std::string_view text, std::size_t offset);  // offset < size
void append_code_point(std::string& out, char32_t c);            // a surrogate or more than 0x10FFFF: U+FFFD

std::int64_t length(std::string_view text);
// Byte offset of the character with this index; the size if there are fewer.
std::size_t offset_of(std::string_view text, std::int64_t index);

bool is_space(char32_t c);      // Python's str.isspace
bool is_printable(char32_t c);  // Python's str.isprintable
bool is_letter(char32_t c);
bool is_digit(char32_t c);  // decimal digits of any script

// Removes white space, or the given characters, at the ends asked for.
std::string_view strip(std::string_view text, bool left, bool right,
                       std::optional<std::string_view> characters);
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title_method(std::string_view text);  // str.title(): after anything that is not a letter
std::string title_filter(std::string_view text);  // Jinja's title: after space, -, (, {, [ or <
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
std::string quote_text(std::string_view text);  // Python's repr of a string

}  // namespace snug::text::jinja
