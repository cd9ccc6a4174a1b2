#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>

namespace snug {
namespace {

constexpr int kSpins = 4000;  // about 40–100 microseconds

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::dispatch(Task task, void* argument) {
  if (workers_.empty()) {
    task(argument, 0);
    return;
  }
  task_ = task;
  argument_ = argument;
  running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  task(argument, 0);
  for (int spins = 0;; ++spins) {
    const int left = running_.load(std::memory_order_acquire);
    if (left == 0) return;
    if (spins < kSpins) {
      pause();
    } else {
      running_.wait(left, std::memory_order_acquire);
    }
  }
}

void ThreadPool::work(int worker) {
  std::uint32_t seen = 0;
  for (;;) {
    std::uint32_t now = generation_.load(std::memory_order_acquire);
    for (int spins = 0; now == seen; ++spins) {
      if (spins < kSpins) {
        pause();
      } else {
        generation_.wait(seen, std::memory_order_acquire);
      }
      now = generation_.load(std::memory_order_acquire);
    }
    seen = now;
    if (stop_.load(std::memory_order_relaxed)) return;
    task_(argument_, worker);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

}  // namespace snug
