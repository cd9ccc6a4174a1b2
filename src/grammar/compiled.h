// What stands behind a GrammarPtr.
#pragma once

#include <cstdint>

#include "grammar/automaton.h"
#include "grammar/grammar.h"

namespace snug::grammar {

class Grammar {
 public:
  explicit Grammar(Automaton automaton);
  const Automaton automaton;
  std::uint64_t id;  // unlike that of every other grammar of the process; keys of masks begin with it
};

}  // namespace snug::grammar
