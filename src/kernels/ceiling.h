// What this machine can do at most, measured: the roofs that benchmarks are stated against.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device.h"

namespace snug::kernels::cpu {

struct Ceiling {
  double read_gbps = 0;   // all workers reading memory that no cache holds
  double fma_tflops = 0;  // float32 fused multiply-adds, in registers
};

// Takes about half a second and 256 MiB for its duration.
Ceiling measure_ceiling(const Stream& stream);

}  // namespace snug::kernels::cpu

namespace snug::kernels::cuda {

// GB/s at which the GPU reads `bytes` of its memory at `data` (far more than its caches hold): the median of
// seven passes. Waits for them.
double measure_read_gbps(const Stream& stream, const std::byte* data, std::int64_t bytes);

}  // namespace snug::kernels::cuda
