#include "kv/block_pool.h"

#include <cassert>
#include <cstddef>
#include <string>
#include <utility>

namespace snug::kv {

BlockPool::BlockPool(std::int32_t blocks) : references_(static_cast<std::size_t>(blocks), 0) {
  free_.reserve(references_.size());
  for (std::int32_t i = blocks - 1; i >= 0; --i) free_.push_back(i);
}

std::optional<std::int32_t> BlockPool::allocate() {
  if (free_.empty()) return std::nullopt;
  const std::int32_t block = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(block)] = 1;
  return block;
}

void BlockPool::share(std::int32_t block) {
  ++references_[static_cast<std::size_t>(block)];
}

void BlockPool::release(std::int32_t block) {
  std::int32_t& count = references_[static_cast<std::size_t>(block)];
  // A count below zero is left for check() to find: freeing twice would give one block to two sequences.
  if (--count == 0) free_.push_back(block);
}

Status BlockPool::check() const {
  std::vector<int> times_free(references_.size(), 0);
  for (const std::int32_t block : free_) ++times_free[static_cast<std::size_t>(block)];
  for (std::size_t i = 0; i < references_.size(); ++i) {
    if (references_[i] >= 0 && times_free[i] == (references_[i] == 0 ? 1 : 0)) continue;
    return Error{.code = ErrorCode::failed,
                 .message = "KV block " + std::to_string(i) + " has " + std::to_string(references_[i]) +
                            " references and is free " + std::to_string(times_free[i]) + " times",
                 .remedy = "this is a bug in Snug"};
  }
  return {};
}

SequenceBlocks::SequenceBlocks(SequenceBlocks&& other) noexcept
    : pool_(other.pool_), block_size_(other.block_size_), blocks_(std::exchange(other.blocks_, {})) {}

SequenceBlocks& SequenceBlocks::operator=(SequenceBlocks&& other) noexcept {
  if (this != &other) {
    clear();
    pool_ = other.pool_;
    block_size_ = other.block_size_;
    blocks_ = std::exchange(other.blocks_, {});
  }
  return *this;
}

Status SequenceBlocks::ensure_capacity(std::int64_t tokens) {
  const std::int64_t missing = blocks_for(tokens, block_size_) - static_cast<std::int64_t>(blocks_.size());
  if (missing > pool_->free_blocks()) {
    return Error{.code = ErrorCode::does_not_fit,
                 .message = std::to_string(tokens) + " tokens need " + std::to_string(missing) +
                            " more KV blocks of " + std::to_string(block_size_) + " tokens, and " +
                            std::to_string(pool_->free_blocks()) + " of " + std::to_string(pool_->blocks()) +
                            " are free: " + std::to_string(missing - pool_->free_blocks()) + " are missing",
                 .remedy = "shorten the context or give the KV cache more memory"};
  }
  for (std::int64_t i = 0; i < missing; ++i) blocks_.push_back(*pool_->allocate());
  return {};
}

void SequenceBlocks::adopt(std::span<const std::int32_t> blocks) {
  assert(blocks_.empty());
  for (const std::int32_t block : blocks) pool_->share(block);
  blocks_.assign(blocks.begin(), blocks.end());
}

void SequenceBlocks::truncate(std::int64_t tokens) {
  const auto keep = static_cast<std::size_t>(blocks_for(tokens, block_size_));
  // From the back, so that allocating again hands out the same blocks in the same order.
  while (blocks_.size() > keep) {
    pool_->release(blocks_.back());
    blocks_.pop_back();
  }
}

}  // namespace snug::kv
