#include "text/utf8.h"

#include <cstdint>
#include <cstring>

namespace snug::text {

Utf8Step utf8_step(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return {Utf8Step::valid, 1};
  // The range of the second byte keeps out overlong forms, surrogates and what lies above U+10FFFF.
  std::size_t size;
  unsigned low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    size = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    size = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    size = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Utf8Step::invalid, 1};
  }
  for (std::size_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {Utf8Step::unfinished, i};
    if (at(i) < low || at(i) > high) return {Utf8Step::invalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Step::valid, size};
}

std::size_t utf8_valid_prefix(std::string_view bytes) {
  std::size_t i = 0;
  while (i < bytes.size()) {
    // Most text is ASCII: eight bytes at a time.
    std::uint64_t word;
    if (i + sizeof(word) <= bytes.size()) {
      std::memcpy(&word, bytes.data() + i, sizeof(word));
      if ((word & 0x8080808080808080u) == 0) {
        i += sizeof(word);
        continue;
      }
    }
    const Utf8Step step = utf8_step(bytes.substr(i));
    if (step.kind != Utf8Step::valid) return i;
    i += step.size;
  }
  return i;
}

std::size_t utf8_append_replaced(std::string_view bytes, bool final, std::string& out) {
  std::size_t done = 0;
  for (;;) {
    const std::string_view rest = bytes.substr(done);
    const std::size_t valid = utf8_valid_prefix(rest);
    out.append(rest.substr(0, valid));
    done += valid;
    if (done == bytes.size()) return done;
    const Utf8Step step = utf8_step(bytes.substr(done));
    if (step.kind == Utf8Step::unfinished && !final) return done;
    out.append("\uFFFD");
    done += step.size;
  }
}

char32_t utf8_decode(std::string_view text, std::size_t& size) {
  const auto at = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t lead = at(0);
  if (lead < 0x80) {
    size = 1;
    return lead;
  }
  size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t character = lead & (0xFFu >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) character = (character << 6) | (at(i) & 0x3F);
  return character;
}

void utf8_append(char32_t c, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace snug::text
