#include "grammar/expression.h"

#include <algorithm>

#include "grammar/utf8.h"

namespace snug::grammar {
namespace {

constexpr char32_t kLastCharacter = 0x10FFFF;

// Cuts a range until each piece is a product of byte ranges (as RE2 does).
void add_sequences(char32_t first, char32_t last, std::vector<Expressions::ByteSequence>& out) {
  constexpr char32_t kLastOfSize[] = {0x7F, 0x7FF, 0xFFFF};
  for (const char32_t bound : kLastOfSize) {
    if (first <= bound && bound < last) {
      add_sequences(first, bound, out);
      add_sequences(bound + 1, last, out);
      return;
    }
  }
  if (last >= 0x80) {
    for (int i = 1; i < 4; ++i) {
      const char32_t low = (char32_t{1} << (6 * i)) - 1;
      if ((first & ~low) == (last & ~low)) continue;
      if ((first & low) != 0) {
        add_sequences(first, first | low, out);
        add_sequences((first | low) + 1, last, out);
        return;
      }
      if ((last & low) != low) {
        add_sequences(first, (last & ~low) - 1, out);
        add_sequences(last & ~low, last, out);
        return;
      }
    }
  }
  Expressions::ByteSequence sequence;
  sequence.size = utf8_encode(first, sequence.first);
  utf8_encode(last, sequence.last);
  out.push_back(sequence);
}

}  // namespace

CharSet& CharSet::add(char32_t first, char32_t last) {
  if (first <= 0xDFFF && last >= 0xD800) {
    if (first < 0xD800) add(first, 0xD7FF);
    if (last > 0xDFFF) add(0xE000, last);
    return *this;
  }
  if (first > last) return *this;
  auto it = std::lower_bound(ranges_.begin(), ranges_.end(), first,
                             [](const Range& range, char32_t c) { return range.last + 1 < c; });
  auto end = it;
  for (; end != ranges_.end() && end->first <= last + 1; ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->last);
  }
  it = ranges_.erase(it, end);
  ranges_.insert(it, Range{first, last});
  return *this;
}

CharSet& CharSet::add(const CharSet& other) {
  for (const Range& range : other.ranges_) add(range.first, range.last);
  return *this;
}

CharSet CharSet::negated() const {
  CharSet result;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) result.add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLastCharacter) result.add(next, kLastCharacter);
  return result;
}

CharSet CharSet::without(const CharSet& other) const {
  CharSet either = negated();
  return either.add(other).negated();
}

bool CharSet::contains(char32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [c](const Range& range) { return range.first <= c && c <= range.last; });
}

Expressions::Expressions() {
  add({});                       // nothing()
  add({.kind = Kind::literal});  // empty()
}

ExprId Expressions::add(Node node) {
  // Sizes saturate: what is too large is only asked whether it is.
  node.size = std::min(node.size, std::uint64_t{1} << 40);
  nodes_.push_back(std::move(node));
  return static_cast<ExprId>(nodes_.size() - 1);
}

ExprId Expressions::literal(std::string_view bytes) {
  if (bytes.empty()) return empty();
  return add({.kind = Kind::literal, .text = std::string(bytes), .size = bytes.size()});
}

ExprId Expressions::byte_range(std::uint8_t first, std::uint8_t last) {
  Node node{.kind = Kind::characters, .size = 1};
  node.sequences.push_back({1, {first}, {last}});
  return add(std::move(node));
}

ExprId Expressions::characters(const CharSet& set) {
  Node node{.kind = Kind::characters};
  for (const auto& range : set.ranges()) add_sequences(range.first, range.last, node.sequences);
  if (node.sequences.empty()) return nothing();
  for (const auto& sequence : node.sequences) node.size += static_cast<std::uint64_t>(sequence.size) + 1;
  return add(std::move(node));
}

ExprId Expressions::concat(std::vector<ExprId> parts) {
  if (std::find(parts.begin(), parts.end(), nothing()) != parts.end()) return nothing();
  std::erase(parts, empty());
  if (parts.empty()) return empty();
  if (parts.size() == 1) return parts[0];
  Node node{.kind = Kind::concat, .children = std::move(parts)};
  for (const ExprId part : node.children) node.size += nodes_[part].size;
  return add(std::move(node));
}

ExprId Expressions::alternatives(std::vector<ExprId> parts) {
  std::erase(parts, nothing());
  if (parts.empty()) return nothing();
  if (parts.size() == 1) return parts[0];
  Node node{.kind = Kind::alternatives, .children = std::move(parts)};
  for (const ExprId part : node.children) node.size += nodes_[part].size + 1;
  return add(std::move(node));
}

ExprId Expressions::repeat(ExprId part, std::uint32_t min, std::uint32_t max) {
  if (part == empty() || max == 0) return empty();
  if (part == nothing()) return min == 0 ? empty() : nothing();
  if (min == 1 && max == 1) return part;
  const std::uint64_t copies = max == kUnbounded ? std::uint64_t{min} + 1 : max;
  Node node{.kind = Kind::repeat, .min = min, .max = max, .children = {part}};
  node.size = (nodes_[part].size + 1) * copies;
  return add(std::move(node));
}

ExprId Expressions::call(RuleId rule) {
  return add({.kind = Kind::call, .min = rule, .size = 1});
}

ExprId Expressions::members(ExprId separator, const std::vector<ExprId>& members, std::vector<bool> required,
                            ExprId more) {
  Node node{.kind = Kind::members, .required = std::move(required)};
  node.children.push_back(separator);
  node.children.insert(node.children.end(), members.begin(), members.end());
  node.children.push_back(more);
  for (const ExprId child : node.children) node.size += nodes_[child].size + nodes_[separator].size + 3;
  return add(std::move(node));
}

RuleId Expressions::add_rule(std::string name, bool nests) {
  rules_.push_back({std::move(name), nests, nothing()});
  return static_cast<RuleId>(rules_.size() - 1);
}

}  // namespace snug::grammar
