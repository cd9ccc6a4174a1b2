// Quantised weights times activations rounded to 8 bits.
//
// One token streams the packed panel once, taking codes apart in registers. Many tokens share a panel that is
// taken apart into bytes once per chunk of columns. Both add the same numbers in the same order, so that a
// token's result does not depend on its companions: exact integers within a block, then per block y += dot ·
// (d · x_scale) and y += m · x_sum.

#include <bit>
#include <cstring>
#include <limits>

#include "kernels/cpu/linear_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_quant.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/linear_codes-inl.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/linear_layout.h"

HWY_BEFORE_NAMESPACE();
namespace snug::kernels::cpu {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

QuantKernels choose_quant_kernels(quant::Format) {
  return {};
}
void quantize_tokens(const float*, std::int64_t, std::int64_t, std::int64_t, const QuantizedTokens&,
                     const QuantizedTokens*) {}

#else

// Tokens that multiply() takes at once: accumulators must fit the registers.
constexpr int kGroup = kLanes == 16 ? 8 : 4;

// ---- activations

// 32 values → bytes in order, scale, and the sums of the two halves' bytes.
HWY_INLINE void quantize_block(const float* x, std::int8_t* q, float& scale, float (&sums)[2]) {
  const DF df;
  const DI32 di;
  constexpr float kTiny = 1e-30f;  // below it a block counts as zero: 127 / most must be finite
  constexpr int kParts = 32 / kLanes;
  VF v[kParts];
  VI32 bits = hn::Zero(di);  // magnitudes as integers, so that NaN counts as largest
  for (int i = 0; i < kParts; ++i) {
    v[i] = hn::LoadU(df, x + i * kLanes);
    bits = hn::Max(bits, hn::BitCast(di, hn::Abs(v[i])));
  }
  const float most = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(di, bits)));
  const bool finite = most <= std::numeric_limits<float>::max();
  if (!finite || most < kTiny) {
    std::memset(q, 0, 32);
    scale = finite ? 0 : most;  // infinity and NaN stay visible: 0 times them is NaN
    sums[0] = sums[1] = 0;
    return;
  }
  scale = most * (1.0f / 127.0f);
  const VF inverse = hn::Set(df, 127.0f / most);
  VI32 half[2] = {hn::Zero(di), hn::Zero(di)};
  for (int i = 0; i < kParts; ++i) {
    const VI32 rounded = hn::NearestInt(hn::Mul(v[i], inverse));
    half[2 * i / kParts] = hn::Add(half[2 * i / kParts], rounded);
    const hn::Rebind<std::int8_t, DF> d8;
    hn::StoreU(hn::DemoteTo(d8, rounded), d8, q + i * kLanes);
  }
  for (int i = 0; i < 2; ++i) sums[i] = static_cast<float>(hn::GetLane(hn::SumOfLanes(di, half[i])));
}

struct QuantizedBlock {
  HWY_ALIGN std::int8_t bytes[32] = {};
  float scale = 0;
  float sums[2] = {0, 0};  // of the bytes of each half
};

// Block `b` of token `begin + t`, token t of its group.
HWY_INLINE void store_block(const QuantizedBlock& block, std::int64_t begin, std::int64_t t, std::int64_t b,
                            const QuantizedTokens& out) {
  const std::int64_t group = out.group, blocks = out.cols / 32;
  std::int8_t* q = out.q + begin * out.cols;
  for (int s = 0; s < 8; ++s) std::memcpy(q + ((8 * b + s) * group + t) * 4, block.bytes + 4 * s, 4);
  float* sum16 = out.sum16 + begin * 2 * blocks;
  sum16[2 * b * group + t] = block.scale * block.sums[0];
  sum16[(2 * b + 1) * group + t] = block.scale * block.sums[1];
  out.scale[begin * blocks + b * group + t] = block.scale;
  out.sum32[begin * blocks + b * group + t] = block.scale * (block.sums[0] + block.sums[1]);
}

