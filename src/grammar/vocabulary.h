// The tokens of a vocabulary as trees over their bytes, and the masks that were worked out over them.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/grammar.h"

namespace snug::grammar {

struct TokenTree;

// A set of tokens, and for a mask of one state alone what its tokens did beyond it.
struct Mask {
  std::vector<std::uint64_t> words;
  // Nodes of `tree` at which the state's rule can end while tokens go on.
  std::vector<std::uint32_t> ends;
  const TokenTree* tree = nullptr;
  std::uint32_t deepest = 0;  // nesting that these tokens enter and need
  std::size_t bytes() const { return sizeof(Mask) + words.size() * 8 + ends.size() * 4; }
};
using MaskPtr = std::shared_ptr<const Mask>;

// The masks used last, up to kMaskCacheBytes. Keys hold no pointers.
class MaskCache {
 public:
  using Key = std::vector<std::uint32_t>;
  MaskPtr find(const Key& key);
  void add(const Key& key, MaskPtr mask);
  std::size_t bytes() const;

 private:
  struct Entry {
    Key key;
    MaskPtr mask;
  };
  struct Hash {
    std::size_t operator()(const Key* key) const;
  };
  struct Equal {
    bool operator()(const Key* a, const Key* b) const { return *a == *b; }
  };
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the last used first
  std::unordered_map<const Key*, std::list<Entry>::iterator, Hash, Equal> index_;
  std::size_t bytes_ = 0;
};

// Tokens as a tree over their bytes, in depth-first order.
struct TokenTree {
  // A node's subtree is the nodes up to `end`. Node 0 is the empty text, and one node after the last closes
  // the order.
  struct Node {
    std::uint32_t end;
    std::uint32_t tokens;  // its own: from here in `tokens` up to the next node's
    std::uint16_t depth;
    std::uint8_t byte;
  };
  std::vector<Node> nodes;
  std::vector<std::int32_t> tokens;
};

class Vocabulary {
 public:
  explicit Vocabulary(std::vector<std::string> bytes);

  std::string_view bytes(std::int32_t token) const {
    return token < 0 || static_cast<std::size_t>(token) >= bytes_.size()
               ? std::string_view()
               : bytes_[static_cast<std::size_t>(token)];
  }
  std::size_t size() const { return bytes_.size(); }
  std::size_t words() const { return (bytes_.size() + 63) / 64; }
  int longest() const { return longest_; }  // bytes of a token
  const TokenTree& all() const { return all_; }
  // The tokens of at most kMaxPlainRun plain characters, as a mask, and the tree of all others.
  const std::vector<std::uint64_t>& plain() const { return plain_; }
  const TokenTree& rest() const { return rest_; }
  MaskCache& masks() const { return masks_; }

 private:
  TokenTree tree_of(const std::vector<std::int32_t>& sorted) const;
  std::vector<std::string> bytes_;
  TokenTree all_, rest_;
  std::vector<std::uint64_t> plain_;
  int longest_ = 0;
  mutable MaskCache masks_;
};

}  // namespace snug::grammar
