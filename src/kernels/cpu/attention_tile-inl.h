// The vector code of the attention, compiled once per instruction set (hence the toggling guard).
#if defined(SNUG_KERNELS_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_KERNELS_CPU_ATTENTION_TILE_INL_H_
#undef SNUG_KERNELS_CPU_ATTENTION_TILE_INL_H_
#else
#define SNUG_KERNELS_CPU_ATTENTION_TILE_INL_H_
#endif

#include <algorithm>
#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace snug::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using cpu::RowState;
using cpu::Tile;
using cpu::TileScratch;

using Float = hn::ScalableTag<float>;
using Int = hn::RebindToSigned<Float>;

HWY_INLINE std::int64_t LaneCount() {
  return static_cast<std::int64_t>(hn::Lanes(Float()));
}

// Rows padded to whole vectors; the padding repeats the last row's position and its results are dropped.
HWY_INLINE std::int64_t PaddedRows(const Tile& tile) {
  const std::int64_t rows = tile.tokens * (tile.p->heads / tile.p->kv.kv_heads), lanes = LaneCount();
  return (rows + lanes - 1) / lanes * lanes;
}

// c[i] = start[i] + sum over k of a[i * a_row + k * a_step] * b[k], for kRows rows of kVectors vectors;
// start is c[i] * rescale, or 0 where rescale is null. Each sum runs in the order of k.
template <int kRows, int kVectors>
HWY_INLINE void Product(const float* HWY_RESTRICT a, std::int64_t a_row, std::int64_t a_step,
                        const float* HWY_RESTRICT b, std::int64_t depth, const float* HWY_RESTRICT rescale,
                        float* HWY_RESTRICT c) {
  const Float d;
  const std::int64_t lanes = LaneCount(), width = kVectors * lanes;
  hn::Vec<Float> sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) {
      sum[i][j] = rescale == nullptr
                      ? hn::Zero(d)
                      : hn::Mul(hn::Load(d, c + i * width + j * lanes), hn::Load(d, rescale + j * lanes));
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    hn::Vec<Float> row[kVectors];
    for (int j = 0; j < kVectors; ++j) row[j] = hn::Load(d, b + k * width + j * lanes);
    for (int i = 0; i < kRows; ++i) {
      const auto x = hn::Set(d, a[i * a_row + k * a_step]);
      for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::MulAdd(x, row[j], sum[i][j]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) hn::Store(sum[i][j], d, c + i * width + j * lanes);
  }
}

// n is a multiple of 8.
HWY_INLINE void ToFloat(DType dtype, const void* base, std::int64_t index, std::int64_t n,
                        float* HWY_RESTRICT to) {
  const hn::CappedTag<float, 8> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  switch (dtype) {
    case DType::f32:
      for (std::int64_t i = 0; i < n; i += lanes) {
        hn::Store(hn::LoadU(d, static_cast<const float*>(base) + index + i), d, to + i);
      }
      break;
    case DType::f16: {
      const hn::Rebind<hwy::float16_t, decltype(d)> d16;
      const auto* from = static_cast<const hwy::float16_t*>(base) + index;
      for (std::int64_t i = 0; i < n; i += lanes) {
        hn::Store(hn::PromoteTo(d, hn::LoadU(d16, from + i)), d, to + i);
      }
      break;
    }
    case DType::bf16: {
      const hn::Rebind<hwy::bfloat16_t, decltype(d)> d16;
      const auto* from = static_cast<const hwy::bfloat16_t*>(base) + index;
      for (std::int64_t i = 0; i < n; i += lanes) {
        hn::Store(hn::PromoteTo(d, hn::LoadU(d16, from + i)), d, to + i);
      }
      break;
    }
  }
}

