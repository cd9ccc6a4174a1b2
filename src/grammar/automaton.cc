#include "grammar/automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>

#include "base/rng.h"
#include "grammar/limits.h"
#include "grammar/nfa.h"

namespace snug::grammar {
namespace {

constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();
// States with more edges than this get a row of 256, up to a number that keeps an automaton small.
constexpr std::size_t kEdgesOfRow = 4, kMaxRows = 512;

using Set = std::vector<std::uint32_t>;  // NFA states, ascending

struct SetHash {
  std::size_t operator()(const Set* set) const {
    std::uint64_t hash = set->size();
    for (const auto x : *set) hash = mix64(hash ^ x);
    return hash;
  }
};
struct SetEqual {
  bool operator()(const Set* a, const Set* b) const { return *a == *b; }
};

Error too_complex(std::string_view what, std::uint64_t limit) {
  return {ErrorCode::usage, fmt::format("it is too complex: {} {}", limit, what),
          "use smaller counts, fewer optional parts and fewer alternatives that begin alike"};
}

}  // namespace

class Builder {
 public:
  explicit Builder(const Nfa& nfa, const Expressions& expressions)
      : nfa_(nfa), expressions_(expressions), seen_(nfa.states.size(), 0) {}

  Result<Automaton> build() {
    automaton_.start_ = state_of({&nfa_.start, 1});
    for (StateId state = 0; state < sets_.size(); ++state) {
      read(state);
      call(state);
      if (sets_.size() > kMaxStates) return too_complex("states", kMaxStates);
      if (elements_ > kMaxSetElements) return too_complex("members of states", kMaxSetElements);
      if (steps_ > kMaxCompileSteps) return too_complex("steps", kMaxCompileSteps);
    }
    find_depths();
    if (automaton_.start_ == kDead || depth_[automaton_.start_] == kNever) {
      return Error{ErrorCode::usage, "no text of finite length can satisfy it",
                   "look for a false, an empty enum, contradicting limits, or a $ref that requires itself"};
    }
    if (depth_[automaton_.start_] > kMaxDepth) {
      return Error{ErrorCode::usage, fmt::format("every text nests deeper than {} levels", kMaxDepth),
                   "make it flatter"};
    }
    lay_out();
    find_plain_runs();
    return std::move(automaton_);
  }

 private:
  struct Raw {
    std::vector<Automaton::Edge> edges;
    std::vector<Automaton::Call> calls;
  };

  // The deterministic state of the given NFA states and all that splits lead to.
  StateId state_of(std::span<const std::uint32_t> from) {
    Set set;
    ++stamp_;
    pending_.assign(from.begin(), from.end());
    while (!pending_.empty()) {
      const std::uint32_t i = pending_.back();
      pending_.pop_back();
      if (seen_[i] == stamp_) continue;
      seen_[i] = stamp_;
      ++steps_;
      const auto& state = nfa_.states[i];
      if (state.kind == Nfa::Kind::split) {
        pending_.push_back(state.out);
        pending_.push_back(state.other);
      } else if (state.kind != Nfa::Kind::dead) {
        set.push_back(i);
      }
    }
    if (set.empty()) return kDead;
    std::sort(set.begin(), set.end());
    if (const auto it = ids_.find(&set); it != ids_.end()) return it->second;
    elements_ += set.size();
    const auto id = static_cast<StateId>(sets_.size());
    sets_.push_back(std::make_unique<Set>(std::move(set)));
    ids_.emplace(sets_.back().get(), id);
    raw_.emplace_back();
    return id;
  }

  void read(StateId state) {
    const Set& set = *sets_[state];
    // Cuts the bytes where an edge begins or ends, and collects the targets of each piece.
    std::array<bool, 257> cut{};
    bool any = false;
    for (const auto i : set) {
      const auto& from = nfa_.states[i];
      if (from.kind != Nfa::Kind::byte) continue;
      any = true;
      cut[from.first] = cut[from.last + 1] = true;
    }
    if (!any) return;
    std::array<std::uint16_t, 257> piece_of{};
    std::array<std::uint16_t, 257> begins{};
    std::uint16_t pieces = 0;
    for (int byte = 0; byte < 256; ++byte) {
      if (byte == 0 || cut[static_cast<std::size_t>(byte)])
        begins[pieces++] = static_cast<std::uint16_t>(byte);
      piece_of[static_cast<std::size_t>(byte)] = static_cast<std::uint16_t>(pieces - 1);
    }
    begins[pieces] = 256;
    if (targets_.size() < pieces) targets_.resize(pieces);
    for (const auto i : set) {
      const auto& from = nfa_.states[i];
      if (from.kind != Nfa::Kind::byte) continue;
      for (std::size_t p = piece_of[from.first]; p <= piece_of[from.last]; ++p) {
        targets_[p].push_back(from.out);
        ++steps_;
      }
    }
    for (std::size_t p = 0; p < pieces; ++p) {
      if (targets_[p].empty()) continue;
      const StateId to = state_of(targets_[p]);
      targets_[p].clear();
      if (to == kDead) continue;
      const auto first = static_cast<std::uint8_t>(begins[p]),
                 last = static_cast<std::uint8_t>(begins[p + 1] - 1);
      auto& edges = raw_[state].edges;
      if (!edges.empty() && edges.back().to == to && edges.back().last + 1 == first) {
        edges.back().last = last;
      } else {
        edges.push_back({first, last, to});
      }
    }
  }

