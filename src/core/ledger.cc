#include "core/ledger.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "core/gpu.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older kernels refuse it
#endif

namespace snug {

Allocation::Allocation(Allocation&& other) noexcept {
  *this = std::move(other);
}

Allocation& Allocation::operator=(Allocation&& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  std::swap(tag_, other.tag_);
  return *this;
}

Allocation::~Allocation() {
  if (data_ != nullptr) ledger_->release(*this);
}

Ledger::~Ledger() {
  if (gpu_base_ != nullptr) gpu_free(gpu_base_);
}

Status Ledger::reserve_gpu(std::int64_t bytes) {
  gpu_base_ = gpu_allocate(bytes);
  if (gpu_base_ == nullptr) {
    return Error{ErrorCode::does_not_fit,
                 fmt::format("{} were refused by the GPU's driver", format_bytes(bytes)),
                 "ask for less with --gpu-memory, or free memory on the GPU"};
  }
  gpu_bytes_ = bytes;
  return {};
}

std::byte* Ledger::take_gpu(const std::string& tag, std::int64_t bytes) {
  if (gpu_base_ == nullptr || gpu_front_ + gpu_back_ + bytes > gpu_bytes_) return nullptr;
  if (tag.starts_with("load.")) {
    gpu_back_ += bytes;
    return gpu_base_ + (gpu_bytes_ - gpu_back_);
  }
  gpu_front_ += bytes;
  return gpu_base_ + (gpu_front_ - bytes);
}

void Ledger::release(Allocation& a) {
  switch (a.device_) {
    case Device::gpu0:
      // The front is given back with the whole block.
      if (a.tag_.starts_with("load.")) gpu_back_ -= a.bytes_;
      break;
    case Device::pinned:
      pinned_free(a.data_);
      break;
    case Device::host:
    case Device::disk:
      ::munmap(a.data_, static_cast<std::size_t>(a.bytes_));
      break;
  }
  add(a.tag_, a.device_, -a.bytes_);
}

Result<Allocation> Ledger::allocate(std::string tag, Device device, std::int64_t bytes) {
  if (frozen_) {
    return Error{ErrorCode::failed, fmt::format("{} bytes for {} were asked for after start-up", bytes, tag),
                 "this is a fault in Snug: please report it"};
  }
  if (bytes < 0) return Error{ErrorCode::failed, fmt::format("{}: a negative size was asked for", tag), ""};
  const std::int64_t rounded = std::max<std::int64_t>(4096, (bytes + 4095) / 4096 * 4096);
  if (device == Device::gpu0 || device == Device::pinned) {
    std::byte* taken = device == Device::gpu0 ? take_gpu(tag, rounded) : pinned_allocate(rounded);
    if (taken == nullptr) {
      return Error{ErrorCode::does_not_fit,
                   fmt::format("{} for {} on {} were refused", format_bytes(rounded), tag, name_of(device)),
                   "ask for a shorter --max-model-len, or free memory"};
    }
    return make(std::move(tag), device, taken, rounded);
  }
  void* data = ::mmap(nullptr, static_cast<std::size_t>(rounded), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return Error{ErrorCode::does_not_fit,
                 fmt::format("{} for {} on {} were refused by the system", format_bytes(rounded), tag,
                             name_of(device)),
                 "ask for a shorter --max-model-len, or free memory"};
  }
  if (rounded >= (4 << 20)) ::madvise(data, static_cast<std::size_t>(rounded), MADV_HUGEPAGE);
  // Every page is taken now: memory that was promised cannot run out in the middle of a request, and what the
  // system counts from here on is what the plan says.
  if (::madvise(data, static_cast<std::size_t>(rounded), MADV_POPULATE_WRITE) != 0) {
    std::memset(data, 0, static_cast<std::size_t>(rounded));
  }
  return make(std::move(tag), device, static_cast<std::byte*>(data), rounded);
}

Allocation Ledger::make(std::string tag, Device device, std::byte* data, std::int64_t bytes) {
  add(tag, device, bytes);
  Allocation allocation;
  allocation.ledger_ = this;
  allocation.data_ = data;
  allocation.bytes_ = bytes;
  allocation.device_ = device;
  allocation.tag_ = std::move(tag);
  return allocation;
}

void Ledger::count_mapped(const std::string& tag, std::int64_t bytes) {
  add(tag, Device::host, bytes);
}

void Ledger::add(const std::string& tag, Device device, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  for (Total* total : {&by_tag_[{tag, device}], &by_device_[device]}) {
    total->current += bytes;
    total->peak = std::max(total->peak, total->current);
  }
}

std::vector<LedgerRow> Ledger::rows() const {
  const std::lock_guard lock(mutex_);
  std::vector<LedgerRow> rows;
  for (const auto& [key, total] : by_tag_) rows.push_back({key.first, key.second, total.current, total.peak});
  return rows;
}

std::int64_t Ledger::current(Device device) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_device_.find(device);
  return it == by_device_.end() ? 0 : it->second.current;
}

std::int64_t Ledger::peak(Device device) const {
  const std::lock_guard lock(mutex_);
  const auto it = by_device_.find(device);
  return it == by_device_.end() ? 0 : it->second.peak;
}

}  // namespace snug
