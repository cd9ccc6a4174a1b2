#include "grammar/json_text.h"

#include <algorithm>
#include <map>
#include <string>

#include "grammar/regex.h"
#include "grammar/utf8.h"

namespace snug::grammar {
namespace {

CharSet unescaped() {
  return CharSet::of(0, 0x1F).add('"', '"').add('\\', '\\').negated();
}

ExprId digit(Expressions& e, char first = '0', char last = '9') {
  return e.byte_range(static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last));
}

// The digit strings of one length that are at least `low` and at most `high`, both of that length.
ExprId digits_between(Expressions& e, std::string_view low, std::string_view high) {
  if (low.empty()) return e.empty();
  const auto rest = static_cast<std::uint32_t>(low.size() - 1);
  const std::string nines(rest, '9'), zeros(rest, '0');
  if (low.substr(1) == zeros && high.substr(1) == nines) {
    return e.concat({digit(e, low[0], high[0]), e.repeat(digit(e), rest, rest)});
  }
  const auto lead = [&](char c) { return e.literal(std::string_view(&c, 1)); };
  if (low[0] == high[0]) return e.concat({lead(low[0]), digits_between(e, low.substr(1), high.substr(1))});
  std::vector<ExprId> parts{e.concat({lead(low[0]), digits_between(e, low.substr(1), nines)}),
                            e.concat({lead(high[0]), digits_between(e, zeros, high.substr(1))})};
  if (low[0] + 1 < high[0]) {
    parts.push_back(e.concat({digit(e, static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)),
                              e.repeat(digit(e), rest, rest)}));
  }
  return e.alternatives(std::move(parts));
}

// Whole numbers from low to high, neither of them negative.
ExprId naturals_between(Expressions& e, std::int64_t low, std::int64_t high) {
  std::vector<ExprId> parts;
  while (low <= high) {
    const std::string first = std::to_string(low);
    const std::int64_t last = std::min<std::int64_t>(high, std::stoll(std::string(first.size(), '9')));
    parts.push_back(digits_between(e, first, std::to_string(last)));
    low = last + 1;
  }
  return e.alternatives(std::move(parts));
}

}  // namespace

RuleId JsonText::rule(std::optional<RuleId>& slot, const char* name, bool nests) {
  slot = e_.add_rule(name, nests);
  return *slot;
}

ExprId JsonText::space() {
  if (!space_) {
    const RuleId id = rule(space_, "white space", false);
    e_.set_rule(
        id, e_.alternatives(
                {e_.literal(" "), e_.concat({e_.literal("\n"),
                                             e_.alternatives({e_.repeat(e_.literal(" "), 0, kMaxIndent),
                                                              e_.repeat(e_.literal("\t"), 1, kMaxTabs)})})}));
  }
  return e_.optional(e_.call(*space_));
}

ExprId JsonText::string() {
  if (!string_) {
    const RuleId id = rule(string_, "string", false);
    const auto hex = [&] { return e_.characters(CharSet::of('0', '9').add('a', 'f').add('A', 'F')); };
    const auto in = [&](std::string_view letters) {
      CharSet set;
      for (const char c : letters) set.add(static_cast<char32_t>(c), static_cast<char32_t>(c));
      return e_.characters(set);
    };
    // Surrogates only in pairs.
    const ExprId single = e_.alternatives({e_.concat({in("0123456789abcefABCEF"), hex(), hex(), hex()}),
                                           e_.concat({in("dD"), in("01234567"), hex(), hex()})});
    const ExprId pair = e_.concat(
        {in("dD"), in("89abAB"), hex(), hex(), e_.literal("\\u"), in("dD"), in("cdefCDEF"), hex(), hex()});
    const ExprId escaped = e_.concat(
        {e_.literal("\\"),
         e_.alternatives({in("\"\\/bfnrt"), e_.concat({e_.literal("u"), e_.alternatives({single, pair})})})});
    const ExprId character = e_.alternatives({e_.characters(unescaped()), escaped});
    e_.set_rule(id, e_.concat({e_.literal("\""), e_.repeat(character, 0, kUnbounded), e_.literal("\"")}));
  }
  return e_.call(*string_);
}