// K and V of tokens [begin, begin + kStep) to float32. Only tokens that some row sees are read: the rest of a
// page may hold anything, and pages before the window may be gone. They become zeros, up to a multiple of 8
// tokens.
HWY_INLINE void LoadStep(const Tile& tile, std::int64_t begin, const TileScratch& s) {
  const kv::PagedLayer& kv = tile.p->kv;
  const std::int64_t from = std::max(begin, tile.begin_position());
  const std::int64_t to = std::min(begin + cpu::kStep, tile.end_position());
  const std::int64_t dim = kv.head_dim, padded = (to - begin + 7) / 8 * 8;
  std::fill(s.k, s.k + (from - begin) * dim, 0.0f);
  std::fill(s.v, s.v + (from - begin) * dim, 0.0f);
  std::fill(s.k + (to - begin) * dim, s.k + padded * dim, 0.0f);
  std::fill(s.v + (to - begin) * dim, s.v + padded * dim, 0.0f);
  for (std::int64_t t = from; t < to;) {
    const std::int64_t slot = t % kv.block_size, n = std::min(kv.block_size - slot, to - t);
    const std::int64_t block = tile.sequence->page_table[t / kv.block_size];
    const std::int64_t index = ((block * kv.kv_heads + tile.kv_head) * kv.block_size + slot) * dim;
    ToFloat(kv.dtype, kv.k, index, n * dim, s.k + (t - begin) * dim);
    ToFloat(kv.dtype, kv.v, index, n * dim, s.v + (t - begin) * dim);
    t += n;
  }
}

// Where the next step's K and V lie, in groups of 8 tokens: fetched from memory while this step computes.
struct NextStep {
  static constexpr int kGroups = cpu::kStep / 8;
  const std::byte* k[kGroups] = {};
  const std::byte* v[kGroups] = {};
  std::int64_t bytes = 0;  // of a group

  static void Fetch(const std::byte* from, std::int64_t bytes) {
    if (from == nullptr) return;
    for (std::int64_t i = 0; i < bytes; i += 64) hwy::Prefetch(from + i);
  }
};

HWY_INLINE NextStep FindNextStep(const Tile& tile, std::int64_t begin, std::int64_t end) {
  const kv::PagedLayer& kv = tile.p->kv;
  const auto size = static_cast<std::int64_t>(size_of(kv.dtype));
  NextStep next;
  next.bytes = 8 * kv.head_dim * size;
  for (int g = 0; g < NextStep::kGroups && begin + 8 * g < end; ++g) {
    const std::int64_t t = begin + 8 * g, block = tile.sequence->page_table[t / kv.block_size];
    const std::int64_t row = (block * kv.kv_heads + tile.kv_head) * kv.block_size + t % kv.block_size;
    next.k[g] = static_cast<const std::byte*>(kv.k) + row * kv.head_dim * size;
    next.v[g] = static_cast<const std::byte*>(kv.v) + row * kv.head_dim * size;
  }
  return next;
}

// Scores that a row must not see become minus infinity.
template <int kVectors>
HWY_INLINE void Mask(std::int64_t begin, std::int64_t tokens, std::int64_t window,
                     const std::int32_t* positions, float* scores) {
  const Float d;
  const Int di;
  const std::int64_t lanes = LaneCount(), width = kVectors * lanes;
  const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  // Without a window, one that reaches before position 0.
  const auto reach = hn::Set(
      di, static_cast<std::int32_t>(window > 0 ? std::min<std::int64_t>(window, INT32_MAX) : INT32_MAX));
  for (int j = 0; j < kVectors; ++j) {
    const auto last = hn::Load(di, positions + j * lanes), before = hn::Sub(last, reach);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto position = hn::Set(di, static_cast<std::int32_t>(begin + t));
      const auto unseen = hn::Or(hn::Gt(position, last), hn::Gt(hn::Add(before, hn::Set(di, 1)), position));
      float* score = scores + t * width + j * lanes;
      hn::Store(hn::IfThenElse(hn::RebindMask(d, unseen), hidden, hn::Load(d, score)), d, score);
    }
  }
}

