#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "text/utf8.h"

namespace snug::text {

bool is_plainly_nfc(std::string_view text) {
  // U+0300, the first combining mark, is CC 80; nothing below it composes or decomposes in NFC.
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
}

namespace {

// Hugging Face tokenizers normalise with the tables of Unicode 9. A character that came later is unknown to
// them: it neither moves, nor combines, nor lets others pass. These are the ranges of such characters (up to
// Unicode 14, which utf8proc 2.8 has) that have a combining class or compose.
struct Range {
  char32_t first, last;
};
constexpr Range kAfterUnicode9[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930},
    {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
    {0x16FF0, 0x16FF1}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
};

bool is_after_unicode9(char32_t c) {
  const auto found = std::ranges::lower_bound(kAfterUnicode9, c, {}, &Range::last);
  return found != std::end(kAfterUnicode9) && found->first <= c;
}

using Characters = std::vector<utf8proc_int32_t>;

void append_decomposed(char32_t c, Characters& out) {
  const auto character = static_cast<utf8proc_int32_t>(c);
  utf8proc_int32_t parts[32];  // no canonical decomposition is longer than 4
  int boundary = 0;
  const auto count = utf8proc_decompose_char(character, parts, 32, UTF8PROC_DECOMPOSE, &boundary);
  if (count < 0 || count > 32) {
    out.push_back(character);
  } else {
    out.insert(out.end(), parts, parts + count);
  }
}

// utf8proc sorts combining marks by bubbling, which is quadratic in a long run of them, so they are sorted
// here and only the composing is left to it.
void sort_marks(Characters& characters) {
  const auto combining_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (auto begin = characters.begin(); begin != characters.end();) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, characters.end(), [&](auto c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end, [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

void append_composed(Characters& decomposed, std::string& out) {
  sort_marks(decomposed);
  const auto size = static_cast<utf8proc_ssize_t>(decomposed.size());
  constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto count = utf8proc_normalize_utf32(decomposed.data(), size, kCompose);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    utf8_append(static_cast<char32_t>(decomposed[static_cast<std::size_t>(i)]), out);
  }
  decomposed.clear();
}

}  // namespace

std::string to_nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Characters decomposed;  // of the stretch since the last character that Unicode 9 does not know
  for (std::size_t i = 0; i < text.size();) {
    std::size_t size;
    const char32_t character = utf8_decode(text.substr(i), size);
    i += size;
    if (is_after_unicode9(character)) {
      append_composed(decomposed, out);
      utf8_append(character, out);
    } else {
      append_decomposed(character, decomposed);
    }
  }
  append_composed(decomposed, out);
  return out;
}

}  // namespace snug::text
