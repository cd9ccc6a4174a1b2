// A fork-join pool for kernels: short spins between steps, sleep when there is no work.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace snug {

// The calling thread is worker 0, so ThreadPool(1) starts no thread. run() may be called from one thread
// at a time and not from inside a task. Workers spin for a few tens of microseconds after a task, since the
// next one usually follows at once, and then sleep: an idle process uses no CPU.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(worker) once on every worker, 0 <= worker < size(), and returns when all have returned.
  template <class Fn>
  void run(Fn&& fn) {
    using F = std::remove_reference_t<Fn>;
    dispatch([](void* f, int worker) { (*static_cast<F*>(f))(worker); },
             const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // Calls fn(begin, end, worker) over [0, count) in pieces of at most `grain`, handed out as workers get
  // free.
  template <class Fn>
  void parallel_for(std::int64_t count, std::int64_t grain, Fn&& fn) {
    if (count <= 0) return;
    if (size() == 1 || count <= grain) {
      fn(std::int64_t{0}, count, 0);
      return;
    }
    std::atomic<std::int64_t> next{0};
    run([&](int worker) {
      for (;;) {
        const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
        if (begin >= count) return;
        fn(begin, begin + grain < count ? begin + grain : count, worker);
      }
    });
  }

 private:
  using Task = void (*)(void*, int);

  void dispatch(Task task, void* argument);
  void work(int worker);

  std::vector<std::thread> workers_;
  Task task_ = nullptr;
  void* argument_ = nullptr;
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<std::uint32_t> generation_{0};  // a new value: a task is ready
  alignas(64) std::atomic<int> running_{0};               // workers that have not finished it
};

// Cores this process may use.
int available_cores();

}  // namespace snug
