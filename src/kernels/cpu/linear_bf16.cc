#include "kernels/cpu/linear_bf16.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define SNUG_HAS_AVX512_BF16 1
#include <immintrin.h>

#include "hwy/base.h"

// What follows, up to the matching pop, is compiled for these instructions and called only where the CPU has
// them.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
#include "kernels/cpu/linear_bf16-inl.h"

namespace snug::kernels::cpu {
namespace {

struct Avx512 {
  static constexpr int kLanes = 16;
  using Sums = __m512;
  using Pairs = __m512bh;

  static HWY_INLINE Pairs pairs(__m512i v) { return reinterpret_cast<__m512bh>(v); }
  static HWY_INLINE __mmask32 first(int count) {
    return count >= 32 ? 0xFFFFFFFFu : (std::uint32_t{1} << count) - 1;
  }

  static HWY_INLINE Sums zero() { return _mm512_setzero_ps(); }
  static HWY_INLINE Pairs load(const void* p) { return pairs(_mm512_loadu_si512(p)); }
  static HWY_INLINE Pairs load_part(const void* p, int count) {
    return pairs(_mm512_maskz_loadu_epi16(first(count), p));
  }
  static HWY_INLINE Pairs broadcast(const std::uint16_t* p) {
    int pair;
    __builtin_memcpy(&pair, p, 4);
    return pairs(_mm512_set1_epi32(pair));
  }
  static HWY_INLINE Sums multiply_add(Sums sums, Pairs a, Pairs b) { return _mm512_dpbf16_ps(sums, a, b); }
  static HWY_INLINE void add_part(float* y, Sums sums, int count) {
    const auto mask = static_cast<__mmask16>(first(count));
    _mm512_mask_storeu_ps(y, mask, _mm512_add_ps(sums, _mm512_maskz_loadu_ps(mask, y)));
  }
  static HWY_INLINE Sums add(Sums a, Sums b) { return _mm512_add_ps(a, b); }
  static HWY_INLINE float total(Sums sums) {
    alignas(64) float lanes[16];
    _mm512_store_ps(lanes, sums);
    const __m128 four = _mm_add_ps(_mm_add_ps(_mm_load_ps(lanes), _mm_load_ps(lanes + 4)),
                                   _mm_add_ps(_mm_load_ps(lanes + 8), _mm_load_ps(lanes + 12)));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static HWY_INLINE void round(const float* x, int count, std::uint16_t* rounded) {
    const __mmask32 mask = first(count);
    const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), x);
    const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), x + 16);
    _mm512_storeu_si512(rounded, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
  }
  static HWY_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
};

constexpr Bf16Kernels kAvx512 = Bf16Loops<Avx512>::kernels();

}  // namespace
}  // namespace snug::kernels::cpu
HWY_POP_ATTRIBUTES
#endif

namespace snug::kernels::cpu {

Bf16Kernels bf16_kernels() {
#ifdef SNUG_HAS_AVX512_BF16
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    return kAvx512;
  }
#endif
  return {};
}

}  // namespace snug::kernels::cpu