void quantize_tokens(const float* x, std::int64_t x_stride, std::int64_t begin, std::int64_t count,
                     const QuantizedTokens& out, const QuantizedTokens* rest) {
  for (std::int64_t t = 0; t < out.group; ++t) {
    for (std::int64_t b = 0; b < out.cols / 32; ++b) {
      QuantizedBlock block, second;
      const float* values = x + (begin + t) * x_stride + 32 * b;
      if (t < count) quantize_block(values, block.bytes, block.scale, block.sums);
      store_block(block, begin, t, b, out);
      if (rest == nullptr) continue;
      float left[32];
      if (t < count) {
        for (int i = 0; i < 32; ++i) left[i] = values[i] - block.scale * static_cast<float>(block.bytes[i]);
        quantize_block(left, second.bytes, second.scale, second.sums);
      }
      store_block(second, begin, t, b, *rest);
    }
  }
}

// ---- one token

// Sums of the products of 4 low and 4 high steps of a sub.
template <Codes kCodes>
struct SubSums {
  using Traits = CodeTraits<kCodes>;
  using Dot = typename Traits::Dot;
  static constexpr int kFold = Traits::kFold < 4 ? Traits::kFold : 4;
  typename Dot::Acc low_acc, high_acc;
  VI32 low, high;

  template <int kStep>
  HWY_INLINE void step(const std::uint8_t* planes, int r, VI8 x_low, VI8 x_high) {
    VU8 w_low, w_high;
    load_steps<kCodes, kStep>(planes, r, w_low, w_high);
    if constexpr (kStep % kFold == 0) {
      low_acc = Dot::multiply(w_low, x_low);
      high_acc = Dot::multiply(w_high, x_high);
    } else {
      low_acc = Dot::multiply_add(low_acc, w_low, x_low);
      high_acc = Dot::multiply_add(high_acc, w_high, x_high);
    }
    if constexpr (kFold < 4 && kStep % kFold == kFold - 1) {
      low = kStep < kFold ? Dot::widen(low_acc) : hn::Add(low, Dot::widen(low_acc));
      high = kStep < kFold ? Dot::widen(high_acc) : hn::Add(high, Dot::widen(high_acc));
    }
  }
  HWY_INLINE VI32 low_sum() const { return kFold < 4 ? low : Dot::widen(low_acc); }
  HWY_INLINE VI32 high_sum() const { return kFold < 4 ? high : Dot::widen(high_acc); }
  HWY_INLINE VI32 sum() const {
    if constexpr (Traits::kFold == 8) return Dot::widen(Dot::add(low_acc, high_acc));
    return hn::Add(low_sum(), high_sum());
  }
};

// How far ahead the one panel that streams by is asked for: memory is slower than the hardware guesses.
constexpr int kPrefetch = 2048;

template <quant::Format kFormat>
void multiply_one(const std::uint8_t* panel, const QuantizedTokens& x, PanelOut out) {
  using P = Panel<kFormat>;
  const DF df;
  HWY_ALIGN float tile[kPanelRows] = {};
  for (int r = 0; r < out.rows; ++r) tile[r] = out.y[r];
  VF acc[kVectors] = {hn::Load(df, tile), hn::Load(df, tile + kLanes)};
  const std::int8_t* q = x.q;
  const float* scale = x.scale;
  const float* sum = P::kBlocks == 2 ? x.sum16 : x.sum32;
  const std::uint8_t* end = panel + x.cols / P::kPacked.unit_columns() * P::kUnit;
  for (const std::uint8_t* unit = panel; unit < end; unit += P::kUnit) {
    VF d0[kVectors], m0[kVectors];
    for (int r = 0; r < kVectors; ++r) P::header(unit, r, d0[r], m0[r]);
    const std::uint8_t* sub = unit + P::kHeader;
    for (int s = 0; s < P::kPacked.subs; ++s, sub += P::kSub, q += 32, sum += P::kBlocks) {
      const std::uint8_t* planes = sub + P::kPlanes;
      for (int i = 0; i < P::kSub; i += 64) hwy::Prefetch(sub + kPrefetch + i);
      SubSums<P::kCodes> sums[kVectors];
      const auto step = [&]<int kStep>() HWY_ATTR {
        const VI8 x_low = broadcast_word(q + 4 * kStep), x_high = broadcast_word(q + 16 + 4 * kStep);
        for (int r = 0; r < kVectors; ++r) sums[r].template step<kStep>(planes, r, x_low, x_high);
      };
      step.template operator()<0>();
      step.template operator()<1>();
      step.template operator()<2>();
      step.template operator()<3>();
      const VF xs = hn::Set(df, *scale++);
      for (int r = 0; r < kVectors; ++r) {
        for (int b = 0; b < P::kBlocks; ++b) {
          const VI32 dot = P::kBlocks == 1 ? sums[r].sum() : b == 0 ? sums[r].low_sum() : sums[r].high_sum();
          VF d, m;
          P::scales(d0[r], m0[r], sub, b, r, d, m);
          acc[r] = hn::MulAdd(hn::ConvertTo(df, dot), hn::Mul(d, xs), acc[r]);
          if constexpr (P::kHasMin) acc[r] = hn::MulAdd(m, hn::Set(df, sum[b]), acc[r]);
        }
      }
    }
  }
  for (int r = 0; r < kVectors; ++r) hn::Store(acc[r], df, tile + r * kLanes);
  for (int r = 0; r < out.rows; ++r) out.y[r] = tile[r];
}

