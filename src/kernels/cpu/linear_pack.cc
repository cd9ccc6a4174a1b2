// Into the packed layout, and rows back out of it.

#include <algorithm>
#include <cstring>

#include "base/thread_pool.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/linear_layout.h"
#include "kernels/linear.h"

namespace snug::kernels::cpu {
namespace {

// The pool's parallel_for; without a pool, on this thread.
template <class Fn>
void for_all(ThreadPool* pool, std::int64_t count, std::int64_t grain, Fn&& fn) {
  if (pool != nullptr) {
    pool->parallel_for(count, grain, fn);
  } else {
    fn(0, count, 0);
  }
}

}  // namespace

std::int64_t packed_bytes(quant::Format format, std::int64_t rows, std::int64_t cols) {
  const int panel_rows = quant_kernels(format).panel_rows;
  const PackedFormat packed = packed_format(format);
  if (panel_rows == 0 || packed.codes == Codes::none || cols % packed.unit_columns() != 0) return 0;
  return (rows + panel_rows - 1) / panel_rows * (cols / packed.unit_columns()) *
         packed.unit_bytes(panel_rows);
}

void pack_rows(const Stream& stream, const WeightView& source, std::byte* packed_data) {
  const PackedFormat packed = packed_format(source.format);
  const int panel_rows = quant_kernels(source.format).panel_rows;
  const std::int64_t units = source.cols / packed.unit_columns();
  const std::int64_t unit_bytes = quant::bytes_of(source.format, packed.unit_columns());
  const std::int64_t panels = (source.rows + panel_rows - 1) / panel_rows;
  const auto pack = [&](std::int64_t begin, std::int64_t end, int) {
    UnpackedUnit unit;
    for (std::int64_t panel = begin; panel < end; ++panel) {
      const std::int64_t first = panel * panel_rows;
      const int rows = static_cast<int>(std::min<std::int64_t>(panel_rows, source.rows - first));
      const auto* in = reinterpret_cast<const std::uint8_t*>(source.data) + first * units * unit_bytes;
      auto* out =
          reinterpret_cast<std::uint8_t*>(packed_data) + panel * units * packed.unit_bytes(panel_rows);
      if (rows < panel_rows)
        std::memset(out, 0, static_cast<std::size_t>(units * packed.unit_bytes(panel_rows)));
      for (std::int64_t u = 0; u < units; ++u, out += packed.unit_bytes(panel_rows)) {
        for (int r = 0; r < rows; ++r) {
          unpack_unit(source.format, in + (r * units + u) * unit_bytes, unit);
          write_unit(packed, unit, panel_rows, r, out);
        }
      }
    }
  };
  for_all(stream.pool, panels, 1, pack);
}

void embedding(const EmbeddingParams& p) {
  const WeightView& w = p.table;
  const QuantKernels k = quant_kernels(w.format);
  const PackedFormat packed = packed_format(w.format);
  const quant::FormatInfo& info = quant::info(w.format);
  const auto gather = [&](std::int64_t token) {
    const std::int64_t row = p.ids[token];
    float* y = p.y + token * w.cols;
    if (w.layout == Layout::rows) {
      info.decode(w.data + row * quant::bytes_of(w.format, w.cols), y, w.cols);
      return;
    }
    alignas(64) float panel[256 * kMaxPanelRows];
    const auto* unit = reinterpret_cast<const std::uint8_t*>(w.data) +
                       row / k.panel_rows * packed.panel_bytes(w.cols, k.panel_rows);
    const int columns = packed.unit_columns();
    for (std::int64_t first = 0; first < w.cols; first += columns, unit += packed.unit_bytes(k.panel_rows)) {
      k.decode(unit, columns, panel);
      for (int i = 0; i < columns; ++i) y[first + i] = panel[i * k.panel_rows + row % k.panel_rows];
    }
  };
  for_all(p.stream.pool, p.tokens, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) gather(t);
  });
}

}  // namespace snug::kernels::cpu