// Scores become exp(score - max); max and sum move on; rescale is what the older terms shrink by.
template <int kVectors>
HWY_INLINE void Softmax(std::int64_t tokens, float* HWY_RESTRICT scores, float* HWY_RESTRICT max,
                        float* HWY_RESTRICT sum, float* HWY_RESTRICT rescale) {
  const Float d;
  const std::int64_t lanes = LaneCount(), width = kVectors * lanes;
  for (int j = 0; j < kVectors; ++j) {
    float* score = scores + j * lanes;
    const auto old_max = hn::Load(d, max + j * lanes);
    auto even = old_max, odd = old_max;  // tokens is a multiple of 8
    for (std::int64_t t = 0; t < tokens; t += 2) {
      even = hn::Max(even, hn::Load(d, score + t * width));
      odd = hn::Max(odd, hn::Load(d, score + (t + 1) * width));
    }
    const auto new_max = hn::Max(even, odd);
    auto terms = hn::Zero(d);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto e = ExpOfNonPositive(d, hn::Sub(hn::Load(d, score + t * width), new_max));
      hn::Store(e, d, score + t * width);
      terms = hn::Add(terms, e);
    }
    const auto shrink = ExpOfNonPositive(d, hn::Sub(old_max, new_max));
    hn::Store(shrink, d, rescale + j * lanes);
    hn::Store(new_max, d, max + j * lanes);
    hn::Store(hn::MulAdd(hn::Load(d, sum + j * lanes), shrink, terms), d, sum + j * lanes);
  }
}

// One step of one panel, whose first row is `row`. `next` is null in all panels but the first.
template <int kVectors>
HWY_NOINLINE void PanelStep(const Tile& tile, const TileScratch& s, std::int64_t begin, std::int64_t row,
                            const NextStep* next, const RowState& state) {
  constexpr int kRows = kVectors == 1 ? 8 : 4;  // 8 to 12 independent sums hide the latency of a multiply-add
  const std::int64_t width = kVectors * LaneCount(), dim = tile.p->kv.head_dim, window = tile.p->window;
  const std::int64_t first = s.positions[row], last = s.positions[row + width - 1];
  if (begin > last || (window > 0 && begin + cpu::kStep <= first - window + 1)) return;  // nobody sees it
  const std::int64_t tokens = (std::min<std::int64_t>(cpu::kStep, last - begin + 1) + 7) / 8 * 8;
  for (std::int64_t t = 0; t < tokens; t += kRows) {
    if (next != nullptr && t % 8 == 0) NextStep::Fetch(next->k[t / 8], next->bytes);
    Product<kRows, kVectors>(s.k + t * dim, dim, 1, s.q + row * dim, dim, nullptr, s.scores + t * width);
  }
  if (begin + tokens - 1 > first || (window > 0 && begin <= last - window)) {
    Mask<kVectors>(begin, tokens, window, s.positions + row, s.scores);
  }
  HWY_ALIGN float rescale[cpu::kPanelVectors * cpu::kMaxLanes];
  Softmax<kVectors>(tokens, s.scores, state.max + row, state.sum + row, rescale);
  std::int64_t group = 0;  // of the next step's V, spread over this loop
  for (std::int64_t i = 0; i < dim; i += kRows) {
    for (; next != nullptr && group < NextStep::kGroups && group * dim <= i * NextStep::kGroups; ++group) {
      NextStep::Fetch(next->v[group], next->bytes);
    }
    Product<kRows, kVectors>(s.v + i, 1, dim, s.scores, tokens, rescale, state.out + row * dim + i * width);
  }
}

// Calls fn(row, width) for each panel.
template <class Fn>
HWY_INLINE void ForPanels(const Tile& tile, Fn&& fn) {
  const std::int64_t rows = PaddedRows(tile), full = cpu::kPanelVectors * LaneCount();
  for (std::int64_t row = 0; row < rows; row += full) fn(row, std::min(full, rows - row));
}

HWY_INLINE void PackQueries(const Tile& tile, const TileScratch& s) {
  const AttentionParams& p = *tile.p;
  const std::int64_t group = p.heads / p.kv.kv_heads, dim = p.kv.head_dim, rows = tile.tokens * group;
  ForPanels(tile, [&](std::int64_t row, std::int64_t width) {
    float* panel = s.q + row * dim;
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t r = std::min(row + i, rows - 1);
      s.positions[row + i] = static_cast<std::int32_t>(tile.first_position() + r / group);
      const std::int64_t token = tile.sequence->q_begin + tile.first + r / group;
      const float* q = p.q.f32() + token * p.row_stride() + (tile.kv_head * group + r % group) * dim;
      for (std::int64_t k = 0; k < dim; ++k) panel[k * width + i] = q[k] * p.scale;
    }
  });
}

