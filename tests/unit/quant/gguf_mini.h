// Just enough of a GGUF reader to check the number formats without formats/, which lies above them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace snug::quant::testing {

struct MiniTensor {
  std::string name;
  std::uint32_t type = 0;
  std::int64_t elements = 1;
  std::span<const std::byte> bytes;  // from its start to the end of the file
};

class MiniGguf {
 public:
  explicit MiniGguf(std::span<const std::byte> file) : file_(file) {
    if (number<std::uint32_t>() != 0x46554747u) throw std::runtime_error("not a GGUF file");
    number<std::uint32_t>();  // version
    const auto tensors = number<std::uint64_t>(), keys = number<std::uint64_t>();
    for (std::uint64_t i = 0; i < keys; ++i) {
      const std::string key = text();
      const auto type = number<std::uint32_t>();
      if (key == "general.alignment") {
        alignment_ = number<std::uint32_t>();
      } else {
        skip_value(type);
      }
    }
    std::vector<std::uint64_t> offsets;
    for (std::uint64_t i = 0; i < tensors; ++i) {
      MiniTensor tensor{.name = text()};
      const auto dims = number<std::uint32_t>();
      for (std::uint32_t d = 0; d < dims; ++d) tensor.elements *= number<std::int64_t>();
      tensor.type = number<std::uint32_t>();
      offsets.push_back(number<std::uint64_t>());
      tensors_.push_back(tensor);
    }
    const std::size_t data = (at_ + alignment_ - 1) / alignment_ * alignment_;
    for (std::size_t i = 0; i < offsets.size(); ++i) tensors_[i].bytes = file_.subspan(data + offsets[i]);
  }

  const std::vector<MiniTensor>& tensors() const { return tensors_; }

 private:
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  const std::byte* take(std::size_t n) {
    if (n > file_.size() - at_) throw std::runtime_error("GGUF file ends early");
    at_ += n;
    return file_.data() + at_ - n;
  }
  std::string text() {
    const auto n = number<std::uint64_t>();
    return {reinterpret_cast<const char*>(take(n)), n};
  }
  void skip_value(std::uint32_t type) {
    constexpr std::size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) {
      text();
    } else if (type == 9) {
      const auto element = number<std::uint32_t>();
      const auto n = number<std::uint64_t>();
      for (std::uint64_t i = 0; i < n; ++i) skip_value(element);
    } else {
      if (type >= std::size(kSizes)) throw std::runtime_error("unknown GGUF value type");
      take(kSizes[type]);
    }
  }

  std::span<const std::byte> file_;
  std::size_t at_ = 0;
  std::size_t alignment_ = 32;
  std::vector<MiniTensor> tensors_;
};

}  // namespace snug::quant::testing
