// Finds added tokens (<|im_end|> and the like) in text, by the rules of Hugging Face tokenizers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer.h"

namespace snug::text {

class AddedTokenMatcher {
 public:
  // Part of a text: an added token (id >= 0) or plain text between two (id -1).
  struct Part {
    TokenId id;
    std::string_view text;
  };

  void add(const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  // Appends the parts of `text` (valid UTF-8), joined they are `text`. The leftmost match counts, and of
  // those that begin there the longest. With skip_special a special token's text stays plain.
  void split(std::string_view text, bool skip_special, std::vector<Part>& parts) const;

 private:
  // Looks up views without making strings of them.
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  const AddedToken* match_at(std::string_view text, std::size_t position) const;

  std::unordered_map<std::string, AddedToken, TextHash, std::equal_to<>> tokens_;  // by content
  std::array<std::vector<std::uint32_t>, 256>
      lengths_by_first_{};  // by first byte, longest first, no repeats
};

}  // namespace snug::text
