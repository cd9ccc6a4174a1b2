// Hands out aligned pieces of one block, front to back. Does not own the block.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

namespace snug {

constexpr std::int64_t align_up(std::int64_t bytes, std::int64_t alignment = 64) {
  return (bytes + alignment - 1) / alignment * alignment;
}

class Arena {
 public:
  Arena(std::byte* data, std::int64_t bytes) : data_(data), bytes_(bytes) {}

  // `count` elements of T, aligned to 64 bytes. The size table promised the space: running out is a bug.
  template <class T>
  T* take(std::int64_t count) {
    const std::int64_t begin = used_;
    used_ += align_up(count * static_cast<std::int64_t>(sizeof(T)));
    assert(used_ <= bytes_);
    return reinterpret_cast<T*>(data_ + begin);
  }

  std::int64_t used() const { return used_; }

 private:
  std::byte* data_;
  std::int64_t bytes_;
  std::int64_t used_ = 0;
};

}  // namespace snug
