#include "core/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <utility>

#include "base/process.h"
#include "core/arena.h"

namespace snug {
namespace {

LedgerRow row_of(const Ledger& ledger, const std::string& tag) {
  for (const auto& row : ledger.rows()) {
    if (row.tag == tag) return row;
  }
  ADD_FAILURE() << "no row " << tag;
  return {};
}

TEST(Ledger, CountsByTagAndDevice) {
  Ledger ledger;
  auto a = ledger.allocate("kv", Device::host, 4096);
  ASSERT_TRUE(a.ok());
  {
    auto b = ledger.allocate("kv", Device::host, 8192);
    auto c = ledger.allocate("weights", Device::disk, 4096);
    ASSERT_TRUE(b.ok() && c.ok());
    EXPECT_EQ(row_of(ledger, "kv").bytes, 12288);
    EXPECT_EQ(ledger.current(Device::host), 12288);
    EXPECT_EQ(ledger.current(Device::disk), 4096);
  }
  EXPECT_EQ(row_of(ledger, "kv").bytes, 4096);
  EXPECT_EQ(row_of(ledger, "kv").peak, 12288);
  EXPECT_EQ(row_of(ledger, "weights").bytes, 0);
  EXPECT_EQ(ledger.current(Device::host), 4096);
  EXPECT_EQ(ledger.peak(Device::host), 12288);
  EXPECT_EQ(ledger.peak(Device::gpu0), 0);
}

TEST(Ledger, MemoryIsAlignedZeroedWholePagesAndResident) {
  Ledger ledger;
  const std::int64_t before = resident_bytes();
  auto a = ledger.allocate("big", Device::host, (32 << 20) + 1);
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a->data()) % 4096, 0u);
  EXPECT_EQ(a->bytes(), (32 << 20) + 4096);
  EXPECT_GE(resident_bytes() - before, 31 << 20);
  EXPECT_TRUE(std::all_of(a->data(), a->data() + a->bytes(), [](std::byte b) { return b == std::byte{0}; }));
  auto empty = ledger.allocate("empty", Device::host, 0);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->bytes(), 4096);
}

TEST(Ledger, MovingNeitherLosesNorDoublesBytes) {
  Ledger ledger;
  Allocation holder;
  {
    auto a = ledger.allocate("a", Device::host, 4096);
    auto b = ledger.allocate("b", Device::host, 8192);
    ASSERT_TRUE(a.ok() && b.ok());
    holder = std::move(*a);
    EXPECT_EQ(ledger.current(Device::host), 12288);
    holder = std::move(*b);  // a's bytes go with whatever held b
  }
  EXPECT_EQ(ledger.current(Device::host), 8192);
  EXPECT_EQ(row_of(ledger, "a").bytes, 0);
  holder = Allocation();
  EXPECT_EQ(ledger.current(Device::host), 0);
}

TEST(Ledger, FreezeMakesAllocationsAnError) {
  Ledger ledger;
  auto before = ledger.allocate("a", Device::host, 4096);
  ledger.freeze();
  const auto after = ledger.allocate("late", Device::host, 4096);
  ASSERT_FALSE(after.ok());
  EXPECT_EQ(after.error().code, ErrorCode::failed);
  EXPECT_NE(after.error().message.find("late"), std::string::npos);
  EXPECT_EQ(ledger.current(Device::host), 4096);
  *before = Allocation();  // giving back is always allowed
  EXPECT_EQ(ledger.current(Device::host), 0);
}

TEST(Ledger, RefusesWhatCannotBe) {
  Ledger ledger;
  EXPECT_FALSE(ledger.allocate("negative", Device::host, -1).ok());
  const auto huge = ledger.allocate("huge", Device::host, std::int64_t{1} << 60);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::does_not_fit);
  EXPECT_NE(huge.error().message.find("huge"), std::string::npos);
  EXPECT_EQ(ledger.current(Device::host), 0);
}

TEST(Ledger, CountsMappedBytes) {
  Ledger ledger;
  ledger.count_mapped("weights.mapped", 1000);
  ledger.count_mapped("weights.mapped", 500);
  EXPECT_EQ(ledger.current(Device::host), 1500);
  ledger.count_mapped("weights.mapped", -1500);
  EXPECT_EQ(row_of(ledger, "weights.mapped").bytes, 0);
  EXPECT_EQ(row_of(ledger, "weights.mapped").peak, 1500);
}

TEST(Ledger, ThreadsMayShareIt) {
  Ledger ledger;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) EXPECT_TRUE(ledger.allocate("x", Device::host, 4096).ok());
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(ledger.current(Device::host), 0);
  EXPECT_LE(ledger.peak(Device::host), 4 * 4096);
}

TEST(Arena, HandsOutAlignedPieces) {
  alignas(64) std::byte memory[256];
  Arena arena(memory, sizeof(memory));
  auto* a = arena.take<float>(1);
  auto* b = arena.take<double>(8);
  EXPECT_EQ(static_cast<void*>(a), memory);
  EXPECT_EQ(static_cast<void*>(b), memory + 64);
  EXPECT_EQ(arena.used(), 128);
}

}  // namespace
}  // namespace snug
