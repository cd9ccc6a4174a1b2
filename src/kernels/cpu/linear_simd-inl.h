// Byte products for the integer kernels: what Highway 1.0.3 lacks, per instruction set. A "word" is a 32-bit
// lane that holds 4 consecutive columns of one row; products of a word with 4 activations end in the same
// lane.
#if defined(SNUG_LINEAR_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_LINEAR_SIMD_INL_H_
#undef SNUG_LINEAR_SIMD_INL_H_
#else
#define SNUG_LINEAR_SIMD_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace snug::kernels::cpu {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI32 = hn::Repartition<std::int32_t, DF>;
using DI16 = hn::Repartition<std::int16_t, DF>;
using DI8 = hn::Repartition<std::int8_t, DF>;
using DU8 = hn::Repartition<std::uint8_t, DF>;
using DU16 = hn::Repartition<std::uint16_t, DF>;
using VF = hn::Vec<DF>;
using VI32 = hn::Vec<DI32>;
using VI16 = hn::Vec<DI16>;
using VI8 = hn::Vec<DI8>;
using VU8 = hn::Vec<DU8>;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
constexpr int kVectors = 2;  // vectors of rows in a panel
constexpr int kPanelRows = kVectors * kLanes;

HWY_INLINE VU8 load_words(const std::uint8_t* p) {
  return hn::LoadU(DU8(), p);
}

HWY_INLINE VI8 broadcast_word(const std::int8_t* p) {
  std::int32_t word;
  std::memcpy(&word, p, 4);
  return hn::BitCast(DI8(), hn::Set(DI32(), word));
}

// Names the value's register to the compiler: it then neither reassociates sums nor hoists products, which
// would spill most of the accumulators.
template <class V>
HWY_INLINE V in_order(V v) {
#if defined(__x86_64__)
  __asm__("" : "+v"(v.raw));
#endif
  return v;
}

// Products of unsigned codes (at most 63) or of signed bytes with signed activations. Acc is where products
// add up; at most `fold` of them (see kFold below) before widen() makes 32-bit sums of it.
#if HWY_TARGET == \
    HWY_AVX3_DL  // VNNI: everything in 32 bits. Signed codes come with 128 added (kBiasedSigned).

constexpr bool kBiasedSigned = true;
constexpr bool kNarrowSums = false;

struct DotUnsigned {
  using Acc = VI32;
  static HWY_INLINE Acc multiply_add(Acc acc, VU8 w, VI8 x) {
    // By hand, since Highway's target string lacks avx512vnni (its run-time check has it).
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc.raw) : "v"(w.raw), "v"(x.raw));
    return acc;
  }
  static HWY_INLINE Acc multiply(VU8 w, VI8 x) { return multiply_add(hn::Zero(DI32()), w, x); }
  static HWY_INLINE Acc add(Acc a, Acc b) { return hn::Add(a, b); }
  static HWY_INLINE VI32 widen(Acc a) { return a; }
};
using DotSigned = DotUnsigned;

#elif HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

constexpr bool kBiasedSigned = false;
constexpr bool kNarrowSums = true;

HWY_INLINE VI16 multiply_pairs(VU8 w, VI8 x) {
#if HWY_TARGET == HWY_AVX2
  return VI16{_mm256_maddubs_epi16(w.raw, x.raw)};
#else
  return VI16{_mm512_maddubs_epi16(w.raw, x.raw)};
#endif
}

HWY_INLINE VI32 add_pairs(VI16 a) {
#if HWY_TARGET == HWY_AVX2
  return VI32{_mm256_madd_epi16(a.raw, hn::Set(DI16(), 1).raw)};
#else
  return VI32{_mm512_madd_epi16(a.raw, hn::Set(DI16(), 1).raw)};
#endif
}

// x with the sign of w (0 where w is 0).
HWY_INLINE VI8 copy_sign_to(VI8 x, VI8 w) {
#if HWY_TARGET == HWY_AVX2
  return VI8{_mm256_sign_epi8(x.raw, w.raw)};
#else
  return VI8{_mm512_mask_sub_epi8(x.raw, _mm512_movepi8_mask(w.raw), _mm512_setzero_si512(), x.raw)};
#endif
}

struct DotUnsigned {
  using Acc = VI16;
  static HWY_INLINE Acc multiply(VU8 w, VI8 x) { return multiply_pairs(w, x); }
  static HWY_INLINE Acc multiply_add(Acc acc, VU8 w, VI8 x) {
    return in_order(hn::Add(acc, multiply_pairs(w, x)));
  }
  static HWY_INLINE Acc add(Acc a, Acc b) { return hn::Add(a, b); }
  static HWY_INLINE VI32 widen(Acc a) { return add_pairs(a); }
};

// |w| · (x with w's sign): pairs are at most 2 · 128 · 127, so they fit, but not two of them.
struct DotSigned {
  using Acc = VI32;
  static HWY_INLINE Acc multiply(VU8 w, VI8 x) {
    const VI8 signed_w = hn::BitCast(DI8(), w);
    return add_pairs(multiply_pairs(hn::BitCast(DU8(), hn::Abs(signed_w)), copy_sign_to(x, signed_w)));
  }
  static HWY_INLINE Acc multiply_add(Acc acc, VU8 w, VI8 x) { return in_order(hn::Add(acc, multiply(w, x))); }
  static HWY_INLINE Acc add(Acc a, Acc b) { return hn::Add(a, b); }
  static HWY_INLINE VI32 widen(Acc a) { return a; }
};

#else  // NEON: signed bytes times signed bytes serve both kinds, as unsigned codes are at most 63.

constexpr bool kBiasedSigned = false;
constexpr bool kNarrowSums = false;

struct DotUnsigned {
  using Acc = VI32;
  static HWY_INLINE Acc multiply_add(Acc acc, VU8 w, VI8 x) {
    const VI8 v = hn::BitCast(DI8(), w);
#if defined(__ARM_FEATURE_DOTPROD)
    return VI32(vdotq_s32(acc.raw, v.raw, x.raw));
#else
    const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(v.raw), vget_low_s8(x.raw)));
    const int32x4_t high = vpaddlq_s16(vmull_s8(vget_high_s8(v.raw), vget_high_s8(x.raw)));
    return VI32(vaddq_s32(acc.raw, vpaddq_s32(low, high)));
#endif
  }
  static HWY_INLINE Acc multiply(VU8 w, VI8 x) {
    return multiply_add(hn::Zero(DI32()), w, x);
  }
  static HWY_INLINE Acc add(Acc a, Acc b) {
    return hn::Add(a, b);
  }
  static HWY_INLINE VI32 widen(Acc a) {
    return a;
  }
};
using DotSigned = DotUnsigned;

#endif

#endif  // HWY_TARGET != HWY_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace snug::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // SNUG_LINEAR_SIMD_INL_H_
