#include "kernels/linear.h"

#include <vector>

namespace snug::kernels::ref {

void linear(const LinearParams& p) {
  for (const LinearOutput& out : p.outputs) {
    const WeightView& w = out.weight;
    const std::int64_t row_bytes = quant::bytes_of(w.format, w.cols);
    std::vector<float> row(static_cast<std::size_t>(w.cols));
    for (std::int64_t r = 0; r < w.rows; ++r) {
      quant::info(w.format).decode(w.data + r * row_bytes, row.data(), w.cols);
      for (std::int64_t t = 0; t < p.tokens; ++t) {
        const float* x = p.x.f32() + t * p.x_stride;
        double sum = out.bias != nullptr ? out.bias[r] : 0.0;
        for (std::int64_t k = 0; k < w.cols; ++k)
          sum += static_cast<double>(x[k]) * row[static_cast<std::size_t>(k)];
        float& y = out.y.f32()[t * out.y_stride + r];
        y = static_cast<float>(out.add ? y + sum : sum);
      }
    }
  }
}

void embedding(const EmbeddingParams& p) {
  const WeightView& w = p.table;
  const std::int64_t row_bytes = quant::bytes_of(w.format, w.cols);
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    quant::info(w.format).decode(w.data + p.ids[t] * row_bytes, p.y + t * w.cols, w.cols);
  }
}

}  // namespace snug::kernels::ref
