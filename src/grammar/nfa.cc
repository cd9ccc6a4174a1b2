#include "grammar/nfa.h"

#include <fmt/format.h>

#include <algorithm>

#include "grammar/limits.h"

namespace snug::grammar {
namespace {

using Kind = Expressions::Kind;

// Which rules may be called before anything is read, and whether the expression may read nothing. Values
// never are empty, so a rule that is called counts as reading something.
bool first_calls(const Expressions& expressions, ExprId id, std::vector<RuleId>& out) {
  const auto& node = expressions.node(id);
  switch (node.kind) {
    case Kind::nothing:
    case Kind::characters:
      return false;
    case Kind::literal:
      return node.text.empty();
    case Kind::call:
      out.push_back(node.min);
      return false;
    case Kind::concat:
      for (const ExprId child : node.children) {
        if (!first_calls(expressions, child, out)) return false;
      }
      return true;
    case Kind::alternatives: {
      bool empty = false;
      for (const ExprId child : node.children) empty |= first_calls(expressions, child, out);
      return empty;
    }
    case Kind::repeat:
      return first_calls(expressions, node.children[0], out) || node.min == 0;
    case Kind::members:
      for (std::size_t i = 1; i < node.children.size(); ++i) first_calls(expressions, node.children[i], out);
      return false;
  }
  return false;
}

Status check_left_recursion(const Expressions& expressions) {
  enum class Mark : std::uint8_t { fresh, open, done };
  std::vector<Mark> marks(expressions.rule_count(), Mark::fresh);
  struct Open {
    RuleId rule;
    std::vector<RuleId> calls;
    std::size_t next = 0;
  };
  std::vector<Open> path;
  for (RuleId root = 0; root < expressions.rule_count(); ++root) {
    RuleId enter = root;
    while (true) {
      if (marks[enter] == Mark::open) {
        return Error{ErrorCode::usage,
                     fmt::format("{} refers to itself with nothing in between", expressions.rule(enter).name),
                     "let it refer to itself only inside properties or items"};
      }
      if (marks[enter] == Mark::fresh) {
        marks[enter] = Mark::open;
        path.push_back({enter, {}});
        first_calls(expressions, expressions.rule(enter).body, path.back().calls);
      }
      while (!path.empty() && path.back().next == path.back().calls.size()) {
        marks[path.back().rule] = Mark::done;
        path.pop_back();
      }
      if (path.empty()) break;
      enter = path.back().calls[path.back().next++];
    }
  }
  return {};
}

class Emitter {
 public:
  explicit Emitter(const Expressions& expressions, Nfa& nfa) : expressions_(expressions), nfa_(nfa) {}

  // The state from which `id` is read and then `next` is reached. Built from the end to the beginning.
  std::uint32_t emit(ExprId id, std::uint32_t next) {
    const auto& node = expressions_.node(id);
    switch (node.kind) {
      case Kind::nothing:
        return add({});
      case Kind::literal:
        for (std::size_t i = node.text.size(); i-- > 0;) {
          const auto byte = static_cast<std::uint8_t>(node.text[i]);
          next = add({.kind = Nfa::Kind::byte, .first = byte, .last = byte, .out = next});
        }
        return next;
      case Kind::characters:
        return characters(node, next);
      case Kind::concat:
        for (std::size_t i = node.children.size(); i-- > 0;) next = emit(node.children[i], next);
        return next;
      case Kind::alternatives: {
        std::uint32_t start = emit(node.children.back(), next);
        for (std::size_t i = node.children.size() - 1; i-- > 0;) {
          start = split(emit(node.children[i], next), start);
        }
        return start;
      }
      case Kind::repeat:
        return repeat(node, next);
      case Kind::call:
        return add({.kind = Nfa::Kind::call, .rule = node.min, .out = next});
      case Kind::members:
        return members(node, next);
    }
    return next;
  }

 private:
  std::uint32_t add(Nfa::State state) {
    nfa_.states.push_back(state);
    return static_cast<std::uint32_t>(nfa_.states.size() - 1);
  }
  std::uint32_t split(std::uint32_t a, std::uint32_t b) {
    return add({.kind = Nfa::Kind::split, .out = a, .other = b});
  }

