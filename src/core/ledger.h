// The only caller of large allocations. Every byte carries a tag that the plan knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/device.h"

namespace snug {

class Ledger;

// A tagged block of memory; returns its bytes to the ledger when destroyed. Aligned to 4096 bytes; host
// memory is zeroed and resident.
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
  Ledger() = default;
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // does_not_fit when the system refuses; failed ("… after freeze") once frozen.
  Result<Allocation> allocate(std::string tag, Device device, std::int64_t bytes);

  // Takes the GPU's memory for all that follows as one block: allocations on gpu0 are parts of it. "load."
  // ones come from its end and are given back before the others need the room. does_not_fit when the driver
  // refuses.
  Status reserve_gpu(std::int64_t bytes);

  // The block that reserve_gpu took.
  std::span<const std::byte> gpu_block() const { return {gpu_base_, static_cast<std::size_t>(gpu_bytes_)}; }

  // Counts bytes that are mapped from a file in place rather than allocated (negative: unmapped).
  void count_mapped(const std::string& tag, std::int64_t bytes);
  // Counts bytes that a driver took on its own: its context, modules, graphs.
  void count_driver(const std::string& tag, Device device, std::int64_t bytes) { add(tag, device, bytes); }

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
  Allocation make(std::string tag, Device device, std::byte* data, std::int64_t bytes);
  std::byte* take_gpu(const std::string& tag, std::int64_t bytes);  // null: no room
  void release(Allocation& allocation);

  std::byte* gpu_base_ = nullptr;
  std::int64_t gpu_bytes_ = 0, gpu_front_ = 0, gpu_back_ = 0;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, Device>, Total> by_tag_;
  std::map<Device, Total> by_device_;
  bool frozen_ = false;
};

}  // namespace snug
