// Masks by walking the tree of tokens with the automaton.
//
// What a token does inside the rule that a state belongs to does not depend on the stack below (Dong et al.
// 2024, XGrammar). So one walk over the whole tree is done for each state, once; it also notes at which
// nodes the rule can end. A configuration's mask is that of its states, and walks from those nodes with the
// stacks it really has. Where any plain characters may come, the tokens made of these are known beforehand,
// and only the others are walked.
#include <algorithm>
#include <atomic>

#include "grammar/compiled.h"
#include "grammar/configuration.h"
#include "grammar/grammar.h"
#include "grammar/limits.h"
#include "grammar/vocabulary.h"

namespace snug::grammar {
namespace {

class Walk {
 public:
  Walk(const Automaton& automaton, const TokenTree& tree, int longest, std::uint32_t max_depth,
       std::vector<std::uint64_t>& words)
      : automaton_(automaton),
        tree_(tree),
        stepper_(automaton, max_depth),
        words_(words),
        levels_(static_cast<std::size_t>(longest) + 1) {}

  void start(const Reading& reading) {
    stepper_.release(0);
    stepper_.begin(reading, levels_[0].configuration);
    settle(levels_[0]);
  }

  // Sets the bit of each token below `root` whose bytes after it can be read. `ends`: where the bottom rule
  // may end and tokens go on.
  void run(std::uint32_t root, std::vector<std::uint32_t>* ends) {
    const auto& nodes = tree_.nodes;
    const std::uint32_t end = nodes[root].end;
    const std::size_t above = nodes[root].depth;
    for (std::uint32_t i = root + 1; i < end;) {
      const auto& node = nodes[i];
      const std::size_t depth = node.depth - above;
      const Level& from = levels_[depth - 1];
      Level& to = levels_[depth];
      if (from.single.state != kDead) {
        const StateId next = automaton_.next(from.single.state, node.byte);
        if (next == kDead) {
          i = node.end;
          continue;
        }
        if (automaton_.plain(next)) {
          to.single = {next, from.single.frame};
          to.mark = from.mark;
          allow(node, nodes[i + 1]);
          ++i;
          continue;
        }
        stepper_.release(from.mark);
        stepper_.begin({next, from.single.frame}, to.configuration);
      } else {
        stepper_.release(from.mark);
        stepper_.step(from.configuration, node.byte, to.configuration);
      }
      if (to.configuration.ended || !to.configuration.readings.empty()) allow(node, nodes[i + 1]);
      if (to.configuration.ended && ends != nullptr && node.end > i + 1) ends->push_back(i);
      settle(to);
      i = to.configuration.readings.empty() ? node.end : i + 1;
    }
  }
  std::uint32_t deepest() const { return stepper_.deepest(); }

 private:
  struct Level {
    Reading single{kDead, nullptr};  // the only reading, or no state
    Configuration configuration;
    std::size_t mark = 0;
  };

  void settle(Level& level) {
    const auto& readings = level.configuration.readings;
    level.single = readings.size() == 1 ? readings[0] : Reading{kDead, nullptr};
    level.mark = stepper_.mark();
  }
  void allow(const TokenTree::Node& node, const TokenTree::Node& after) {
    for (std::uint32_t t = node.tokens; t < after.tokens; ++t) {
      const auto token = static_cast<std::uint32_t>(tree_.tokens[t]);
      words_[token / 64] |= std::uint64_t{1} << (token % 64);
    }
  }

  const Automaton& automaton_;
  const TokenTree& tree_;
  Stepper stepper_;
  std::vector<std::uint64_t>& words_;
  std::vector<Level> levels_;
};

}  // namespace

Grammar::Grammar(Automaton made) : automaton(std::move(made)) {
  static std::atomic<std::uint64_t> count{0};
  id = ++count;
}

struct TokenMatcher::State {
  State(GrammarPtr g, std::shared_ptr<const Vocabulary> v)
      : grammar(std::move(g)), vocabulary(std::move(v)), stepper(grammar->automaton, kMaxDepth) {
    stepper.begin({grammar->automaton.start(), nullptr}, now);
  }

  void begin_key() {
    key.assign({static_cast<std::uint32_t>(grammar->id), static_cast<std::uint32_t>(grammar->id >> 32)});
  }

