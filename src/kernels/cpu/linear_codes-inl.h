// Reads a packed panel (see linear_layout.h): codes of a step, scales of a block.
#if defined(SNUG_LINEAR_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_LINEAR_CODES_INL_H_
#undef SNUG_LINEAR_CODES_INL_H_
#else
#define SNUG_LINEAR_CODES_INL_H_
#endif

#include <type_traits>

#include "kernels/cpu/linear_layout.h"
#include "kernels/cpu/linear_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace snug::kernels::cpu {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

template <int kBits>  // negative: to the right
HWY_INLINE VU8 shift_bytes(VU8 v) {
  const DU16 d;
  if constexpr (kBits > 0) {
    return hn::BitCast(DU8(), hn::ShiftLeft<kBits>(hn::BitCast(d, v)));
  } else if constexpr (kBits < 0) {
    return hn::BitCast(DU8(), hn::ShiftRight<-kBits>(hn::BitCast(d, v)));
  } else {
    return v;
  }
}

// Moves a field of each byte to where `mask` wants it.
template <int kBits>
HWY_INLINE VU8 field(VU8 v, std::uint8_t mask) {
  return hn::And(shift_bytes<kBits>(v), hn::Set(DU8(), mask));
}

HWY_INLINE VU8 iq4_values(VU8 codes) {
  alignas(16) static constexpr std::uint8_t kTable[16] = {
#define SNUG_IQ4(i) static_cast<std::uint8_t>(kIq4Values[i] + (kBiasedSigned ? 128 : 0))
      SNUG_IQ4(0),  SNUG_IQ4(1),  SNUG_IQ4(2),  SNUG_IQ4(3), SNUG_IQ4(4),  SNUG_IQ4(5),
      SNUG_IQ4(6),  SNUG_IQ4(7),  SNUG_IQ4(8),  SNUG_IQ4(9), SNUG_IQ4(10), SNUG_IQ4(11),
      SNUG_IQ4(12), SNUG_IQ4(13), SNUG_IQ4(14), SNUG_IQ4(15)
#undef SNUG_IQ4
  };
  return hn::TableLookupBytes(hn::LoadDup128(DU8(), kTable), codes);
}

// How products of one kind of code add up.
template <Codes kCodes>
struct CodeTraits {
  static constexpr bool kSigned = kCodes == Codes::s8 || kCodes == Codes::iq4;
  using Dot = std::conditional_t<kSigned, DotSigned, DotUnsigned>;
  // Products that an accumulator of Dot holds: 16-bit sums of pairs of codes · 127.
  static constexpr int kFold = !kNarrowSums || kSigned ? 8
                               : kCodes == Codes::u6   ? 2
                               : kCodes == Codes::u5   ? 4
                                                       : 8;
};

// Steps kStep and kStep + 4 of a sub whose planes begin at `p`, for vector `r` of rows.
template <Codes kCodes, int kStep>
HWY_INLINE void load_steps(const std::uint8_t* p, int r, VU8& low, VU8& high) {
  const auto word = [p, r](int j) { return load_words(p + 4 * (j * kPanelRows + r * kLanes)); };
  if constexpr (kCodes == Codes::s8) {
    low = word(kStep);
    high = word(kStep + 4);
    if constexpr (kBiasedSigned) {
      low = hn::Xor(low, hn::Set(DU8(), 0x80));
      high = hn::Xor(high, hn::Set(DU8(), 0x80));
    }
  } else if constexpr (kCodes == Codes::u2 || kCodes == Codes::u3) {
    low = field<-2 * kStep>(word(0), 3);
    high = field<-2 * kStep>(word(1), 3);
    if constexpr (kCodes == Codes::u3) {
      const VU8 third = word(2);
      low = hn::Or(low, field<2 - kStep>(third, 4));
      high = hn::Or(high, field<-2 - kStep>(third, 4));
    }
  } else {
    const VU8 nibbles = word(kStep);
    low = field<0>(nibbles, 15);
    high = field<-4>(nibbles, 15);
    if constexpr (kCodes == Codes::u5) {
      const VU8 fifth = word(4);
      low = hn::Or(low, field<4 - kStep>(fifth, 16));
      high = hn::Or(high, field<-kStep>(fifth, 16));
    } else if constexpr (kCodes == Codes::u6) {
      low = hn::Or(low, field<4 - 2 * kStep>(word(4), 48));
      high = hn::Or(high, field<4 - 2 * kStep>(word(5), 48));
    } else if constexpr (kCodes == Codes::iq4) {
      low = iq4_values(low);
      high = iq4_values(high);
    }
  }
}