// ---- many tokens

template <quant::Format kFormat>
void unpack(const std::uint8_t* unit, std::int64_t columns, std::uint8_t* codes, float* scales) {
  using P = Panel<kFormat>;
  const DF df;
  for (std::int64_t u = 0; u < columns / P::kPacked.unit_columns(); ++u, unit += P::kUnit) {
    for (int r = 0; r < kVectors; ++r) {
      VF d0, m0;
      P::header(unit, r, d0, m0);
      const std::uint8_t* sub = unit + P::kHeader;
      std::uint8_t* out = codes + 4 * r * kLanes;
      float* out_scales = scales + r * kLanes;
      for (int s = 0; s < P::kPacked.subs; ++s, sub += P::kSub) {
        const auto step = [&]<int kStep>() HWY_ATTR {
          VU8 low, high;
          load_steps<P::kCodes, kStep>(sub + P::kPlanes, r, low, high);
          hn::StoreU(low, DU8(), out + 4 * kStep * kPanelRows);
          hn::StoreU(high, DU8(), out + 4 * (kStep + 4) * kPanelRows);
        };
        step.template operator()<0>();
        step.template operator()<1>();
        step.template operator()<2>();
        step.template operator()<3>();
        out += 32 * kPanelRows;
        for (int b = 0; b < P::kBlocks; ++b, out_scales += 2 * kPanelRows) {
          VF d, m;
          P::scales(d0, m0, sub, b, r, d, m);
          hn::StoreU(d, df, out_scales);
          hn::StoreU(m, df, out_scales + kPanelRows);
        }
      }
    }
    codes += 4 * kPanelRows * (P::kPacked.unit_columns() / 4);
    scales += 2 * kPanelRows * (P::kPacked.unit_columns() / P::kPacked.block());
  }
}

