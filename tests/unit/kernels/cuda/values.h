// Activations of a type that only run time knows, on the host and on the device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "core/values.h"
#include "support/gpu.h"

namespace snug::kernels {

inline unsigned fresh_test_seed() {
  static std::random_device device;
  return device();
}

inline std::vector<float> random_vector(std::mt19937& rng, std::int64_t n, float factor = 1.0f) {
  std::normal_distribution<float> normal(0.0f, factor);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& value : x) value = normal(rng);
  return x;
}

// float16 saturates, as KV does.
inline std::vector<std::byte> encoded(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::f32) {
      std::memcpy(bytes.data() + i * 4, &values[i], 4);
      continue;
    }
    const float x = values[i];
    const std::uint16_t bits =
        dtype == DType::bf16 ? bf16_from_f32(x) : f16_from_f32(std::clamp(x, -65504.0f, 65504.0f));
    std::memcpy(bytes.data() + i * 2, &bits, 2);
  }
  return bytes;
}

inline std::vector<float> decoded(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::f32) {
      std::memcpy(&values[i], bytes.data() + i * 4, 4);
      continue;
    }
    std::uint16_t bits;
    std::memcpy(&bits, bytes.data() + i * 2, 2);
    values[i] = dtype == DType::bf16 ? f32_from_bf16(bits) : f32_from_f16(bits);
  }
  return values;
}

inline std::vector<float> rounded_to(DType dtype, const std::vector<float>& values) {
  return decoded(dtype, encoded(dtype, values));
}

// What rounding to the type may change, as a share of the value.
inline double rounding_of(DType dtype) {
  return dtype == DType::f32 ? 0.0 : dtype == DType::bf16 ? 1.0 / 256 : 1.0 / 2048;
}

class DeviceValues {
 public:
  DeviceValues(DType dtype, std::int64_t count)
      : dtype_(dtype), bytes_(count * static_cast<std::int64_t>(size_of(dtype))) {}
  DeviceValues(DType dtype, const std::vector<float>& values)
      : dtype_(dtype), bytes_(encoded(dtype, values)) {}

  Values view() const { return {bytes_.data(), dtype_}; }
  std::vector<std::byte> bytes() const { return bytes_.download(); }
  std::vector<float> download() const { return decoded(dtype_, bytes_.download()); }
  bool guards_untouched() const { return bytes_.guards_untouched(); }

 private:
  DType dtype_;
  test::DeviceArray<std::byte> bytes_;
};

}  // namespace snug::kernels
