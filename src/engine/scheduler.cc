#include "engine/scheduler.h"

#include <algorithm>

namespace snug::engine {

std::vector<Scheduled> Scheduler::next() {
  std::vector<Scheduled> out;
  std::int64_t budget = limits_.max_num_batched_tokens;
  // By index: growing a sequence may take pages from (and remove) a younger one behind it.
  for (std::size_t i = 0; i < running_.size() && budget > 0; ++i)
    budget -= schedule(*running_[i], budget, out);
  while (budget > 0 && newcomer_fits()) {
    Sequence& sequence = *waiting_.front();
    const std::int64_t tokens = std::min(sequence.length() - sequence.computed, budget);
    if (!sequence.pages.ensure_capacity(tokens)) break;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    out.push_back({&sequence, tokens, tokens == sequence.length()});
    budget -= tokens;
  }
  return out;
}

bool Scheduler::newcomer_fits() const {
  return !waiting_.empty() && std::ssize(running_) < limits_.max_num_seqs &&
         kv::blocks_for(waiting_.front()->length(), limits_.block_size) <= pool_->free_blocks();
}

std::vector<Scheduled> Scheduler::ahead() {
  if (newcomer_fits()) return {};
  for (const auto& s : running_) {
    if (s->computed < s->length() || s->length() + 1 >= s->longest) return {};
  }
  std::vector<Scheduled> out;
  for (const auto& s : running_) {
    if (!s->pages.ensure_capacity(s->computed + 1)) return {};
    out.push_back({s.get(), 1, true});
  }
  return out;
}

std::int64_t Scheduler::schedule(Sequence& sequence, std::int64_t budget, std::vector<Scheduled>& out) {
  const std::int64_t tokens = std::min(sequence.length() - sequence.computed, budget);
  while (!sequence.pages.ensure_capacity(sequence.computed + tokens)) {
    // Preempt the youngest; its tokens are kept and computed again when there is room.
    auto youngest = std::move(running_.back());
    running_.pop_back();
    const bool gave_up_itself = youngest.get() == &sequence;
    youngest->pages.clear();
    youngest->computed = 0;
    waiting_.push_front(std::move(youngest));
    if (gave_up_itself) return 0;
  }
  out.push_back({&sequence, tokens, sequence.computed + tokens == sequence.length()});
  return tokens;
}

bool Scheduler::remove(RequestId id) {
  const auto is_it = [id](const std::unique_ptr<Sequence>& s) { return s->id == id; };
  if (const auto it = std::find_if(running_.begin(), running_.end(), is_it); it != running_.end()) {
    running_.erase(it);
    return true;
  }
  if (const auto it = std::find_if(waiting_.begin(), waiting_.end(), is_it); it != waiting_.end()) {
    waiting_.erase(it);
    return true;
  }
  return false;
}

}  // namespace snug::engine
