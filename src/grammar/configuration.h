// Where a text stands in an automaton: the states it may be in, each on its stack of calls.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "grammar/automaton.h"

namespace snug::grammar {

// A call that is being read. Null is the bottom.
struct Frame {
  StateId next;         // where to go on after it
  std::uint32_t depth;  // nesting so far
  const Frame* below;
};

struct Reading {
  StateId state;
  const Frame* frame;
};

struct Configuration {
  std::vector<Reading> readings;  // all of them can read on
  bool ended = false;             // the text may end here
  void clear() {
    readings.clear();
    ended = false;
  }
};

// Makes configurations and owns their frames.
class Stepper {
 public:
  // Readings that would need more nesting than `max_depth` are left out, so each that stays can be completed.
  Stepper(const Automaton& automaton, std::uint32_t max_depth)
      : automaton_(&automaton), max_depth_(max_depth) {}

  // What a reading stands for, with calls entered and ends left.
  void begin(const Reading& reading, Configuration& out);
  void step(const Configuration& from, std::uint8_t byte, Configuration& out);

  // Frames made after mark() go when released to it.
  std::size_t mark() const { return frames_.size(); }
  void release(std::size_t mark) { frames_.resize(mark); }
  // Drops all frames that `kept` does not use.
  void compact(Configuration& kept);
  std::uint32_t deepest() const { return deepest_; }  // nesting entered and needed so far
  const Automaton& automaton() const { return *automaton_; }

 private:
  void enter(const Reading& reading, Configuration& out);
  void finish(Configuration& out);
  const Automaton* automaton_;
  std::uint32_t max_depth_, deepest_ = 0;
  std::deque<Frame> frames_;
};

}  // namespace snug::grammar