ExprId JsonText::string(std::uint32_t min, std::uint32_t max) {
  CharSet letters;
  for (const char c : std::string_view("\"\\/bfnrt")) {
    letters.add(static_cast<char32_t>(c), static_cast<char32_t>(c));
  }
  const ExprId character =
      e_.alternatives({e_.characters(unescaped()), e_.concat({e_.literal("\\"), e_.characters(letters)})});
  return e_.concat({e_.literal("\""), e_.repeat(character, min, max), e_.literal("\"")});
}

ExprId JsonText::number() {
  if (!number_) {
    const RuleId id = rule(number_, "number", false);
    const ExprId whole =
        e_.alternatives({e_.literal("0"), e_.concat({digit(e_, '1', '9'), e_.repeat(digit(e_), 0, 17)})});
    const ExprId fraction = e_.concat({e_.literal("."), e_.repeat(digit(e_), 1, 16)});
    const ExprId exponent = e_.concat({e_.characters(CharSet::of('e', 'e').add('E', 'E')),
                                       e_.optional(e_.characters(CharSet::of('+', '+').add('-', '-'))),
                                       e_.repeat(digit(e_), 1, 2)});
    e_.set_rule(
        id, e_.concat({e_.optional(e_.literal("-")), whole, e_.optional(fraction), e_.optional(exponent)}));
  }
  return e_.call(*number_);
}

ExprId JsonText::integer() {
  if (!integer_) {
    const RuleId id = rule(integer_, "integer", false);
    e_.set_rule(id, integer(-kMaxInteger, kMaxInteger));
  }
  return e_.call(*integer_);
}

ExprId JsonText::integer(std::int64_t min, std::int64_t max) {
  min = std::max(min, -kMaxInteger);
  max = std::min(max, kMaxInteger);
  if (min > max) return e_.nothing();
  std::vector<ExprId> parts;
  if (min < 0) {
    parts.push_back(
        e_.concat({e_.literal("-"), naturals_between(e_, std::max<std::int64_t>(1, -max), -min)}));
  }
  if (max >= 0) parts.push_back(naturals_between(e_, std::max<std::int64_t>(0, min), max));
  return e_.alternatives(std::move(parts));
}

ExprId JsonText::boolean() {
  return e_.alternatives({e_.literal("true"), e_.literal("false")});
}

ExprId JsonText::any() {
  return e_.alternatives({object(), array(), string(), number(), boolean(), null()});
}

ExprId JsonText::object() {
  if (!object_) {
    const RuleId id = rule(object_, "object", true);
    e_.set_rule(id, object_of({}, {}, member(string(), any()), true));
  }
  return e_.call(*object_);
}

ExprId JsonText::array() {
  if (!array_) {
    const RuleId id = rule(array_, "array", true);
    e_.set_rule(id, array_of({}, any(), 0, kUnbounded));
  }
  return e_.call(*array_);
}

