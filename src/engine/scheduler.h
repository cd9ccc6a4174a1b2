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
};

class Scheduler {
 public:
  Scheduler(SchedulerLimits limits, kv::BlockPool& pool) : limits_(limits), pool_(&pool) {}

  void add(std::unique_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }
  // Empty when nothing is left to do. Pages for the scheduled tokens are taken.
  std::vector<Scheduled> next();
  // Takes a sequence out, wherever it is, and gives its pages back. False if it is not known.
  bool remove(RequestId id);

  bool idle() const { return running_.empty() && waiting_.empty(); }
  std::size_t running() const { return running_.size(); }
  std::size_t waiting() const { return waiting_.size(); }

 private:
  std::int64_t schedule(Sequence& sequence, std::int64_t budget, std::vector<Scheduled>& out);

  SchedulerLimits limits_;
  kv::BlockPool* pool_;
  std::vector<std::unique_ptr<Sequence>> running_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
};

}  // namespace snug::engine
