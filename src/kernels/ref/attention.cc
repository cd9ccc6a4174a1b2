#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/dtype.h"

namespace snug::kernels::ref {
namespace {

float load(const void* base, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::f32:
      return static_cast<const float*>(base)[index];
    case DType::f16:
      return f32_from_f16(static_cast<const std::uint16_t*>(base)[index]);
    case DType::bf16:
      return f32_from_bf16(static_cast<const std::uint16_t*>(base)[index]);
  }
  return 0;
}

// One query row of one head, at `position` in its sequence.
void attend(const kv::PagedLayer& kv, const std::int32_t* page_table, int kv_head, std::int64_t position,
            std::int64_t window, double scale, const float* q, float* out) {
  const std::int64_t begin = window > 0 ? std::max<std::int64_t>(0, position - window + 1) : 0;
  const auto element = [&](std::int64_t t) {
    const std::int64_t block = page_table[t / kv.block_size];
    return ((block * kv.kv_heads + kv_head) * kv.block_size + t % kv.block_size) * kv.head_dim;
  };
  std::vector<double> weights;
  double max = -std::numeric_limits<double>::infinity();
  for (std::int64_t t = begin; t <= position; ++t) {
    double dot = 0;
    for (int i = 0; i < kv.head_dim; ++i) {
      dot += static_cast<double>(q[i]) * load(kv.k, kv.dtype, element(t) + i);
    }
    weights.push_back(dot * scale);
    max = std::max(max, weights.back());
  }
  double sum = 0;
  std::vector<double> result(static_cast<std::size_t>(kv.head_dim), 0.0);
  for (std::int64_t t = begin; t <= position; ++t) {
    const double w = std::exp(weights[static_cast<std::size_t>(t - begin)] - max);
    sum += w;
    for (int i = 0; i < kv.head_dim; ++i) {
      result[static_cast<std::size_t>(i)] += w * load(kv.v, kv.dtype, element(t) + i);
    }
  }
  for (int i = 0; i < kv.head_dim; ++i)
    out[i] = static_cast<float>(result[static_cast<std::size_t>(i)] / sum);
}

}  // namespace

void attention(const AttentionParams& p) {
  const int group = p.heads / p.kv.kv_heads;
  for (const kv::SequenceView& sequence : p.sequences) {
    for (std::int64_t i = 0; i < sequence.q_len; ++i) {
      for (int h = 0; h < p.heads; ++h) {
        const std::int64_t row = (sequence.q_begin + i) * p.heads + h;
        attend(p.kv, sequence.page_table, h / group, sequence.kv_len - sequence.q_len + i, p.window, p.scale,
               p.q.f32() + (sequence.q_begin + i) * p.row_stride() + h * p.kv.head_dim,
               p.out.f32() + row * p.kv.head_dim);
      }
    }
  }
}

}  // namespace snug::kernels::ref