HWY_INLINE void Reset(const Tile& tile, const RowState& state) {
  const std::int64_t rows = PaddedRows(tile);
  // A finite lowest value: minus infinity less minus infinity would be NaN.
  std::fill(state.max, state.max + rows, -FLT_MAX);
  std::fill(state.sum, state.sum + rows, 0.0f);
  std::fill(state.out, state.out + rows * tile.p->kv.head_dim, 0.0f);
}

// Attends to the segment that begins at `begin`; the queries are packed. The caller goes on up to token
// `until`.
HWY_INLINE void SegmentSteps(const Tile& tile, const TileScratch& s, std::int64_t begin, std::int64_t until,
                             const RowState& state) {
  Reset(tile, state);
  const std::int64_t end = std::min(begin + cpu::kSegment, tile.end_position());
  for (std::int64_t t = begin; t < end; t += cpu::kStep) {
    if (t + cpu::kStep <= tile.begin_position()) continue;
    LoadStep(tile, t, s);
    const NextStep next = FindNextStep(tile, t + cpu::kStep, std::min(until, tile.end_position()));
    ForPanels(tile, [&](std::int64_t row, std::int64_t width) {
      const std::int64_t vectors = width / LaneCount();
      const NextStep* fetch = row == 0 ? &next : nullptr;
      if (vectors == 3) return PanelStep<3>(tile, s, t, row, fetch, state);
      if (vectors == 2) return PanelStep<2>(tile, s, t, row, fetch, state);
      PanelStep<1>(tile, s, t, row, fetch, state);
    });
  }
}

// total = total followed by segment.
HWY_INLINE void Merge(const Tile& tile, const RowState& segment, const RowState& total) {
  const Float d;
  const std::int64_t dim = tile.p->kv.head_dim, lanes = LaneCount();
  ForPanels(tile, [&](std::int64_t row, std::int64_t width) {
    for (std::int64_t i = row; i < row + width; i += lanes) {
      const auto max_a = hn::Load(d, total.max + i), max_b = hn::Load(d, segment.max + i);
      const auto max = hn::Max(max_a, max_b);
      const auto a = ExpOfNonPositive(d, hn::Sub(max_a, max)), b = ExpOfNonPositive(d, hn::Sub(max_b, max));
      hn::Store(max, d, total.max + i);
      hn::Store(hn::MulAdd(hn::Load(d, total.sum + i), a, hn::Mul(hn::Load(d, segment.sum + i), b)), d,
                total.sum + i);
      const std::int64_t panel = row * dim + (i - row);
      for (std::int64_t k = 0; k < dim; ++k) {
        float* to = total.out + panel + k * width;
        hn::Store(hn::MulAdd(hn::Load(d, to), a, hn::Mul(hn::Load(d, segment.out + panel + k * width), b)), d,
                  to);
      }
    }
  });
}

HWY_INLINE void WriteOut(const Tile& tile, const RowState& total) {
  const AttentionParams& p = *tile.p;
  const std::int64_t group = p.heads / p.kv.kv_heads, dim = p.kv.head_dim, rows = tile.tokens * group;
  ForPanels(tile, [&](std::int64_t row, std::int64_t width) {
    for (std::int64_t r = row; r < std::min(rows, row + width); ++r) {
      const std::int64_t token = tile.sequence->q_begin + tile.first + r / group;
      float* out = p.out.f32() + (token * p.heads + tile.kv_head * group + r % group) * dim;
      const float* from = total.out + row * dim + (r - row);
      const float scale = 1.0f / total.sum[r];
      for (std::int64_t k = 0; k < dim; ++k) out[k] = from[k * width] * scale;
    }
  });
}

}  // namespace snug::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
