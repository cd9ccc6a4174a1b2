// Brings one weight after the other to the GPU in the form its kernels want.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/gpu.h"
#include "core/ledger.h"
#include "kernels/linear.h"
#include "model/size_table.h"

namespace snug::residency {

class Uploader {
 public:
  // Takes the two load.* rows that uploading declares (weight_rows()). `gpu` must outlive it.
  static Result<Uploader> create(Gpu& gpu, const Stream& stream, Ledger& ledger);

  // A norm or bias, float32.
  void vector(const float* values, std::int64_t count, std::byte* device);
  // Rows [begin, end) of a weight, row-major at `rows`, to their place in the weight at `device`. begin is a
  // multiple of 16.
  void rows(const model::PlacedWeight& weight, const std::byte* rows, std::int64_t begin, std::int64_t end,
            bool exact, std::byte* device);

 private:
  Gpu* gpu_ = nullptr;
  Stream stream_;
  Allocation staging_;  // on the GPU: rows to be packed
  Allocation decoded_;  // on the host: rows decoded to what the GPU holds
};

}  // namespace snug::residency
