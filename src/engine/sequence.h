// A sequence: the tokens of one request, how many of them are in the KV cache, and its pages.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "kv/block_pool.h"

namespace snug::engine {

struct Sequence {
  explicit Sequence(kv::SequenceBlocks empty) : pages(std::move(empty)) {}

  RequestId id = 0;
  Request request;
  std::vector<std::int32_t> tokens;  // prompt, then what was generated
  std::int64_t longest = 0;          // its length with the last token that may be generated
  std::int64_t computed = 0;         // tokens whose K and V are stored, once the steps under way have ended
  kv::SequenceBlocks pages;          // hold at least `computed` tokens
  TokenCounts counts;

  std::int64_t length() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t generated() const { return length() - static_cast<std::int64_t>(request.prompt.size()); }
};

}  // namespace snug::engine
