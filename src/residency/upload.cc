#include "residency/upload.h"

#include <algorithm>
#include <vector>

#include "base/thread_pool.h"

namespace snug::residency {

using quant::Format;

Result<Uploader> Uploader::create(Gpu& gpu, const Stream& stream, Ledger& ledger) {
  Uploader uploader;
  uploader.gpu_ = &gpu;
  uploader.stream_ = stream;
  SNUG_ASSIGN(uploader.staging_, ledger.allocate("load.staging", Device::gpu0, model::kUploadSlice));
  SNUG_ASSIGN(uploader.decoded_, ledger.allocate("load.decoded", Device::host, model::kDecodeSlice * 4));
  return uploader;
}

void Uploader::vector(const float* values, std::int64_t count, std::byte* device) {
  gpu_->upload(device, values, count * 4);
}

void Uploader::rows(const model::PlacedWeight& weight, const std::byte* rows, std::int64_t begin,
                    std::int64_t end, bool exact, std::byte* device) {
  const auto format = weight.weight.tensor.format;
  const std::int64_t total = weight.weight.spec.shape[0], cols = weight.weight.spec.shape[1];
  const auto target = kernels::cuda::target_of(format, total, cols, exact);
  const std::int64_t row_bytes = quant::bytes_of(format, cols);
  if (target.layout == kernels::Layout::packed) {
    const kernels::WeightView whole{target.format, target.layout, total, cols, device};
    const std::int64_t step = std::max<std::int64_t>(model::kUploadSlice / row_bytes / 16, 1) * 16;
    for (std::int64_t r = begin; r < end; r += step) {
      const std::int64_t count = std::min(step, end - r);
      gpu_->upload(staging_.data(), rows + (r - begin) * row_bytes, count * row_bytes);
      kernels::cuda::pack_rows(stream_, {format, kernels::Layout::rows, count, cols, staging_.data()}, whole,
                               r);
    }
    return;
  }
  const std::int64_t out_bytes = quant::bytes_of(target.format, cols);
  if (target.format == format) {
    gpu_->upload(device + begin * out_bytes, rows, (end - begin) * row_bytes);
    return;
  }
  const std::int64_t step = std::max<std::int64_t>(model::kDecodeSlice / cols, 1);
  for (std::int64_t r = begin; r < end; r += step) {
    const std::int64_t count = std::min(step, end - r);
    stream_.pool->parallel_for(count, 16, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) {
        // In place where the target is float32; else through a row of its own.
        const std::byte* from = rows + (r - begin + i) * row_bytes;
        std::byte* to = decoded_.data() + i * out_bytes;
        if (target.format == Format::f32) {
          quant::info(format).decode(from, reinterpret_cast<float*>(to), cols);
        } else {
          std::vector<float> values(static_cast<std::size_t>(cols));
          quant::info(format).decode(from, values.data(), cols);
          quant::info(target.format).encode(values.data(), to, cols);
        }
      }
    });
    gpu_->upload(device + r * out_bytes, decoded_.data(), count * out_bytes);
    gpu_->synchronize();
  }
}

}  // namespace snug::residency
