// Activations whose element type is known only at run time: float32 on the CPU and in exact arithmetic,
// bfloat16 inside a layer on a GPU. Views; they own nothing. A float* converts by itself.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace snug {

struct Values {
  void* data = nullptr;
  DType dtype = DType::f32;

  constexpr Values() = default;
  constexpr Values(float* values) : data(values) {}  // NOLINT: meant to convert
  constexpr Values(void* values, DType type) : data(values), dtype(type) {}

  float* f32() const {
    assert(dtype == DType::f32);
    return static_cast<float*>(data);
  }
  // The view from `elements` on.
  Values at(std::int64_t elements) const {
    return {static_cast<std::byte*>(data) + elements * static_cast<std::int64_t>(size_of(dtype)), dtype};
  }
};

struct ConstValues {
  const void* data = nullptr;
  DType dtype = DType::f32;

  constexpr ConstValues() = default;
  constexpr ConstValues(const float* values) : data(values) {}  // NOLINT: meant to convert
  constexpr ConstValues(const void* values, DType type) : data(values), dtype(type) {}
  constexpr ConstValues(Values values)
      : data(values.data), dtype(values.dtype) {}  // NOLINT: meant to convert

  const float* f32() const {
    assert(dtype == DType::f32);
    return static_cast<const float*>(data);
  }
  ConstValues at(std::int64_t elements) const {
    return {static_cast<const std::byte*>(data) + elements * static_cast<std::int64_t>(size_of(dtype)),
            dtype};
  }
};

}  // namespace snug