  // Callees that return to the same place are read as one.
  void call(StateId state) {
    std::map<std::uint32_t, Set> returns;  // rule → where its calls go on
    for (const auto i : *sets_[state]) {
      const auto& from = nfa_.states[i];
      if (from.kind == Nfa::Kind::call) returns[from.rule].push_back(from.out);
    }
    std::map<std::pair<StateId, bool>, Set> callees;  // where to go on, whether it nests → starts
    for (const auto& [rule, places] : returns) {
      const StateId next = state_of(places);
      if (next == kDead) continue;
      callees[{next, expressions_.rule(rule).nests}].push_back(nfa_.rule_start[rule]);
    }
    for (const auto& [key, starts] : callees) {
      const StateId start = state_of(starts);
      if (start != kDead) raw_[state].calls.push_back({start, key.first, key.second ? 1u : 0u});
    }
  }

  bool accepting(StateId state) const { return sets_[state]->front() == Nfa::kFinal; }

  // Least nesting from each state to the end of its rule, by rounds of growing depth: all that can be done
  // with d levels is found before any state is given d + 1.
  void find_depths() {
    const std::size_t count = sets_.size();
    depth_.assign(count, kNever);
    std::vector<std::vector<StateId>> users(count);  // who to look at again when a state becomes known
    for (StateId state = 0; state < count; ++state) {
      for (const auto& edge : raw_[state].edges) users[edge.to].push_back(state);
      for (const auto& call : raw_[state].calls) {
        users[call.start].push_back(state);
        users[call.next].push_back(state);
      }
    }
    std::vector<std::vector<StateId>> known(1);  // by depth
    const auto set = [&](StateId state, std::uint32_t depth) {
      if (depth >= depth_[state]) return;
      depth_[state] = depth;
      if (known.size() <= depth) known.resize(depth + 1);
      known[depth].push_back(state);
    };
    for (StateId state = 0; state < count; ++state) {
      if (accepting(state)) set(state, 0);
    }
    for (std::size_t depth = 0; depth < known.size(); ++depth) {
      for (std::size_t i = 0; i < known[depth].size(); ++i) {
        if (depth_[known[depth][i]] != depth) continue;
        for (const StateId user : users[known[depth][i]]) {
          for (const auto& edge : raw_[user].edges) {
            if (depth_[edge.to] != kNever) set(user, depth_[edge.to]);
          }
          for (const auto& call : raw_[user].calls) {
            if (depth_[call.start] == kNever || depth_[call.next] == kNever) continue;
            set(user, std::max(depth_[call.start] + call.depth, depth_[call.next]));
          }
        }
      }
    }
  }

  void lay_out() {
    for (StateId state = 0; state < sets_.size(); ++state) {
      auto& raw = raw_[state];
      Automaton::State out;
      out.edges = static_cast<std::uint32_t>(automaton_.edges_.size());
      out.calls = static_cast<std::uint32_t>(automaton_.calls_.size());
      for (const auto& edge : raw.edges) {
        if (depth_[edge.to] != kNever) automaton_.edges_.push_back(edge);
      }
      for (const auto& call : raw.calls) {
        if (depth_[call.start] != kNever && depth_[call.next] != kNever) automaton_.calls_.push_back(call);
      }
      out.edge_count = static_cast<std::uint16_t>(automaton_.edges_.size() - out.edges);
      out.call_count = static_cast<std::uint32_t>(automaton_.calls_.size() - out.calls);
      out.accepting = accepting(state);
      out.depth_needed = depth_[state] == kNever ? 0 : depth_[state];
      out.plain = !out.accepting && out.call_count == 0 && out.depth_needed == 0;
      if (out.edge_count > kEdgesOfRow && automaton_.rows_.size() < kMaxRows) {
        out.row = static_cast<std::uint32_t>(automaton_.rows_.size());
        auto& row = automaton_.rows_.emplace_back();
        row.fill(kDead);
        for (std::size_t i = out.edges; i < automaton_.edges_.size(); ++i) {
          const auto& edge = automaton_.edges_[i];
          for (int byte = edge.first; byte <= edge.last; ++byte)
            row[static_cast<std::size_t>(byte)] = edge.to;
        }
      }
      automaton_.states_.push_back(out);
      raw = {};
    }
    automaton_.edges_.shrink_to_fit();
    automaton_.calls_.shrink_to_fit();
    automaton_.rows_.shrink_to_fit();
  }

