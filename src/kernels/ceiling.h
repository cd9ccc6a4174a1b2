// What this machine can do at most, measured: the roofs that benchmarks are stated against.
#pragma once

#include "core/device.h"

namespace snug::kernels::cpu {

struct Ceiling {
  double read_gbps = 0;   // all workers reading memory that no cache holds
  double fma_tflops = 0;  // float32 fused multiply-adds, in registers
};

// Takes about half a second and 256 MiB for its duration.
Ceiling measure_ceiling(const Stream& stream);

}  // namespace snug::kernels::cpu
