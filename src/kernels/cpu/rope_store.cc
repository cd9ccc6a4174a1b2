#include "kernels/cpu/targets.h"
//
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/thread_pool.h"
#include "core/dtype.h"
#include "kernels/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope_store.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace snug::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// head_dim is a multiple of 8, so its half is one of 4: vectors of 4 lanes leave no tail.
using Quad = hn::CappedTag<float, 4>;

HWY_INLINE void Rotate(float* x, const float* cos_sin, int head_dim, bool interleaved) {
  const Quad d;
  const int half = head_dim / 2;
  for (int i = 0; i < half; i += static_cast<int>(hn::Lanes(d))) {
    const auto c = hn::LoadU(d, cos_sin + i), s = hn::LoadU(d, cos_sin + half + i);
    hn::Vec<Quad> a, b;
    if (interleaved) {
      hn::LoadInterleaved2(d, x + 2 * i, a, b);
    } else {
      a = hn::LoadU(d, x + i);
      b = hn::LoadU(d, x + half + i);
    }
    const auto rotated_a = hn::NegMulAdd(b, s, hn::Mul(a, c));
    const auto rotated_b = hn::MulAdd(a, s, hn::Mul(b, c));
    if (interleaved) {
      hn::StoreInterleaved2(rotated_a, rotated_b, d, x + 2 * i);
    } else {
      hn::StoreU(rotated_a, d, x + i);
      hn::StoreU(rotated_b, d, x + half + i);
    }
  }
}

// n is a multiple of 8.
HWY_INLINE void StoreAs(DType dtype, const float* x, int n, void* base, std::int64_t index) {
  if (dtype == DType::f32) {
    std::memcpy(static_cast<float*>(base) + index, x, static_cast<std::size_t>(n) * sizeof(float));
    return;
  }
  std::uint16_t* to = static_cast<std::uint16_t*>(base) + index;
  if (dtype == DType::bf16) {
    for (int i = 0; i < n; ++i) to[i] = bf16_from_f32(x[i]);
    return;
  }
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < n; ++i) to[i] = f16_from_f32(std::clamp(x[i], -65504.0f, 65504.0f));
#else
  const Quad d;
  const hn::Rebind<hwy::float16_t, Quad> d16;
  const auto top = hn::Set(d, 65504.0f), bottom = hn::Set(d, -65504.0f);
  for (int i = 0; i < n; i += static_cast<int>(hn::Lanes(d))) {
    auto v = hn::LoadU(d, x + i);
    v = hn::IfThenElse(hn::Gt(v, top), top, v);  // unlike Min and Max, keeps a NaN
    v = hn::IfThenElse(hn::Lt(v, bottom), bottom, v);
    hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(to + i));
  }
#endif
}

void RopeStoreRow(const RopeStoreParams& p, std::int64_t row, const std::int32_t* page_table) {
  const kv::PagedLayer& kv = p.kv;
  const float* cos_sin = p.cos_sin + row * kv.head_dim;
  for (int h = 0; h < p.heads; ++h) {
    Rotate(p.q.f32() + row * p.q_row_stride() + h * kv.head_dim, cos_sin, kv.head_dim, p.interleaved);
  }
  const std::int64_t position = p.positions[row];
  const std::int64_t block = page_table[position / kv.block_size];
  for (int h = 0; h < kv.kv_heads; ++h) {
    float* k = p.k.f32() + row * p.kv_row_stride() + h * kv.head_dim;
    const float* v = p.v.f32() + row * p.kv_row_stride() + h * kv.head_dim;
    const std::int64_t slot =
        ((block * kv.kv_heads + h) * kv.block_size + position % kv.block_size) * kv.head_dim;
    Rotate(k, cos_sin, kv.head_dim, p.interleaved);
    StoreAs(kv.dtype, k, kv.head_dim, kv.k, slot);
    StoreAs(kv.dtype, v, kv.head_dim, kv.v, slot);
  }
}

}  // namespace snug::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace snug::kernels {

HWY_EXPORT(RopeStoreRow);

namespace cpu {

void rope_store(const RopeStoreParams& p) {
  // Each piece of rows walks the sequences once and does its part of each.
  const auto rows = [&](std::int64_t begin, std::int64_t end, int) {
    for (const kv::SequenceView& sequence : p.sequences) {
      const std::int64_t from = std::max<std::int64_t>(begin, sequence.q_begin);
      const std::int64_t to = std::min<std::int64_t>(end, std::int64_t{sequence.q_begin} + sequence.q_len);
      for (std::int64_t row = from; row < to; ++row) {
        HWY_DYNAMIC_DISPATCH(RopeStoreRow)(p, row, sequence.page_table);
      }
    }
  };
  if (p.stream.pool == nullptr) return rows(0, p.tokens, 0);
  p.stream.pool->parallel_for(p.tokens, 16, rows);
}

}  // namespace cpu
}  // namespace snug::kernels
#endif
