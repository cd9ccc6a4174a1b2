// Who holds which block of the paged KV cache. Host code only: it counts references to block numbers and
// never touches the cache's memory. Not thread-safe; the engine's thread owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"

namespace snug::kv {

class BlockPool {
 public:
  explicit BlockPool(std::int32_t blocks);

  // A free block, now with one reference; nothing when all are taken. What was released last comes first.
  std::optional<std::int32_t> allocate();
  // One more reference to a block in use: two sequences that share a prefix.
  void share(std::int32_t block);
  // One reference less; the last one frees the block.
  void release(std::int32_t block);

  std::int32_t blocks() const { return static_cast<std::int32_t>(references_.size()); }
  std::int32_t free_blocks() const { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t references(std::int32_t block) const { return references_[static_cast<std::size_t>(block)]; }

  // Every block is either referenced or free, and free once. A `failed` error names the first that is not.
  // Releasing a free block or sharing one is a bug that shows here.
  Status check() const;

 private:
  std::vector<std::int32_t> references_;  // (blocks)
  std::vector<std::int32_t> free_;        // a stack
};

// The blocks of one sequence, in the order of its tokens; releases them when destroyed. The pool must outlive
// it.
class SequenceBlocks {
 public:
  SequenceBlocks(BlockPool* pool, int block_size) : pool_(pool), block_size_(block_size) {}
  SequenceBlocks(SequenceBlocks&& other) noexcept;
  SequenceBlocks& operator=(SequenceBlocks&& other) noexcept;
  SequenceBlocks(const SequenceBlocks&) = delete;
  SequenceBlocks& operator=(const SequenceBlocks&) = delete;
  ~SequenceBlocks() { clear(); }

  // Takes blocks until `tokens` tokens fit. All or nothing: does_not_fit says how many blocks are missing.
  Status ensure_capacity(std::int64_t tokens);
  // Begins with blocks that another sequence filled, sharing them. Only while empty.
  void adopt(std::span<const std::int32_t> blocks);
  // Gives back what lies behind the first `tokens` tokens.
  void truncate(std::int64_t tokens);
  void clear() { truncate(0); }

  std::int64_t capacity() const { return static_cast<std::int64_t>(blocks_.size()) * block_size_; }
  // For SequenceView::page_table; valid until the next change.
  std::span<const std::int32_t> page_table() const { return blocks_; }

 private:
  BlockPool* pool_;
  int block_size_;
  std::vector<std::int32_t> blocks_;
};

// Blocks that `tokens` tokens need.
constexpr std::int64_t blocks_for(std::int64_t tokens, int block_size) {
  return (tokens + block_size - 1) / block_size;
}

}  // namespace snug::kv
