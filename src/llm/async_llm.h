// One model for many callers: requests from any thread, run together on a thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "llm/llm.h"

namespace snug::llm {

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;  // of all answers
};

// What one step brought for one request.
struct Update {
  std::vector<Delta> deltas;
  std::optional<Error> error;  // the request has ended with it
  std::optional<Usage> usage;  // set in a request's last update, an error's too
};
// Called on the model's thread, in order, and never after the last update: it must hand over and return.
using UpdateSink = std::function<void(Update)>;

struct AsyncLimits {
  std::int64_t max_queue = 256;  // requests beyond those that may run at once
};

// What may be read from any thread at any time.
struct AsyncStats {
  std::int64_t requests = 0;              // accepted and not ended
  std::int64_t running = 0, waiting = 0;  // sequences
  double seconds_since_progress = 0;      // a step ended, or there was nothing to do
};

using Ticket = std::int64_t;

class AsyncLLM {
 public:
  AsyncLLM(std::unique_ptr<LLM> llm, AsyncLimits limits);
  // Cancels what runs.
  ~AsyncLLM();
  AsyncLLM(const AsyncLLM&) = delete;
  AsyncLLM& operator=(const AsyncLLM&) = delete;

  // Nothing if the queue is full or stop_accepting() was called. Faults of the request itself come to its
  // sink.
  std::optional<Ticket> submit(GenerateRequest request, UpdateSink sink);
  // The request ends before the next step, without another update. Harmless if it has ended.
  void cancel(Ticket ticket);
  void stop_accepting();
  bool accepts() const { return accepting_; }

  AsyncStats stats() const;
  // What does not change: its skeleton, plan and ledger may be read from any thread.
  const LLM& llm() const { return *llm_; }
  std::int64_t max_model_len() const { return max_model_len_; }

 private:
  struct Job {
    Ticket ticket = 0;
    GenerateRequest request;
    UpdateSink sink;
  };
  struct Active {
    Generation generation;
    UpdateSink sink;
    Usage usage;
    Update update;  // of the step under way
  };
  void run();
  void start(Job job);
  void stop(Ticket ticket);
  void step();
  void publish();

  std::unique_ptr<LLM> llm_;
  AsyncLimits limits_;
  std::int64_t max_model_len_ = 0, max_num_seqs_ = 0;
  std::atomic<bool> accepting_ = true;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::vector<Job> inbox_;
  std::vector<Ticket> cancelled_;
  bool stopping_ = false;
  Ticket next_ticket_ = 1;
  AsyncStats stats_;
  std::chrono::steady_clock::time_point progress_ = std::chrono::steady_clock::now();

  // The thread's own.
  std::unordered_map<Ticket, Active> active_;
  std::unordered_map<engine::RequestId, Ticket> tickets_;
  std::thread thread_;
};

}  // namespace snug::llm
