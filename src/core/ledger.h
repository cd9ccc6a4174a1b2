// The only caller of large allocations. Every byte carries a tag that the plan knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/device.h"

namespace snug {

class Ledger;

// A tagged block of memory; returns its bytes to the ledger when destroyed. Aligned to 4096 bytes, zeroed,
// resident.
class Allocation {
 public:
  Allocation() = default;
  Allocation(Allocation&& other) noexcept;
  Allocation& operator=(Allocation&& other) noexcept;
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation();

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  friend class Ledger;
  Ledger* ledger_ = nullptr;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  Device device_ = Device::host;
  std::string tag_;
};

struct LedgerRow {
  std::string tag;
  Device device = Device::host;
  std::int64_t bytes = 0;  // now
  std::int64_t peak = 0;
};

// Thread-safe. Must outlive its allocations.
class Ledger {
 public:
  // does_not_fit when the system refuses; failed ("… after freeze") once frozen.
  Result<Allocation> allocate(std::string tag, Device device, std::int64_t bytes);

  // Counts bytes that are mapped from a file in place rather than allocated (negative: unmapped).
  void count_mapped(const std::string& tag, std::int64_t bytes);

  // After start-up: a later allocation is a bug, and says so.
  void freeze() { frozen_ = true; }

  std::vector<LedgerRow> rows() const;
  std::int64_t current(Device device) const;
  std::int64_t peak(Device device) const;

 private:
  friend class Allocation;
  struct Total {
    std::int64_t current = 0, peak = 0;
  };
  void add(const std::string& tag, Device device, std::int64_t bytes);

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, Device>, Total> by_tag_;
  std::map<Device, Total> by_device_;
  bool frozen_ = false;
};

}  // namespace snug
