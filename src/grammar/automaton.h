// A language as a deterministic automaton over bytes that may call itself: plain states, and at some of
// them calls, which read a nested text and then go on elsewhere. Immutable once made.
//
// Subset construction (Rabin and Scott 1959) over a Thompson automaton, one for all rules: states that stand
// on the same stack are one subset, so only calls that return to different places stay apart.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/error.h"
#include "grammar/expression.h"

namespace snug::grammar {

using StateId = std::uint32_t;
inline constexpr StateId kDead = std::numeric_limits<StateId>::max();

// Plain characters are those that JSON writes as they are: all from U+0020 but quote and backslash. Inside
// strings and free text most tokens are made of them, so it pays to know where any of them may come.
inline constexpr int kMaxPlainRun = 16;

class Automaton {
 public:
  // The language of `root`. A usage error if it is empty, refers to itself without reading anything, or is
  // beyond the limits.
  static Result<Automaton> make(const Expressions& expressions, ExprId root);

  struct Call {
    StateId start, next;  // what to read, and where to go on after it
    std::uint32_t depth;  // how much nesting it adds: 0 or 1
  };
  StateId start() const { return start_; }
  std::size_t size() const { return states_.size(); }
  StateId next(StateId state, std::uint8_t byte) const {
    const State& s = states_[state];
    if (s.row != kNoRow) return rows_[s.row][byte];
    for (const Edge *edge = edges_.data() + s.edges, *end = edge + s.edge_count; edge != end; ++edge) {
      if (byte <= edge->last) return byte >= edge->first ? edge->to : kDead;
    }
    return kDead;
  }
  // Whether a step into the state needs nothing but the step: no call, no return, no nesting ahead.
  bool plain(StateId state) const { return states_[state].plain; }
  bool accepting(StateId state) const { return states_[state].accepting; }
  bool reads(StateId state) const { return states_[state].edge_count > 0; }
  std::span<const Call> calls(StateId state) const {
    return {calls_.data() + states_[state].calls, states_[state].call_count};
  }
  // How deep calls must nest at least, to get from the state to the end of its rule.
  std::uint32_t depth_needed(StateId state) const { return states_[state].depth_needed; }
  // How many plain characters (see below), whichever they are, can be read from the state inside its rule; up
  // to kMaxPlainRun.
  int plain_run(StateId state) const { return states_[state].plain_run; }
  std::size_t bytes() const;

 private:
  friend class Builder;
  static constexpr std::uint32_t kNoRow = std::numeric_limits<std::uint32_t>::max();
  struct Edge {
    std::uint8_t first, last;
    StateId to;
  };
  struct State {
    std::uint32_t edges = 0, calls = 0;  // where they begin
    std::uint32_t row = kNoRow;          // the same edges by byte, for states with many
    std::uint16_t edge_count = 0;
    bool accepting = false, plain = false;
    std::uint8_t plain_run = 0;
    std::uint32_t call_count = 0, depth_needed = 0;
  };
  std::vector<State> states_;
  std::vector<Edge> edges_;  // of one state: disjoint, ascending
  std::vector<Call> calls_;
  std::vector<std::array<StateId, 256>> rows_;
  StateId start_ = kDead;
};

}  // namespace snug::grammar
