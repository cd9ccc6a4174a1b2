#include "grammar/vocabulary.h"

#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "grammar/automaton.h"
#include "grammar/utf8.h"

namespace snug::grammar {
namespace {

// Longer tokens are never allowed; real ones have at most some hundred bytes.
constexpr std::size_t kMaxTokenBytes = 1024;

// At most kMaxPlainRun characters, all of them plain.
bool is_plain(std::string_view text) {
  if (text.size() > 4 * kMaxPlainRun) return false;
  const auto characters = utf8_characters(text);
  return characters && characters->size() <= kMaxPlainRun &&
         std::all_of(characters->begin(), characters->end(),
                     [](char32_t c) { return c >= 0x20 && c != '"' && c != '\\'; });
}

}  // namespace

std::size_t MaskCache::Hash::operator()(const Key* key) const {
  std::uint64_t hash = key->size();
  for (const auto x : *key) hash = mix64(hash ^ x);
  return hash;
}

MaskPtr MaskCache::find(const Key& key) {
  const std::scoped_lock lock(mutex_);
  const auto it = index_.find(&key);
  if (it == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it->second);
  return it->second->mask;
}

void MaskCache::add(const Key& key, MaskPtr mask) {
  const std::scoped_lock lock(mutex_);
  if (index_.contains(&key)) return;
  const auto bytes_of = [](const Entry& entry) { return entry.mask->bytes() + entry.key.size() * 4 + 128; };
  entries_.push_front({key, std::move(mask)});
  index_.emplace(&entries_.front().key, entries_.begin());
  bytes_ += bytes_of(entries_.front());
  while (bytes_ > kMaskCacheBytes && entries_.size() > 1) {
    bytes_ -= bytes_of(entries_.back());
    index_.erase(&entries_.back().key);
    entries_.pop_back();
  }
}

std::size_t MaskCache::bytes() const {
  const std::scoped_lock lock(mutex_);
  return bytes_;
}

Vocabulary::Vocabulary(std::vector<std::string> bytes) : bytes_(std::move(bytes)) {
  std::vector<std::int32_t> order(bytes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](std::int32_t token) {
    const auto size = this->bytes(token).size();
    return size == 0 || size > kMaxTokenBytes;
  });
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return this->bytes(a) < this->bytes(b); });

  plain_.resize(words());
  std::vector<std::int32_t> rest;
  for (const std::int32_t token : order) {
    const auto text = this->bytes(token);
    longest_ = std::max(longest_, static_cast<int>(text.size()));
    if (is_plain(text)) {
      plain_[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (token % 64);
    } else {
      rest.push_back(token);
    }
  }
  all_ = tree_of(order);
  rest_ = tree_of(rest);
}

TokenTree Vocabulary::tree_of(const std::vector<std::int32_t>& sorted) const {
  TokenTree tree;
  auto& nodes = tree.nodes;
  const auto size = [](const auto& list) { return static_cast<std::uint32_t>(list.size()); };
  std::vector<std::uint32_t> path{0};  // nodes from the root to the token before
  nodes.push_back({0, 0, 0, 0});
  std::string_view previous;
  for (const std::int32_t token : sorted) {
    const auto text = bytes(token);
    const auto shared = static_cast<std::size_t>(
        std::mismatch(text.begin(), text.end(), previous.begin(), previous.end()).first - text.begin());
    for (; path.size() > shared + 1; path.pop_back()) nodes[path.back()].end = size(nodes);
    for (std::size_t i = shared; i < text.size(); ++i) {
      path.push_back(size(nodes));
      nodes.push_back(
          {0, size(tree.tokens), static_cast<std::uint16_t>(i + 1), static_cast<std::uint8_t>(text[i])});
    }
    tree.tokens.push_back(token);
    previous = text;
  }
  for (const auto node : path) nodes[node].end = size(nodes);
  nodes.push_back({size(nodes) + 1, size(tree.tokens), 0, 0});
  nodes.shrink_to_fit();
  return tree;
}

std::shared_ptr<const Vocabulary> make_vocabulary(std::vector<std::string> bytes) {
  return std::make_shared<const Vocabulary>(std::move(bytes));
}

}  // namespace snug::grammar
