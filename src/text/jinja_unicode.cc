#include "text/jinja_unicode.h"

#include <fmt/format.h>
#include <utf8proc.h>

namespace snug::text::jinja {
namespace {

bool is_cased(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

void append_upper(std::string& out, char32_t c) {
  if (c == 0xDF) {
    out += "SS";  // the one common letter whose capital is two
  } else {
    append_code_point(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_lower(std::string& out, char32_t c) {
  append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

bool is_invalid_byte(char32_t c) {
  return c >= 0xDC80 && c <= 0xDCFF;
}

// Calls fn(code point, its bytes) for each character.
template <class Fn>
void for_each(std::string_view text, Fn&& fn) {
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_at(text, i);
    const auto size = static_cast<std::size_t>(c.size);
    fn(c.value, text.substr(i, size));
    i += size;
  }
}

}  // namespace

CodePoint decode_at(std::string_view text, std::size_t offset) {
  const auto byte = static_cast<unsigned char>(text[offset]);
  if (byte < 0x80) return {byte, 1};
  utf8proc_int32_t c = 0;
  const auto size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + offset,
                                     static_cast<utf8proc_ssize_t>(text.size() - offset), &c);
  if (size <= 0) return {0xDC00u + byte, 1};
  return {static_cast<char32_t>(c), static_cast<int>(size)};
}

void append_code_point(std::string& out, char32_t c) {
  if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) c = 0xFFFD;
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

std::int64_t length(std::string_view text) {
  std::int64_t count = 0;
  for_each(text, [&](char32_t, std::string_view) { ++count; });
  return count;
}

std::size_t offset_of(std::string_view text, std::int64_t index) {
  std::size_t offset = 0;
  while (index > 0 && offset < text.size()) {
    offset += static_cast<std::size_t>(decode_at(text, offset).size);
    --index;
  }
  return offset;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_letter(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return is_cased(c) || category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

std::string_view strip(std::string_view text, bool left, bool right,
                       std::optional<std::string_view> characters) {
  const auto strips = [&](std::string_view bytes, char32_t c) {
    // A character's bytes found in valid UTF-8 are that character.
    return characters ? characters->find(bytes) != std::string_view::npos : is_space(c);
  };
  std::size_t begin = 0;
  while (left && begin < text.size()) {
    const CodePoint c = decode_at(text, begin);
    if (!strips(text.substr(begin, static_cast<std::size_t>(c.size)), c.value)) break;
    begin += static_cast<std::size_t>(c.size);
  }
  std::size_t end = text.size();
  while (right && end > begin) {
    std::size_t start = end - 1;  // back to the start of the last character
    while (start > begin && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80)
      --start;
    CodePoint c = decode_at(text.substr(0, end), start);
    if (start + static_cast<std::size_t>(c.size) != end) {
      start = end - 1;
      c = decode_at(text.substr(0, end), start);
    }
    if (!strips(text.substr(start, end - start), c.value)) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

std::string to_upper(std::string_view text) {
  std::string out;
  for_each(text, [&](char32_t c, std::string_view bytes) {
    is_invalid_byte(c) ? void(out += bytes) : append_upper(out, c);
  });
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for_each(text, [&](char32_t c, std::string_view bytes) {
    is_invalid_byte(c) ? void(out += bytes) : append_lower(out, c);
  });
  return out;
}

std::string capitalize(std::string_view text) {
  const std::size_t first = offset_of(text, 1);
  return to_upper(text.substr(0, first)) + to_lower(text.substr(first));
}

std::string title_method(std::string_view text) {
  std::string out;
  bool inside = false;
  for_each(text, [&](char32_t c, std::string_view bytes) {
    out += inside ? to_lower(bytes) : to_upper(bytes);
    inside = is_cased(c);
  });
  return out;
}

std::string title_filter(std::string_view text) {
  std::string out;
  bool inside = false;
  for_each(text, [&](char32_t c, std::string_view bytes) {
    const bool separator = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    out += inside ? to_lower(bytes) : to_upper(bytes);
    inside = !separator;
  });
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_at(text, i);
    auto size = static_cast<std::size_t>(c.size);
    const bool ends = (c.value >= 0x0A && c.value <= 0x0D) || (c.value >= 0x1C && c.value <= 0x1E) ||
                      c.value == 0x85 || c.value == 0x2028 || c.value == 0x2029;
    if (c.value == '\r' && i + 1 < text.size() && text[i + 1] == '\n') size = 2;
    if (ends) {
      lines.push_back(text.substr(begin, i - begin + (keep_ends ? size : 0)));
      begin = i + size;
    }
    i += size;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string quote_text(std::string_view text) {
  const bool single = text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  for_each(text, [&](char32_t c, std::string_view bytes) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\\' || c == static_cast<char32_t>(quote)) {
      out += '\\';
      out += bytes;
    } else if (is_printable(c)) {
      out += bytes;
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<std::uint32_t>(c));
    }
  });
  out += quote;
  return out;
}

}  // namespace snug::text::jinja
