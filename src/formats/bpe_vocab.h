// The vocabulary and merges of a BPE tokenizer as files write them, compact until they become a
// TokenizerSpec.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/tokenizer.h"

namespace snug::formats {

// Bounds the offsets below and the memory that reading may take; Qwen2.5's tokenizer.json has 11 MiB.
inline constexpr std::size_t kMaxTokenizerBytes = std::size_t{256} << 20;

// Texts lie in two blobs, so that a quarter of a million strings cost no allocation each.
struct BpeVocab {
  struct Entry {
    text::TokenId id;
    std::uint32_t begin, size;  // in `texts`
  };
  struct Merge {
    std::uint32_t begin, left, right;  // in `merge_texts`: where it begins, then the sizes of its two texts
  };
  std::string texts, merge_texts;
  std::vector<Entry> entries;
  std::vector<Merge> merges;  // in rank order

  void add_token(std::string_view text, text::TokenId id);
  void add_merge(std::string_view left, std::string_view right);
  // "left right", as merges.txt, GGUF and older tokenizer.json have it. False if it is not two texts.
  [[nodiscard]] bool add_merge_line(std::string_view line);
};

// A merge that names no token: Hugging Face's loader refuses the file; llama.cpp, whose files GGUF are,
// leaves such a merge out, since it can never apply.
enum class UnknownMerges { refuse, skip };

// Fills spec.tokens and spec.merges. bad_file if two tokens share an id, ids are absurd, or (refuse) a merge
// names no token.
Status fill_spec(BpeVocab vocab, std::string_view name, UnknownMerges unknown, text::TokenizerSpec& spec);

// merges.txt: one merge a line; a first line "#version…" does not count.
Status read_merges_text(std::string_view text, std::string_view name, BpeVocab& vocab);

}  // namespace snug::formats