HWY_INLINE VF load_f16(const std::uint8_t* p) {
  const hn::Rebind<hwy::float16_t, DF> d;
  return hn::PromoteTo(DF(), hn::LoadU(d, reinterpret_cast<const hwy::float16_t*>(p)));
}

template <bool kSigned>
HWY_INLINE VF load_byte_scale(const std::uint8_t* p) {
  if constexpr (kSigned) {
    const hn::Rebind<std::int8_t, DF> d;
    return hn::ConvertTo(DF(), hn::PromoteTo(DI32(), hn::LoadU(d, reinterpret_cast<const std::int8_t*>(p))));
  } else {
    const hn::Rebind<std::uint8_t, DF> d;
    return hn::ConvertTo(DF(), hn::PromoteTo(DI32(), hn::LoadU(d, p)));
  }
}

// The format's scales, as seen from one unit and one sub.
template <quant::Format kFormat>
struct Panel {
  static constexpr PackedFormat kPacked = packed_format(kFormat);
  static constexpr Codes kCodes = kPacked.codes;
  static constexpr int kBlocks = 32 / kPacked.block();  // scale blocks in a sub
  static constexpr int kHeader = kPacked.header_bytes(kPanelRows);
  static constexpr int kSub = kPacked.sub_bytes(kPanelRows);
  static constexpr int kUnit = kPacked.unit_bytes(kPanelRows);
  static constexpr int kPlanes = kPanelRows * (kPacked.scales_per_sub + kPacked.mins_per_sub);
  // With an m per block, beside d?
  static constexpr bool kHasMin =
      kPacked.headers == 2 || kPacked.offset != 0 || (kBiasedSigned && CodeTraits<kCodes>::kSigned);

  // d and m of block `block` of the sub at `sub`, for vector `r` of rows. `d0` and `m0` are the unit's.
  static HWY_INLINE void scales(VF d0, VF m0, const std::uint8_t* sub, int block, int r, VF& d, VF& m) {
    d = d0;
    m = m0;
    if constexpr (kPacked.scales_per_sub != 0) {
      d = hn::Mul(d0, load_byte_scale<kPacked.signed_scales>(sub + block * kPanelRows + r * kLanes));
    }
    if constexpr (kPacked.mins_per_sub != 0) {
      const std::uint8_t* mins = sub + (kPacked.scales_per_sub + block) * kPanelRows + r * kLanes;
      m = hn::Neg(hn::Mul(m0, load_byte_scale<false>(mins)));
    } else if constexpr (kPacked.headers == 1 && kHasMin) {
      constexpr float kOffset = CodeTraits<kCodes>::kSigned ? 128.0f : static_cast<float>(kPacked.offset);
      m = hn::Mul(d, hn::Set(DF(), -kOffset));
    }
  }
  static HWY_INLINE void header(const std::uint8_t* unit, int r, VF& d0, VF& m0) {
    d0 = load_f16(unit + 2 * r * kLanes);
    m0 = kPacked.headers == 2 ? load_f16(unit + 2 * (kPanelRows + r * kLanes)) : hn::Zero(DF());
  }
};

#endif  // HWY_TARGET != HWY_SCALAR
}  // namespace HWY_NAMESPACE
}  // namespace snug::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // SNUG_LINEAR_CODES_INL_H_
