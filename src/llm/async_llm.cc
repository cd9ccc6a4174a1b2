#include "llm/async_llm.h"

#include <algorithm>
#include <utility>

namespace snug::llm {

AsyncLLM::AsyncLLM(std::unique_ptr<LLM> llm, AsyncLimits limits)
    : llm_(std::move(llm)),
      limits_(limits),
      max_model_len_(llm_->engine().max_model_len()),
      max_num_seqs_(llm_->plan().limits.sequences) {
  publish();
  thread_ = std::thread([this] { run(); });
}

AsyncLLM::~AsyncLLM() {
  {
    const std::lock_guard lock(mutex_);
    accepting_ = false;
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

std::optional<Ticket> AsyncLLM::submit(GenerateRequest request, UpdateSink sink) {
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!accepting_ || stats_.requests >= max_num_seqs_ + limits_.max_queue) {
      return std::nullopt;
    }
    ++stats_.requests;
    ticket = next_ticket_++;
    inbox_.push_back({ticket, std::move(request), std::move(sink)});
  }
  wake_.notify_one();
  return ticket;
}

void AsyncLLM::cancel(Ticket ticket) {
  {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(ticket);
  }
  wake_.notify_one();
}

void AsyncLLM::stop_accepting() {
  const std::lock_guard lock(mutex_);
  accepting_ = false;
}

AsyncStats AsyncLLM::stats() const {
  const std::lock_guard lock(mutex_);
  AsyncStats stats = stats_;
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - progress_;
  stats.seconds_since_progress = stats.requests > 0 ? since.count() : 0;
  return stats;
}

void AsyncLLM::run() {
  std::vector<Job> jobs;
  std::vector<Ticket> cancelled;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] {
        return stopping_ || !inbox_.empty() || !cancelled_.empty() || !llm_->engine().idle();
      });
      if (stopping_) break;
      if (llm_->engine().idle()) progress_ = std::chrono::steady_clock::now();
      jobs.swap(inbox_);
      cancelled.swap(cancelled_);
    }
    // A job that was cancelled before it began never begins.
    for (Job& job : jobs) {
      if (std::ranges::find(cancelled, job.ticket) == cancelled.end()) {
        start(std::move(job));
      } else {
        const std::lock_guard lock(mutex_);
        --stats_.requests;
      }
    }
    for (const Ticket ticket : cancelled) stop(ticket);
    jobs.clear();
    cancelled.clear();
    step();
    publish();
  }
  while (!active_.empty()) stop(active_.begin()->first);
}

void AsyncLLM::start(Job job) {
  auto generation = Generation::submit(job.request, llm_->skeleton(), llm_->engine());
  if (!generation) {
    job.sink({.error = generation.error(), .usage = Usage{}});
    const std::lock_guard lock(mutex_);
    --stats_.requests;
    return;
  }
  for (const engine::RequestId id : generation->ids()) tickets_[id] = job.ticket;
  const Usage usage{std::ssize(job.request.prompt), 0};
  active_.emplace(job.ticket, Active{std::move(*generation), std::move(job.sink), usage, {}});
}

void AsyncLLM::stop(Ticket ticket) {
  const auto it = active_.find(ticket);
  if (it == active_.end()) return;
  it->second.generation.cancel();
  for (const engine::RequestId id : it->second.generation.ids()) tickets_.erase(id);
  active_.erase(it);
  const std::lock_guard lock(mutex_);
  --stats_.requests;
}

void AsyncLLM::step() {
  std::vector<Ticket> touched;  // in the order of their first event
  for (auto& event : llm_->engine().step()) {
    const auto ticket = tickets_.find(event.request);
    if (ticket == tickets_.end()) continue;
    Active& active = active_.at(ticket->second);
    const auto touch = [&] {
      if (active.update.deltas.empty() && !active.update.error) touched.push_back(ticket->second);
    };
    if (event.error) {
      touch();
      active.update.error = std::move(event.error);
    } else if (auto delta = active.generation.push(std::move(event))) {
      touch();
      active.update.deltas.push_back(std::move(*delta));
      ++active.usage.completion_tokens;
    }
  }
  for (const Ticket ticket : touched) {
    Active& active = active_.at(ticket);
    const bool failed = active.update.error.has_value(), ended = failed || active.generation.done();
    if (ended) active.update.usage = active.usage;
    active.sink(std::exchange(active.update, {}));
    if (!ended) continue;
    active.generation.cancel();  // the other answers of one that failed
    for (const engine::RequestId id : active.generation.ids()) tickets_.erase(id);
    active_.erase(ticket);
    const std::lock_guard lock(mutex_);
    --stats_.requests;
  }
}

void AsyncLLM::publish() {
  const engine::Engine::Load load = llm_->engine().load();
  const std::lock_guard lock(mutex_);
  stats_.running = load.running;
  stats_.waiting = load.waiting;
  progress_ = std::chrono::steady_clock::now();
}

}  // namespace snug::llm