  // What tokens do from the state inside its rule.
  MaskPtr mask_of(StateId state) {
    begin_key();
    key.push_back(kDead);
    key.push_back(state);
    if (auto known = vocabulary->masks().find(key)) return known;
    auto made = std::make_shared<Mask>();
    if (grammar->automaton.plain_run(state) == kMaxPlainRun) {
      made->words = vocabulary->plain();
      made->tree = &vocabulary->rest();
    } else {
      made->words.resize(vocabulary->words());
      made->tree = &vocabulary->all();
    }
    Walk walk(grammar->automaton, *made->tree, vocabulary->longest(), kDead, made->words);
    walk.start({state, nullptr});
    walk.run(0, &made->ends);
    made->deepest = walk.deepest();
    vocabulary->masks().add(key, made);
    return made;
  }

  MaskPtr make_mask() {
    auto made = std::make_shared<Mask>();
    for (const Reading& reading : now.readings) {
      const MaskPtr inside = mask_of(reading.state);
      const Frame* frame = reading.frame;
      const bool fits = (frame == nullptr ? 0 : frame->depth) + inside->deepest <= kMaxDepth;
      const bool leaves = frame != nullptr && !inside->ends.empty();
      if (fits && !leaves && now.readings.size() == 1) return inside;
      made->words.resize(vocabulary->words());
      Walk walk(grammar->automaton, fits ? *inside->tree : vocabulary->all(), vocabulary->longest(),
                kMaxDepth, made->words);
      if (!fits) {
        walk.start(reading);
        walk.run(0, nullptr);
        continue;
      }
      for (std::size_t i = 0; i < made->words.size(); ++i) made->words[i] |= inside->words[i];
      if (!leaves) continue;
      walk.start({frame->next, frame->below});
      for (const auto node : inside->ends) walk.run(node, nullptr);
    }
    made->words.resize(vocabulary->words());
    return made;
  }

  const Mask& current() {
    if (mask != nullptr) return *mask;
    const auto write_key = [&] {
      begin_key();
      for (const Reading& reading : now.readings) {
        key.push_back(reading.state);
        for (const Frame* frame = reading.frame; frame != nullptr; frame = frame->below) {
          key.push_back(frame->next);
          key.push_back(frame->depth);
        }
        key.push_back(kDead);
      }
    };
    write_key();
    mask = vocabulary->masks().find(key);
    if (mask == nullptr) {
      mask = make_mask();
      write_key();
      vocabulary->masks().add(key, mask);
    }
    return *mask;
  }

  GrammarPtr grammar;
  std::shared_ptr<const Vocabulary> vocabulary;
  Stepper stepper;
  Configuration now, before;
  MaskPtr mask;
  MaskCache::Key key;
};

TokenMatcher::TokenMatcher(GrammarPtr grammar, std::shared_ptr<const Vocabulary> vocabulary)
    : state_(std::make_unique<State>(std::move(grammar), std::move(vocabulary))) {}
TokenMatcher::TokenMatcher(TokenMatcher&&) noexcept = default;
TokenMatcher& TokenMatcher::operator=(TokenMatcher&&) noexcept = default;
TokenMatcher::~TokenMatcher() = default;

std::span<const std::uint64_t> TokenMatcher::allowed() {
  return state_->current().words;
}

bool TokenMatcher::allows(std::int32_t token) {
  if (token < 0 || static_cast<std::size_t>(token) >= state_->vocabulary->size()) return false;
  const auto index = static_cast<std::size_t>(token);
  return (state_->current().words[index / 64] >> (index % 64) & 1) != 0;
}

void TokenMatcher::accept(std::int32_t token) {
  State& s = *state_;
  s.mask.reset();
  for (const char byte : s.vocabulary->bytes(token)) {
    s.before.readings.swap(s.now.readings);
    s.stepper.step(s.before, static_cast<std::uint8_t>(byte), s.now);
  }
  // Frames of calls that have ended are dropped once they are many.
  if (s.stepper.mark() > 1024) s.stepper.compact(s.now);
}

bool TokenMatcher::may_end() const {
  return state_->now.ended;
}

bool TokenMatcher::must_end() {
  return state_->now.readings.empty();
}

}  // namespace snug::grammar