// One group of tokens; y is (kGroup, kPanelRows) with the given stride.
template <class Dot, int kFold, int kSteps, bool kHasMin>
HWY_INLINE void multiply_group(const std::uint8_t* codes, const float* scales, const std::int8_t* q,
                               const float* x_scale, const float* x_sum, std::int64_t blocks, float* y,
                               std::int64_t stride) {
  const DF df;
  VF acc[kGroup][kVectors];
  HWY_UNROLL(8)
  for (int t = 0; t < kGroup; ++t) {
    HWY_UNROLL(2)
    for (int r = 0; r < kVectors; ++r) acc[t][r] = hn::LoadU(df, y + t * stride + r * kLanes);
  }
  for (std::int64_t b = 0; b < blocks; ++b) {
    VI32 sum[kGroup][kVectors];
    HWY_UNROLL(4)
    for (int g = 0; g < kSteps / kFold; ++g) {
      typename Dot::Acc part[kGroup][kVectors];
      HWY_UNROLL(8)
      for (int s = 0; s < kFold; ++s) {
        VU8 w[kVectors];
        HWY_UNROLL(2)
        for (int r = 0; r < kVectors; ++r) w[r] = load_words(codes + 4 * r * kLanes);
        HWY_UNROLL(8)
        for (int t = 0; t < kGroup; ++t) {
          const VI8 x = broadcast_word(q + 4 * t);
          HWY_UNROLL(2)
          for (int r = 0; r < kVectors; ++r) {
            part[t][r] = s == 0 ? Dot::multiply(w[r], x) : Dot::multiply_add(part[t][r], w[r], x);
          }
        }
        codes += 4 * kPanelRows;
        q += 4 * kGroup;
      }
      HWY_UNROLL(8)
      for (int t = 0; t < kGroup; ++t) {
        HWY_UNROLL(2)
        for (int r = 0; r < kVectors; ++r) {
          const VI32 wide = Dot::widen(part[t][r]);
          sum[t][r] = g == 0 ? wide : in_order(hn::Add(sum[t][r], wide));
        }
      }
    }
    const float* xs = x_scale + (kSteps == 4 ? b / 2 : b) * kGroup;
    HWY_UNROLL(2)
    for (int r = 0; r < kVectors; ++r) {
      const VF d = hn::LoadU(df, scales + r * kLanes), m = hn::LoadU(df, scales + kPanelRows + r * kLanes);
      HWY_UNROLL(8)
      for (int t = 0; t < kGroup; ++t) {
        acc[t][r] = hn::MulAdd(hn::ConvertTo(df, sum[t][r]), hn::Mul(d, hn::Set(df, xs[t])), acc[t][r]);
        if constexpr (kHasMin) acc[t][r] = hn::MulAdd(m, hn::Set(df, x_sum[t]), acc[t][r]);
      }
    }
    scales += 2 * kPanelRows;
    x_sum += kGroup;
  }
  HWY_UNROLL(8)
  for (int t = 0; t < kGroup; ++t) {
    HWY_UNROLL(2)
    for (int r = 0; r < kVectors; ++r) hn::StoreU(acc[t][r], df, y + t * stride + r * kLanes);
  }
}

template <class Dot, int kFold, int kSteps, bool kHasMin>
void multiply(const std::uint8_t* codes, const float* scales, const QuantizedTokens& x, std::int64_t first,
              std::int64_t columns, std::int64_t begin, std::int64_t end, PanelOut out) {
  constexpr int kBlock = 4 * kSteps;
  const float* sums = kBlock == 16 ? x.sum16 : x.sum32;
  HWY_ALIGN float tile[kGroup * kPanelRows] = {};
  for (std::int64_t t = begin; t < end; t += kGroup) {
    const int count = static_cast<int>(end - t < kGroup ? end - t : kGroup);
    const bool whole = count == kGroup && out.rows == kPanelRows;
    float* y = out.y + t * out.stride;
    if (!whole) {
      for (int i = 0; i < count; ++i) {
        for (int r = 0; r < out.rows; ++r) tile[i * kPanelRows + r] = y[i * out.stride + r];
      }
    }
    multiply_group<Dot, kFold, kSteps, kHasMin>(
        codes, scales, x.q + t * x.cols + first * kGroup, x.scale + t * (x.cols / 32) + first / 32 * kGroup,
        sums + t * (x.cols / kBlock) + first / kBlock * kGroup, columns / kBlock, whole ? y : tile,
        whole ? out.stride : kPanelRows);
    if (!whole) {
      for (int i = 0; i < count; ++i) {
        for (int r = 0; r < out.rows; ++r) y[i * out.stride + r] = tile[i * kPanelRows + r];
      }
    }
  }
}

// ---- float32 values, for exact products and the embedding

