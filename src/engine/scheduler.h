// Which sequences run in the next step, and how many tokens of each. Host code, no model, no clock.
//
// Policy: running sequences first, in order of arrival: one token for those that decode, a chunk for those
// whose prompt is not done; then waiting ones while there are places, tokens and pages. Where pages run out
// the youngest running sequence gives its pages back and waits to be computed again.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/sequence.h"
#include "kv/block_pool.h"

namespace snug::engine {

struct SchedulerLimits {
  std::int64_t max_num_seqs = 1;
  std::int64_t max_num_batched_tokens = 512;
  int block_size = 32;
};

struct Scheduled {
  Sequence* sequence = nullptr;
  std::int64_t tokens = 0;  // from sequence->computed on
  bool to_end = false;      // with these it is computed to its end, and its next token follows
};

class Scheduler {
 public:
  Scheduler(SchedulerLimits limits, kv::BlockPool& pool) : limits_(limits), pool_(&pool) {}

  void add(std::unique_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }
  // Empty when nothing is left to do. Pages for the scheduled tokens are taken.
  std::vector<Scheduled> next();
  // The step after one whose tokens are not known yet: one token of each sequence, the one that step brings.
  // Empty where it may be another step: a sequence's prompt goes on, a sequence ends with that token or needs
  // pages of another, or a newcomer could start.
  std::vector<Scheduled> ahead();
  // Takes a sequence out, wherever it is, and gives its pages back. False if it is not known.
  bool remove(RequestId id);

  bool idle() const { return running_.empty() && waiting_.empty(); }
  std::size_t running() const { return running_.size(); }
  std::size_t waiting() const { return waiting_.size(); }

 private:
  std::int64_t schedule(Sequence& sequence, std::int64_t budget, std::vector<Scheduled>& out);
  // Whether the first that waits has a place, and pages for its whole prompt: a newcomer never takes pages
  // from those that run.
  bool newcomer_fits() const;

  SchedulerLimits limits_;
  kv::BlockPool* pool_;
  std::vector<std::unique_ptr<Sequence>> running_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
};

}  // namespace snug::engine