  // Sequences that end alike share their ends.
  std::uint32_t characters(const Expressions::Node& node, std::uint32_t next) {
    const std::size_t mine = nfa_.states.size();
    const auto shared = [&](std::uint8_t first, std::uint8_t last, std::uint32_t out) {
      for (std::size_t i = mine; i < nfa_.states.size(); ++i) {
        const auto& state = nfa_.states[i];
        if (state.kind == Nfa::Kind::byte && state.first == first && state.last == last && state.out == out) {
          return static_cast<std::uint32_t>(i);
        }
      }
      return add({.kind = Nfa::Kind::byte, .first = first, .last = last, .out = out});
    };
    // A class of many ranges has little in common; looking for it would take quadratic time.
    const bool share = node.sequences.size() <= 64;
    std::uint32_t start = 0;
    for (std::size_t s = 0; s < node.sequences.size(); ++s) {
      const auto& sequence = node.sequences[s];
      std::uint32_t state = next;
      for (int i = sequence.size; i-- > 0;) {
        state = share ? shared(sequence.first[i], sequence.last[i], state)
                      : add({.kind = Nfa::Kind::byte,
                             .first = sequence.first[i],
                             .last = sequence.last[i],
                             .out = state});
      }
      start = s == 0 ? state : split(state, start);
    }
    return start;
  }

  std::uint32_t repeat(const Expressions::Node& node, std::uint32_t next) {
    const ExprId part = node.children[0];
    std::uint32_t start = next;
    if (node.max == kUnbounded) {
      start = split(0, next);
      const std::uint32_t body = emit(part, start);
      nfa_.states[start].out = body;
    } else {
      for (std::uint32_t i = node.min; i < node.max; ++i) start = split(emit(part, start), next);
    }
    for (std::uint32_t i = 0; i < node.min; ++i) start = emit(part, start);
    return start;
  }

  // Before the i-th member there are two places: `key`, where a member must come, and `end` after a member,
  // where the text may stop if nothing more is required.
  std::uint32_t members(const Expressions::Node& node, std::uint32_t next) {
    const ExprId separator = node.children.front(), more = node.children.back();
    const std::size_t count = node.children.size() - 2;
    const std::uint32_t last = split(0, next);
    std::uint32_t key = emit(more, last);
    nfa_.states[last].out = emit(separator, key);
    std::uint32_t end = last;
    bool may_stop = true;
    for (std::size_t i = count; i-- > 0;) {
      const std::uint32_t member = emit(node.children[i + 1], end);
      may_stop = may_stop && !node.required[i];
      key = node.required[i] ? member : split(member, key);
      if (i > 0) {
        end = emit(separator, key);
        if (may_stop) end = split(end, next);
      }
    }
    return key;
  }

  const Expressions& expressions_;
  Nfa& nfa_;
};

}  // namespace

Result<Nfa> Nfa::make(const Expressions& expressions, ExprId root) {
  std::uint64_t size = expressions.node(root).size;
  for (RuleId rule = 0; rule < expressions.rule_count(); ++rule) {
    size += expressions.node(expressions.rule(rule).body).size;
  }
  if (size > kMaxNfaStates) {
    return Error{ErrorCode::usage,
                 fmt::format("it is too large: about {} states, the limit is {}", size, kMaxNfaStates),
                 "use smaller counts and fewer alternatives"};
  }
  SNUG_TRY(check_left_recursion(expressions));

  Nfa nfa;
  nfa.states.reserve(size + expressions.rule_count() + 2);
  nfa.states.push_back({.kind = Kind::final});
  Emitter emitter(expressions, nfa);
  for (RuleId rule = 0; rule < expressions.rule_count(); ++rule) {
    nfa.rule_start.push_back(emitter.emit(expressions.rule(rule).body, kFinal));
  }
  nfa.start = emitter.emit(root, kFinal);
  return nfa;
}

}  // namespace snug::grammar
