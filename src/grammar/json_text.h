// The parts of JSON texts (RFC 8259) as expressions.
//
// White space is as people and models write it: after an opening bracket, after a comma and before a closing
// bracket one space, or one newline with up to kMaxIndent spaces or kMaxTabs tabs; after a colon one space.
// Nothing elsewhere, so no text can go on with white space for ever.
//
// Numbers have up to 18 digits before the point, 16 after it and 2 in the exponent, so that readers of
// 64-bit integers and of doubles can take them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "grammar/expression.h"

namespace snug::grammar {

inline constexpr std::uint32_t kMaxIndent = 64, kMaxTabs = 16;
inline constexpr std::int64_t kMaxInteger = 999'999'999'999'999'999;

class JsonText {
 public:
  explicit JsonText(Expressions& expressions) : e_(expressions) {}

  ExprId space();  // or none
  ExprId string();
  // Between `min` and `max` characters. Escapes are the short ones: \uXXXX would make the automaton many
  // times larger and is never needed but for control characters.
  ExprId string(std::uint32_t min, std::uint32_t max);
  ExprId number();
  ExprId integer();
  ExprId integer(std::int64_t min, std::int64_t max);
  ExprId boolean();
  ExprId null() { return e_.literal("null"); }
  ExprId any();     // any value
  ExprId object();  // any object
  ExprId array();   // any array
  // Exactly this value, however it is spaced.
  ExprId value(const OrderedJson& value);

  // "name": value
  ExprId member(ExprId name, ExprId value);
  ExprId name(std::string_view text);
  // A name that is none of these, written without escapes.
  ExprId other_name(const std::vector<std::string_view>& names);
  // An object of Expressions::members; `may_be_empty`: {} too.
  ExprId object_of(const std::vector<ExprId>& members, std::vector<bool> required, ExprId more,
                   bool may_be_empty);
  // An array that begins with `prefix`, of which the first `min` items must be there, then up to `max` in all
  // of `item`.
  ExprId array_of(const std::vector<ExprId>& prefix, ExprId item, std::uint32_t min, std::uint32_t max);

 private:
  RuleId rule(std::optional<RuleId>& slot, const char* name, bool nests);
  Expressions& e_;
  std::optional<RuleId> space_, string_, number_, integer_, object_, array_, name_rest_;
};

}  // namespace snug::grammar