ExprId JsonText::value(const OrderedJson& value) {
  if (value.is_object()) {
    std::vector<ExprId> members;
    for (const auto& [key, inside] : value.items()) members.push_back(member(name(key), this->value(inside)));
    std::vector<bool> required(members.size(), true);
    if (members.empty()) return e_.literal("{}");
    return object_of(members, std::move(required), e_.nothing(), false);
  }
  if (value.is_array()) {
    std::vector<ExprId> items;
    for (const auto& item : value) items.push_back(this->value(item));
    const auto count = static_cast<std::uint32_t>(items.size());
    return array_of(items, e_.nothing(), count, count);
  }
  return e_.literal(value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

ExprId JsonText::member(ExprId name, ExprId value) {
  return e_.concat({name, e_.literal(":"), e_.optional(e_.literal(" ")), value});
}

ExprId JsonText::name(std::string_view text) {
  return value(OrderedJson(std::string(text)));
}

ExprId JsonText::other_name(const std::vector<std::string_view>& names) {
  if (names.empty()) return string();
  if (!name_rest_) {
    const RuleId id = rule(name_rest_, "name", false);
    e_.set_rule(id, e_.concat({e_.repeat(e_.characters(unescaped()), 0, kUnbounded), e_.literal("\"")}));
  }
  // The names as a tree; a name that leaves it anywhere is another one.
  struct Node {
    std::map<char32_t, Node> next;
    bool whole = false;
  };
  Node root;
  for (const auto text : names) {
    const auto characters = utf8_characters(text);
    if (!characters) continue;
    Node* node = &root;
    for (const char32_t c : *characters) node = &node->next[c];
    node->whole = true;
  }
  const auto write = [&](const auto& self, const Node& node) -> ExprId {
    std::vector<ExprId> parts;
    CharSet others = unescaped();
    CharSet known;
    for (const auto& [c, next] : node.next) {
      known.add(c, c);
      // A character that has to be escaped is not in any other name.
      if (!others.contains(c)) continue;
      parts.push_back(e_.concat({e_.characters(CharSet::of(c, c)), self(self, next)}));
    }
    parts.push_back(e_.concat({e_.characters(others.without(known)), e_.call(*name_rest_)}));
    if (!node.whole) parts.push_back(e_.literal("\""));
    return e_.alternatives(std::move(parts));
  };
  return e_.concat({e_.literal("\""), write(write, root)});
}

ExprId JsonText::object_of(const std::vector<ExprId>& members, std::vector<bool> required, ExprId more,
                           bool may_be_empty) {
  const ExprId comma = e_.concat({e_.literal(","), space()});
  std::vector<ExprId> parts{
      e_.concat({space(), e_.members(comma, members, std::move(required), more), space(), e_.literal("}")})};
  if (may_be_empty) parts.push_back(e_.literal("}"));
  return e_.concat({e_.literal("{"), e_.alternatives(std::move(parts))});
}

ExprId JsonText::array_of(const std::vector<ExprId>& prefix, ExprId item, std::uint32_t min,
                          std::uint32_t max) {
  const ExprId comma = e_.concat({e_.literal(","), space()});
  // Each count needs a copy of the item; of a large one, of the call of it.
  constexpr std::uint64_t kLarge = 32;
  if (e_.node(item).size > kLarge) {
    const RuleId id = e_.add_rule("items", false);
    e_.set_rule(id, item);
    item = e_.call(id);
  }
  const auto fixed = static_cast<std::uint32_t>(std::min<std::size_t>(prefix.size(), max));
  // From the end: what may follow the first i items.
  ExprId rest = e_.empty();
  const std::uint32_t least = std::max(min, fixed);
  if (fixed == 0) {
    if (max != 0) {
      const ExprId more = e_.repeat(e_.concat({comma, item}), min == 0 ? 0 : min - 1,
                                    max == kUnbounded ? kUnbounded : max - 1);
      rest = e_.concat({space(), item, more, space()});
    }
  } else {
    rest = e_.repeat(e_.concat({comma, item}), least - fixed, max == kUnbounded ? kUnbounded : max - fixed);
    for (std::uint32_t i = fixed; i-- > 0;) {
      if (i + 1 < fixed && i + 1 >= min) rest = e_.optional(rest);
      rest = e_.concat({i == 0 ? space() : comma, prefix[i], rest});
    }
    rest = e_.concat({rest, space()});
  }
  std::vector<ExprId> parts{e_.concat({rest, e_.literal("]")})};
  if (min == 0) parts.push_back(e_.literal("]"));
  return e_.concat({e_.literal("["), e_.alternatives(std::move(parts))});
}

}  // namespace snug::grammar
