// Languages as trees: what the readers of regular expressions and schemas build, and the automaton is made
// of.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace snug::grammar {

// Code points, without surrogates: sorted, disjoint ranges.
class CharSet {
 public:
  struct Range {
    char32_t first, last;
    bool operator==(const Range&) const = default;
  };
  CharSet() = default;
  static CharSet of(char32_t first, char32_t last) { return CharSet().add(first, last); }
  static CharSet all() { return of(0, 0x10FFFF); }
  CharSet& add(char32_t first, char32_t last);
  CharSet& add(const CharSet& other);
  CharSet negated() const;
  CharSet without(const CharSet& other) const;
  bool contains(char32_t c) const;
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

using ExprId = std::uint32_t;
using RuleId = std::uint32_t;

inline constexpr std::uint32_t kUnbounded = std::numeric_limits<std::uint32_t>::max();

// A pool of expressions and of named rules that these may call, also recursively. Ids are of one pool.
class Expressions {
 public:
  enum class Kind : std::uint8_t {
    nothing,
    literal,
    characters,
    concat,
    alternatives,
    repeat,
    call,
    members
  };
  // Bytes first[i] to last[i] for each i below `size`.
  struct ByteSequence {
    int size = 0;
    std::uint8_t first[4] = {}, last[4] = {};
  };
  struct Node {
    Kind kind = Kind::nothing;
    std::uint32_t min = 0, max = 0;       // repeat; call: min is the rule
    std::string text;                     // literal
    std::vector<ByteSequence> sequences;  // characters
    // concat, alternatives, repeat (one). members: separator, then each member, then one more that may come
    // any number of times (or `nothing`).
    std::vector<ExprId> children;
    std::vector<bool> required;  // members
    std::uint64_t size = 0;      // states of the automaton it will take, at most
  };
  struct Rule {
    std::string name;    // for messages
    bool nests = false;  // a call counts against kMaxDepth
    ExprId body = 0;
  };

  Expressions();
  ExprId nothing() const { return 0; }  // no text at all
  ExprId empty() const { return 1; }    // the empty text
  ExprId literal(std::string_view bytes);
  ExprId byte_range(std::uint8_t first, std::uint8_t last);
  ExprId characters(const CharSet& set);  // one of them, in UTF-8
  ExprId concat(std::vector<ExprId> parts);
  ExprId alternatives(std::vector<ExprId> parts);
  ExprId repeat(ExprId part, std::uint32_t min, std::uint32_t max);
  ExprId optional(ExprId part) { return repeat(part, 0, 1); }
  ExprId call(RuleId rule);
  // One or more members in their order with `separator` between; those not required may be left out. Then
  // any number of `more`.
  ExprId members(ExprId separator, const std::vector<ExprId>& members, std::vector<bool> required,
                 ExprId more);

  RuleId add_rule(std::string name, bool nests);
  void set_rule(RuleId rule, ExprId body) { rules_[rule].body = body; }

  const Node& node(ExprId id) const { return nodes_[id]; }
  const Rule& rule(RuleId id) const { return rules_[id]; }
  std::size_t rule_count() const { return rules_.size(); }

 private:
  ExprId add(Node node);
  std::vector<Node> nodes_;
  std::vector<Rule> rules_;
};

}  // namespace snug::grammar
