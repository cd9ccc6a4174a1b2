// exp for vectors, compiled once per instruction set (hence the toggling guard).
#if defined(SNUG_KERNELS_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SNUG_KERNELS_CPU_EXP_INL_H_
#undef SNUG_KERNELS_CPU_EXP_INL_H_
#else
#define SNUG_KERNELS_CPU_EXP_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace snug::kernels::HWY_NAMESPACE {

// e^x for x <= 0, relative error below 2e-7; exactly 1 at 0, exactly 0 below -86, NaN stays NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial fitted to the least largest relative error (4e-9,
// before rounding); 2^n is added to the exponent.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V ExpOfNonPositive(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504f)));
  // ln 2 in two parts; n times the first is exact.
  const V r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x));
  V y = hn::MulAdd(hn::Set(d, 0.00138145394f), r, hn::Set(d, 0.00836874545f));
  y = hn::MulAdd(y, r, hn::Set(d, 0.041668389f));
  y = hn::MulAdd(y, r, hn::Set(d, 0.166665211f));
  y = hn::MulAdd(y, r, hn::Set(d, 0.49999994f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f));
  const auto scaled = hn::Add(hn::BitCast(di, y), hn::ShiftLeft<23>(hn::ConvertTo(di, n)));
  // Below -86 the sum's exponent would leave its range. For a NaN, n is NaN and its integer arbitrary: keep
  // x.
  y = hn::IfThenElse(hn::Lt(x, hn::Set(d, -86.0f)), hn::Zero(d), hn::BitCast(d, scaled));
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

}  // namespace snug::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
