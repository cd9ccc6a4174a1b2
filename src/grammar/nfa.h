// The nondeterministic automaton of an expression and the rules it calls (Thompson 1968).
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "grammar/expression.h"

namespace snug::grammar {

struct Nfa {
  enum class Kind : std::uint8_t { dead, final, split, byte, call };
  struct State {
    Kind kind = Kind::dead;
    std::uint8_t first = 0, last = 0;
    std::uint32_t rule = 0;  // call
    // byte: the next; call: the return; split: both of them
    std::uint32_t out = 0, other = 0;
  };
  static constexpr std::uint32_t kFinal = 0;  // the end of every rule

  std::vector<State> states;
  std::vector<std::uint32_t> rule_start;
  std::uint32_t start = 0;

  // Usage errors: too many states; a rule that calls itself before it reads anything.
  static Result<Nfa> make(const Expressions& expressions, ExprId root);
};

}  // namespace snug::grammar
