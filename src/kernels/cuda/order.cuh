// float32 as unsigned numbers of the same order.
#pragma once

#include <cuda_runtime.h>

namespace snug::kernels::cuda {

// Rises with the value; -0 and 0 are one.
__device__ __forceinline__ unsigned order_of(float x) {
  const unsigned bits = __float_as_uint(x + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float value_of(unsigned order) {
  return __uint_as_float(order & 0x80000000u ? order & 0x7FFFFFFFu : ~order);
}

}  // namespace snug::kernels::cuda
