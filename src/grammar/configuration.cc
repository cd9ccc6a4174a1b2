#include "grammar/configuration.h"

#include <algorithm>
#include <unordered_map>

#include "grammar/limits.h"

namespace snug::grammar {
namespace {

std::uint32_t depth_of(const Frame* frame) {
  return frame == nullptr ? 0 : frame->depth;
}

bool same_stack(const Frame* a, const Frame* b) {
  for (; a != b; a = a->below, b = b->below) {
    if (a == nullptr || b == nullptr || a->next != b->next || a->depth != b->depth) return false;
  }
  return true;
}

}  // namespace

void Stepper::begin(const Reading& reading, Configuration& out) {
  out.clear();
  enter(reading, out);
  finish(out);
}

void Stepper::step(const Configuration& from, std::uint8_t byte, Configuration& out) {
  out.clear();
  for (const Reading& reading : from.readings) {
    const StateId next = automaton_->next(reading.state, byte);
    if (next != kDead) enter({next, reading.frame}, out);
  }
  finish(out);
}

// Depth first, so that what is dropped at the limit is whole readings and never the rest of one.
void Stepper::enter(const Reading& reading, Configuration& out) {
  const std::uint32_t depth = depth_of(reading.frame);
  const std::uint32_t needed = depth + automaton_->depth_needed(reading.state);
  if (needed > max_depth_ || out.readings.size() >= kMaxReadings) return;
  for (const Reading& other : out.readings) {
    if (other.state == reading.state && same_stack(other.frame, reading.frame)) return;
  }
  deepest_ = std::max(deepest_, needed);
  out.readings.push_back(reading);
  if (automaton_->accepting(reading.state)) {
    if (reading.frame == nullptr) {
      out.ended = true;
    } else {
      enter({reading.frame->next, reading.frame->below}, out);
    }
  }
  for (const auto& call : automaton_->calls(reading.state)) {
    if (depth + automaton_->depth_needed(call.next) > max_depth_ ||
        depth + call.depth + automaton_->depth_needed(call.start) > max_depth_) {
      continue;
    }
    frames_.push_back({call.next, depth + call.depth, reading.frame});
    enter({call.start, &frames_.back()}, out);
  }
}

void Stepper::finish(Configuration& out) {
  std::erase_if(out.readings, [&](const Reading& reading) { return !automaton_->reads(reading.state); });
}

void Stepper::compact(Configuration& kept) {
  std::deque<Frame> old;
  old.swap(frames_);
  std::unordered_map<const Frame*, const Frame*> moved{{nullptr, nullptr}};
  std::vector<const Frame*> path;
  for (Reading& reading : kept.readings) {
    for (const Frame* frame = reading.frame; !moved.contains(frame); frame = frame->below)
      path.push_back(frame);
    for (; !path.empty(); path.pop_back()) {
      Frame frame = *path.back();
      frame.below = moved.at(frame.below);
      frames_.push_back(frame);
      moved.emplace(path.back(), &frames_.back());
    }
    reading.frame = moved.at(reading.frame);
  }
}

}  // namespace snug::grammar
