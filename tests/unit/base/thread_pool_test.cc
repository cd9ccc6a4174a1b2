#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace snug {
namespace {

class Pools : public testing::TestWithParam<int> {};

TEST_P(Pools, RunsOnceOnEveryWorker) {
  ThreadPool pool(GetParam());
  ASSERT_EQ(pool.size(), GetParam());
  std::vector<int> calls(static_cast<std::size_t>(GetParam()));
  for (int round = 0; round < 100; ++round)
    pool.run([&](int worker) { ++calls[static_cast<std::size_t>(worker)]; });
  for (const int count : calls) EXPECT_EQ(count, 100);
}

TEST_P(Pools, ParallelForVisitsEveryIndexOnce) {
  ThreadPool pool(GetParam());
  for (const std::int64_t count : {0, 1, 7, 64, 1000}) {
    for (const std::int64_t grain : {1, 3, 64, 5000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
        EXPECT_LT(begin, end);
        EXPECT_TRUE(worker >= 0 && worker < pool.size());
        for (auto i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      for (const auto& v : visits) ASSERT_EQ(v.load(), 1) << count << " by " << grain;
    }
  }
}

// A step is many short dispatches: none may be lost, and what one wrote the next must see.
TEST_P(Pools, ManySmallDispatches) {
  ThreadPool pool(GetParam());
  std::vector<std::int64_t> values(16, 0);
  for (int round = 0; round < 1000; ++round) {
    pool.parallel_for(16, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (auto i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] += round;
    });
  }
  for (const auto v : values) ASSERT_EQ(v, 1000ll * 999 / 2);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Pools, testing::Values(1, 2, 3, 4));

TEST(ThreadPool, StopsAtOnce) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);  // nothing was ever run
}

std::int64_t process_cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

TEST(ThreadPool, IdleUsesNoCpu) {
  ThreadPool pool(4);
  pool.run([](int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // past the short spin after a task
  const std::int64_t before = process_cpu_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(process_cpu_ns() - before, 20'000'000);
}

}  // namespace
}  // namespace snug
