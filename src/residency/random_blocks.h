// Random weights straight in a number format: values are drawn and encoded once for a pool of blocks, and a
// tensor is filled from the pool in a random order. Encoding every value of a 7B model would take minutes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device.h"
#include "quant/format.h"

namespace snug::residency {

// Fills `bytes` (whole blocks) at `out` with normal values of the given mean and deviation. The same
// arguments give the same bytes whatever the number of threads.
void fill_random_blocks(quant::Format format, float mean, float deviation, std::uint64_t seed,
                        std::int64_t bytes, std::byte* out, const Stream& stream);

}  // namespace snug::residency