template <quant::Format kFormat>
void decode(const std::uint8_t* unit, std::int64_t columns, float* panel) {
  using P = Panel<kFormat>;
  constexpr bool kSigned = CodeTraits<P::kCodes>::kSigned && !kBiasedSigned;
  constexpr int kOffset = CodeTraits<P::kCodes>::kSigned ? (kBiasedSigned ? 128 : 0) : P::kPacked.offset;
  const DF df;
  const DI32 di;
  const hn::Repartition<std::uint32_t, DF> du;
  for (std::int64_t u = 0; u < columns / P::kPacked.unit_columns(); ++u, unit += P::kUnit) {
    for (int r = 0; r < kVectors; ++r) {
      VF d0, m0;
      P::header(unit, r, d0, m0);
      const std::uint8_t* sub = unit + P::kHeader;
      float* out = panel + r * kLanes;
      for (int s = 0; s < P::kPacked.subs; ++s, sub += P::kSub, out += 32 * kPanelRows) {
        VF d[2], m[2];
        for (int b = 0; b < 2; ++b) P::scales(d0, m0, sub, b % P::kBlocks, r, d[b], m[b]);
        const auto write = [&](VU8 codes, int step, VF scale, VF least) HWY_ATTR {
          const VI32 word = hn::BitCast(di, codes);
          const VI32 bytes[4] = {hn::ShiftLeft<24>(word), hn::ShiftLeft<16>(word), hn::ShiftLeft<8>(word),
                                 word};
          for (int b = 0; b < 4; ++b) {
            const VI32 code = kSigned ? hn::ShiftRight<24>(bytes[b])
                                      : hn::BitCast(di, hn::ShiftRight<24>(hn::BitCast(du, bytes[b])));
            const VF q = hn::ConvertTo(df, kOffset == 0 ? code : hn::Sub(code, hn::Set(di, kOffset)));
            const VF value = P::kPacked.headers == 2 ? hn::MulAdd(q, scale, least) : hn::Mul(q, scale);
            hn::StoreU(value, df, out + (4 * step + b) * kPanelRows);
          }
        };
        const auto step = [&]<int kStep>() HWY_ATTR {
          VU8 low, high;
          load_steps<P::kCodes, kStep>(sub + P::kPlanes, r, low, high);
          write(low, kStep, d[0], m[0]);
          write(high, kStep + 4, d[1], m[1]);
        };
        step.template operator()<0>();
        step.template operator()<1>();
        step.template operator()<2>();
        step.template operator()<3>();
      }
    }
    panel += kPanelRows * P::kPacked.unit_columns();
  }
}

template <quant::Format kFormat>
QuantKernels kernels_of() {
  using P = Panel<kFormat>;
  using Traits = CodeTraits<P::kCodes>;
  constexpr int kSteps = P::kPacked.block() / 4;
  constexpr int kFold = Traits::kFold < kSteps ? Traits::kFold : kSteps;
  return {kPanelRows,
          kGroup,
          multiply_one<kFormat>,
          unpack<kFormat>,
          multiply<typename Traits::Dot, kFold, kSteps, P::kHasMin>,
          decode<kFormat>};
}

QuantKernels choose_quant_kernels(quant::Format format) {
  using quant::Format;
  switch (format) {
    case Format::q4_0:
      return kernels_of<Format::q4_0>();
    case Format::q4_1:
      return kernels_of<Format::q4_1>();
    case Format::q5_0:
      return kernels_of<Format::q5_0>();
    case Format::q5_1:
      return kernels_of<Format::q5_1>();
    case Format::q8_0:
      return kernels_of<Format::q8_0>();
    case Format::q2_k:
      return kernels_of<Format::q2_k>();
    case Format::q3_k:
      return kernels_of<Format::q3_k>();
    case Format::q4_k:
      return kernels_of<Format::q4_k>();
    case Format::q5_k:
      return kernels_of<Format::q5_k>();
    case Format::q6_k:
      return kernels_of<Format::q6_k>();
    case Format::iq4_nl:
      return kernels_of<Format::iq4_nl>();
    case Format::iq4_xs:
      return kernels_of<Format::iq4_xs>();
    case Format::f32:
    case Format::f16:
    case Format::bf16:
      break;
  }
  return {};
}

#endif  // HWY_TARGET == HWY_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace snug::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace snug::kernels::cpu {
HWY_EXPORT(choose_quant_kernels);
HWY_EXPORT(quantize_tokens);

QuantKernels quant_kernels(quant::Format format) {
  return HWY_DYNAMIC_DISPATCH(choose_quant_kernels)(format);
}

void quantize_group(const float* x, std::int64_t x_stride, std::int64_t begin, std::int64_t count,
                    const QuantizedTokens& out, const QuantizedTokens* rest) {
  HWY_DYNAMIC_DISPATCH(quantize_tokens)(x, x_stride, begin, count, out, rest);
}
}  // namespace snug::kernels::cpu
#endif  // HWY_ONCE
