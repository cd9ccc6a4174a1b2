#include "kernels/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/dtype.h"

namespace snug::kernels::ref {
namespace {

void store(void* base, DType dtype, std::int64_t index, float x) {
  switch (dtype) {
    case DType::f32:
      static_cast<float*>(base)[index] = x;
      break;
    case DType::f16:
      // A NaN passes the clamp unchanged.
      static_cast<std::uint16_t*>(base)[index] = f16_from_f32(std::clamp(x, -65504.0f, 65504.0f));
      break;
    case DType::bf16:
      static_cast<std::uint16_t*>(base)[index] = bf16_from_f32(x);
      break;
  }
}

void rotate(float* x, const float* cos_sin, int head_dim, bool interleaved) {
  const int half = head_dim / 2;
  for (int i = 0; i < half; ++i) {
    float& a = x[interleaved ? 2 * i : i];
    float& b = x[interleaved ? 2 * i + 1 : i + half];
    const double c = cos_sin[i], s = cos_sin[half + i], a0 = a, b0 = b;
    a = static_cast<float>(a0 * c - b0 * s);
    b = static_cast<float>(b0 * c + a0 * s);
  }
}

}  // namespace

void rms_norm(const RmsNormParams& p) {
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    const float* x = p.x + (p.rows != nullptr ? p.rows[t] : t) * p.hidden;
    float* y = p.y.f32() + t * p.hidden;
    double sum = 0;
    for (std::int64_t i = 0; i < p.hidden; ++i) sum += static_cast<double>(x[i]) * x[i];
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(p.hidden) + p.eps);
    for (std::int64_t i = 0; i < p.hidden; ++i) y[i] = static_cast<float>(x[i] * scale * p.weight[i]);
  }
}

void rope_store(const RopeStoreParams& p) {
  const kv::PagedLayer& kv = p.kv;
  for (const kv::SequenceView& sequence : p.sequences) {
    for (std::int64_t row = sequence.q_begin; row < sequence.q_begin + sequence.q_len; ++row) {
      const float* cos_sin = p.cos_sin + row * kv.head_dim;
      for (int h = 0; h < p.heads; ++h) {
        rotate(p.q.f32() + row * p.q_row_stride() + h * kv.head_dim, cos_sin, kv.head_dim, p.interleaved);
      }
      const std::int64_t position = p.positions[row];
      const std::int64_t block = sequence.page_table[position / kv.block_size];
      for (int h = 0; h < kv.kv_heads; ++h) {
        float* k = p.k.f32() + row * p.kv_row_stride() + h * kv.head_dim;
        const float* v = p.v.f32() + row * p.kv_row_stride() + h * kv.head_dim;
        rotate(k, cos_sin, kv.head_dim, p.interleaved);
        const std::int64_t slot =
            ((block * kv.kv_heads + h) * kv.block_size + position % kv.block_size) * kv.head_dim;
        for (int i = 0; i < kv.head_dim; ++i) {
          store(kv.k, kv.dtype, slot + i, k[i]);
          store(kv.v, kv.dtype, slot + i, v[i]);
        }
      }
    }
  }
}

void swiglu(const SwigluParams& p) {
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    for (std::int64_t i = 0; i < p.intermediate; ++i) {
      const double gate = p.gate.f32()[t * p.stride + i], up = p.up.f32()[t * p.stride + i];
      p.y.f32()[t * p.y_stride + i] = static_cast<float>(gate / (1.0 + std::exp(-gate)) * up);
    }
  }
}

}  // namespace snug::kernels::ref
