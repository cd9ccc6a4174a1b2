// The GPU in tests: opened once for a test program; arrays in its memory with poison and guards.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/gpu.h"

namespace snug::test {

// Skips its tests, with the reason, where there is no GPU.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!opened().ok()) GTEST_SKIP() << opened().error().to_string();
  }

 public:
  static Gpu& gpu() { return **opened(); }
  static Stream stream() { return {.backend = Backend::cuda, .gpu = gpu().stream()}; }

 private:
  static Result<std::unique_ptr<Gpu>>& opened() {
    static Result<std::unique_ptr<Gpu>> gpu = Gpu::open();
    return gpu;
  }
};

// `count` values on the device, all bytes 0xFF (NaN as float32 and bfloat16) until something is uploaded,
// with a guard on either side. `skew` values more in front: an address that suits no wide access.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::int64_t count, std::int64_t skew = 0)
      : count_(count), front_(kGuard + skew * static_cast<std::int64_t>(sizeof(T))) {
    const std::int64_t bytes = front_ + byte_count() + kGuard;
    store_ = take(bytes);
    GpuTest::gpu().fill(store_, 0xFF, bytes);
  }
  explicit DeviceArray(const std::vector<T>& values, std::int64_t skew = 0)
      : DeviceArray(static_cast<std::int64_t>(values.size()), skew) {
    upload(values);
  }
  ~DeviceArray() {
    GpuTest::gpu().synchronize();
    kept().emplace(front_ + byte_count() + kGuard, store_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return reinterpret_cast<T*>(store_ + front_); }
  std::int64_t byte_count() const { return count_ * static_cast<std::int64_t>(sizeof(T)); }

  void upload(const std::vector<T>& values) {
    GpuTest::gpu().upload(data(), values.data(), byte_count());
    GpuTest::gpu().synchronize();
  }
  // Waits for the work before.
  std::vector<T> download() const {
    std::vector<T> values(static_cast<std::size_t>(count_));
    GpuTest::gpu().download(values.data(), data(), byte_count());
    GpuTest::gpu().synchronize();
    return values;
  }
  bool guards_untouched() const {
    return untouched(store_, front_) && untouched(store_ + front_ + byte_count(), kGuard);
  }

 private:
  static constexpr std::int64_t kGuard = 256;
  // Arrays given back, by size, until the program ends: allocating takes the driver much longer than a test.
  static std::multimap<std::int64_t, std::byte*>& kept() {
    static std::multimap<std::int64_t, std::byte*> kept;
    return kept;
  }
  static std::byte* take(std::int64_t bytes) {
    if (const auto found = kept().find(bytes); found != kept().end()) {
      std::byte* store = found->second;
      kept().erase(found);
      return store;
    }
    std::byte* store = gpu_allocate(bytes);
    if (store == nullptr) throw std::bad_alloc();
    return store;
  }
  static bool untouched(const std::byte* at, std::int64_t bytes) {
    std::vector<std::byte> guard(static_cast<std::size_t>(bytes));
    GpuTest::gpu().download(guard.data(), at, bytes);
    GpuTest::gpu().synchronize();
    return std::all_of(guard.begin(), guard.end(), [](std::byte b) { return b == std::byte{0xFF}; });
  }

  std::int64_t count_, front_;
  std::byte* store_ = nullptr;
};

}  // namespace snug::test
