#include "grammar/utf8.h"

namespace snug::grammar {

std::optional<std::u32string> utf8_characters(std::string_view text) {
  std::u32string result;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<std::uint8_t>(text[i++]);
    if (lead < 0x80) {
      result.push_back(lead);
      continue;
    }
    const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4 || i + static_cast<std::size_t>(more) > text.size()) return std::nullopt;
    char32_t c = lead & (0x3Fu >> more);
    for (int k = 0; k < more; ++k) {
      const auto next = static_cast<std::uint8_t>(text[i++]);
      if ((next & 0xC0) != 0x80) return std::nullopt;
      c = c << 6 | (next & 0x3F);
    }
    constexpr char32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    if (c < kLeast[more] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return std::nullopt;
    result.push_back(c);
  }
  return result;
}

int utf8_encode(char32_t c, std::uint8_t* out) {
  if (c < 0x80) {
    out[0] = static_cast<std::uint8_t>(c);
    return 1;
  }
  const int size = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  constexpr std::uint8_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (int i = size - 1; i > 0; --i, c >>= 6) out[i] = static_cast<std::uint8_t>(0x80 | (c & 0x3F));
  out[0] = static_cast<std::uint8_t>(kLead[size] | c);
  return size;
}

std::string utf8_of(char32_t c) {
  std::uint8_t bytes[4];
  const int size = utf8_encode(c, bytes);
  return {bytes, bytes + size};
}

}  // namespace snug::grammar
