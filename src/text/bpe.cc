#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace snug::text {
namespace {

std::uint64_t pair_key(TokenId left, TokenId right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
         static_cast<std::uint32_t>(right);
}

std::size_t hash_key(std::uint64_t key) {
  key *= 0x9E3779B97F4A7C15u;  // Fibonacci hashing; the high half is the mixed one
  return static_cast<std::size_t>(key >> 32);
}

}  // namespace

MergeTable::MergeTable(std::span<const TokenizerSpec::Merge> merges)
    : slots_(std::bit_ceil(merges.size() + merges.size() / 2 + 1)) {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::uint64_t key = pair_key(merges[rank].left, merges[rank].right);
    std::size_t slot = hash_key(key) & mask;
    while (slots_[slot].rank != kNone && slots_[slot].key != key) slot = (slot + 1) & mask;
    slots_[slot] = {key, static_cast<std::uint32_t>(rank), merges[rank].result};
  }
}

const MergeTable::Entry& MergeTable::find(TokenId left, TokenId right) const {
  const std::uint64_t key = pair_key(left, right);
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_key(key) & mask;
  // The table is never full, so there is a free slot, whose rank is kNone.
  while (slots_[slot].rank != kNone && slots_[slot].key != key) slot = (slot + 1) & mask;
  return slots_[slot];
}

void bpe_merge_scan(const MergeTable& merges, BpeScratch& scratch) {
  std::vector<TokenId>& ids = scratch.ids;
  std::vector<std::uint32_t>& ranks = scratch.ranks;  // ranks[i]: of the pair (i, i + 1)
  if (ids.size() < 2) return;
  ranks.resize(ids.size() - 1);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) ranks[i] = merges.find(ids[i], ids[i + 1]).rank;
  while (!ranks.empty()) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (*best == MergeTable::kNone) return;
    const auto at = best - ranks.begin();
    const auto i = static_cast<std::size_t>(at);
    ids[i] = merges.find(ids[i], ids[i + 1]).result;
    ids.erase(ids.begin() + at + 1);
    ranks.erase(best);
    if (i > 0) ranks[i - 1] = merges.find(ids[i - 1], ids[i]).rank;
    if (i + 1 < ids.size()) ranks[i] = merges.find(ids[i], ids[i + 1]).rank;
  }
}

void bpe_merge_heap(const MergeTable& merges, BpeScratch& scratch) {
  std::vector<TokenId>& ids = scratch.ids;
  const auto count = static_cast<std::uint32_t>(ids.size());
  if (count < 2) return;
  std::vector<std::uint32_t>&next = scratch.next, &previous = scratch.previous;
  next.resize(count);
  previous.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // wraps to a value ≥ count at the start
  }
  // Rank above, position below: the smallest is the pair to merge. Entries are not taken out when a neighbour
  // merges; a popped one counts only if its pair still has that rank.
  std::vector<std::uint64_t>& heap = scratch.heap;
  heap.clear();
  const auto entry_at = [&](std::uint32_t i) -> const MergeTable::Entry* {
    if (ids[i] < 0 || next[i] >= count) return nullptr;
    const MergeTable::Entry& entry = merges.find(ids[i], ids[next[i]]);
    return entry.rank == MergeTable::kNone ? nullptr : &entry;
  };
  const auto push = [&](std::uint32_t i) {
    const MergeTable::Entry* entry = entry_at(i);
    if (entry == nullptr) return;
    heap.push_back((static_cast<std::uint64_t>(entry->rank) << 32) | i);
    std::push_heap(heap.begin(), heap.end(), std::greater<>{});
  };
  for (std::uint32_t i = 0; i + 1 < count; ++i) push(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>{});
    const std::uint64_t top = heap.back();
    heap.pop_back();
    const auto i = static_cast<std::uint32_t>(top);
    const MergeTable::Entry* entry = entry_at(i);
    if (entry == nullptr || entry->rank != top >> 32) continue;
    const std::uint32_t gone = next[i];
    ids[i] = entry->result;
    ids[gone] = -1;
    next[i] = next[gone];
    if (next[i] < count) previous[next[i]] = i;
    if (previous[i] < count) push(previous[i]);
    push(i);
  }
  std::erase(ids, -1);
}

}  // namespace snug::text
