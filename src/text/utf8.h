// UTF-8 as Python reads it: what is not valid becomes U+FFFD, one for each maximal subpart
// (Unicode Standard, section 3.9, "U+FFFD Substitution of Maximal Subparts").
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace snug::text {

struct Utf8Step {
  enum Kind {
    valid,       // a whole character of `size` bytes
    invalid,     // `size` bytes that stand for one U+FFFD
    unfinished,  // all `size` bytes that are left begin a character that is not complete
  };
  Kind kind;
  std::size_t size;
};

// The first character of `bytes`, which must not be empty.
Utf8Step utf8_step(std::string_view bytes);

// Length of the longest prefix that is valid UTF-8.
std::size_t utf8_valid_prefix(std::string_view bytes);
inline bool utf8_is_valid(std::string_view bytes) {
  return utf8_valid_prefix(bytes) == bytes.size();
}

// Appends `bytes` to `out` with U+FFFD for what is not valid, and returns how many bytes that took: all of
// them if `final`; else an unfinished character at the end is left.
std::size_t utf8_append_replaced(std::string_view bytes, bool final, std::string& out);

// The character at the start of `text`, which must be valid and not empty; its length goes to `size`.
char32_t utf8_decode(std::string_view text, std::size_t& size);
void utf8_append(char32_t character, std::string& out);

}  // namespace snug::text
