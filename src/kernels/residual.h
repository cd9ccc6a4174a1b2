// Products that are not quite finished: on a GPU a product of few tokens leaves partial sums, and whatever
// reads it next adds them up, since it reads them anyway. On the CPU nothing is ever pending.
#pragma once

#include <cstdint>

#include "core/device.h"

namespace snug::kernels {

// value = (what is there, where that is said) + part 0 + part 1 + … + bias, in this order.
struct Pending {
  float* parts = nullptr;        // (count, tokens, columns)
  std::int64_t part_stride = 0;  // floats from one part to the next
  int count = 0;                 // parts that are to be added
  const float* bias = nullptr;   // (columns) or null
};

// The residual stream.
struct Residual {
  float* x = nullptr;     // (tokens, hidden)
  float* next = nullptr;  // (tokens, hidden): where x goes with the parts added; then the two change places
  Pending pending;        // columns = hidden
};

struct SettleParams {
  Stream stream;
  Residual* residual = nullptr;
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
};

}  // namespace snug::kernels
