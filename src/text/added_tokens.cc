#include "text/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>
#include <functional>

#include "text/utf8.h"

namespace snug::text {
namespace {

bool is_space(char32_t c) {
  if ((c >= 0x09 && c <= 0x0D) || c == 0x85) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

// \w: letters, marks, decimal and letter numbers, connector punctuation, joiners.
bool is_word(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

char32_t first_character(std::string_view text) {
  std::size_t size;
  return utf8_decode(text, size);
}

// Where the last character of `text` begins.
std::size_t last_begin(std::string_view text) {
  std::size_t i = text.size() - 1;
  while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) --i;
  return i;
}

bool begins_with_word(std::string_view text) {
  return !text.empty() && is_word(first_character(text));
}
bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word(first_character(text.substr(last_begin(text))));
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token) {
  if (token.content.empty() || !tokens_.emplace(token.content, token).second) return;
  auto& lengths = lengths_by_first_[static_cast<unsigned char>(token.content[0])];
  const auto length = static_cast<std::uint32_t>(token.content.size());
  const auto place = std::lower_bound(lengths.begin(), lengths.end(), length, std::greater<>{});
  if (place == lengths.end() || *place != length) lengths.insert(place, length);
}

const AddedToken* AddedTokenMatcher::match_at(std::string_view text, std::size_t position) const {
  for (const std::uint32_t length : lengths_by_first_[static_cast<unsigned char>(text[position])]) {
    if (length > text.size() - position) continue;
    const auto found = tokens_.find(text.substr(position, length));
    if (found != tokens_.end()) return &found->second;
  }
  return nullptr;
}

void AddedTokenMatcher::split(std::string_view text, bool skip_special, std::vector<Part>& parts) const {
  std::size_t done = 0;  // all before it is in `parts`
  const auto put_plain = [&](std::size_t end) {
    if (end > done) parts.push_back({-1, text.substr(done, end - done)});
  };
  for (std::size_t i = 0; i < text.size();) {
    const AddedToken* token = match_at(text, i);
    if (token == nullptr) {
      ++i;
      continue;
    }
    std::size_t begin = i, end = i + token->content.size();
    // As Hugging Face does: what a match covers is passed over even where the token does not count, and the
    // search goes on behind the match itself, so a token may begin in the space that rstrip took.
    i = end;
    if (token->special && skip_special) continue;
    if (token->single_word && (ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end))))
      continue;
    if (token->lstrip) {
      while (begin > done) {
        const std::size_t before = last_begin(text.substr(0, begin));
        if (before < done || !is_space(first_character(text.substr(before)))) break;
        begin = before;
      }
    }
    if (token->rstrip) {
      while (end < text.size() && is_space(first_character(text.substr(end)))) {
        end += utf8_step(text.substr(end)).size;
      }
    }
    put_plain(begin);
    parts.push_back({token->id, text.substr(begin, end - begin)});
    done = end;
  }
  put_plain(text.size());
}

}  // namespace snug::text
