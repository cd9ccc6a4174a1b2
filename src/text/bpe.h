// Byte-pair merging: the pair of lowest rank first, of equal pairs the leftmost (Sennrich et al. 2016, as
// Hugging Face tokenizers applies it).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace snug::text {

// (left, right) → (rank, result) in an open-addressing hash; immutable after construction.
class MergeTable {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Entry {
    std::uint64_t key = UINT64_MAX;  // left and right; all ones: free
    std::uint32_t rank = kNone;
    TokenId result = -1;
  };

  // Ranks are positions in `merges`; of a pair that comes twice the last counts.
  explicit MergeTable(std::span<const TokenizerSpec::Merge> merges = {});
  // An entry whose rank is kNone if the pair does not merge.
  const Entry& find(TokenId left, TokenId right) const;

 private:
  std::vector<Entry> slots_;
};

// Memory reused between words.
struct BpeScratch {
  std::vector<TokenId> ids;
  std::vector<std::uint32_t> ranks, next, previous;
  std::vector<std::uint64_t> heap;
};

// Longer words go through a heap, so that time grows as n log n; shorter ones are faster by plain scanning.
inline constexpr std::size_t kBpeScanLimit = 96;

// Merges scratch.ids in place. The two give the same result.
void bpe_merge_scan(const MergeTable& merges, BpeScratch& scratch);
void bpe_merge_heap(const MergeTable& merges, BpeScratch& scratch);
inline void bpe_merge(const MergeTable& merges, BpeScratch& scratch) {
  scratch.ids.size() <= kBpeScanLimit ? bpe_merge_scan(merges, scratch) : bpe_merge_heap(merges, scratch);
}

}  // namespace snug::text