  // Adds where `bytes` lead from the states; false if one of them leads nowhere or into nesting.
  bool follow(const std::vector<StateId>& from, std::uint8_t first, std::uint8_t last,
              std::vector<StateId>& to) const {
    for (const StateId state : from) {
      const auto& s = automaton_.states_[state];
      int next = first;
      for (std::size_t i = s.edges; i < s.edges + s.edge_count && next <= last; ++i) {
        const auto& edge = automaton_.edges_[i];
        if (edge.last < next) continue;
        if (edge.first > next || automaton_.states_[edge.to].depth_needed > 0) return false;
        if (std::find(to.begin(), to.end(), edge.to) == to.end()) to.push_back(edge.to);
        next = edge.last + 1;
      }
      if (next <= last) return false;
    }
    return true;
  }

  // Where any plain character leads from a state; nothing if one cannot come.
  std::vector<StateId> after_plain(StateId state) const {
    std::vector<StateId> out, last, third, second;
    std::vector<StateId> e0, ed, f0, f4;
    const std::vector<StateId> from{state};
    const bool all =
        follow(from, 0x20, 0x21, out) && follow(from, 0x23, 0x5B, out) && follow(from, 0x5D, 0x7F, out) &&
        // UTF-8: the lead bytes whose second byte is restricted, and the others.
        follow(from, 0xF0, 0xF0, f0) && follow(from, 0xF1, 0xF3, second) && follow(from, 0xF4, 0xF4, f4) &&
        follow(from, 0xE0, 0xE0, e0) && follow(from, 0xE1, 0xEC, third) && follow(from, 0xED, 0xED, ed) &&
        follow(from, 0xEE, 0xEF, third) && follow(from, 0xC2, 0xDF, last) && follow(f0, 0x90, 0xBF, third) &&
        follow(second, 0x80, 0xBF, third) && follow(f4, 0x80, 0x8F, third) && follow(e0, 0xA0, 0xBF, last) &&
        follow(third, 0x80, 0xBF, last) && follow(ed, 0x80, 0x9F, last) && follow(last, 0x80, 0xBF, out);
    return all ? out : std::vector<StateId>();
  }

  void find_plain_runs() {
    auto& states = automaton_.states_;
    std::vector<std::pair<StateId, std::vector<StateId>>> able;
    for (StateId state = 0; state < states.size(); ++state) {
      auto next = after_plain(state);
      if (next.empty()) continue;
      states[state].plain_run = kMaxPlainRun;
      able.emplace_back(state, std::move(next));
    }
    for (bool changed = true; changed;) {
      changed = false;
      // Backwards: of counted repeats the later states mostly have the higher numbers.
      for (std::size_t i = able.size(); i-- > 0;) {
        auto& run = states[able[i].first].plain_run;
        std::uint8_t least = kMaxPlainRun;
        for (const StateId next : able[i].second) {
          least = std::min<std::uint8_t>(least, static_cast<std::uint8_t>(states[next].plain_run + 1));
        }
        changed |= least < run;
        run = std::min(run, least);
      }
    }
  }

  const Nfa& nfa_;
  const Expressions& expressions_;
  Automaton automaton_;
  std::vector<std::unique_ptr<Set>> sets_;
  std::unordered_map<const Set*, StateId, SetHash, SetEqual> ids_;
  std::vector<Raw> raw_;
  std::vector<std::uint32_t> depth_;
  // Work space of state_of and read.
  std::vector<std::uint32_t> seen_, pending_;
  std::vector<Set> targets_;
  std::uint32_t stamp_ = 0;
  std::uint64_t steps_ = 0, elements_ = 0;
};

Result<Automaton> Automaton::make(const Expressions& expressions, ExprId root) {
  SNUG_ASSIGN(const Nfa nfa, Nfa::make(expressions, root));
  return Builder(nfa, expressions).build();
}

std::size_t Automaton::bytes() const {
  return states_.size() * sizeof(State) + edges_.size() * sizeof(Edge) + calls_.size() * sizeof(Call) +
         rows_.size() * sizeof(rows_[0]);
}

}  // namespace snug::grammar
