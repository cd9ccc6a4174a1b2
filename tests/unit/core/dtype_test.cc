// Both 16-bit formats against their definition, value by value.
#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace snug {
namespace {

struct Half {
  const char* name;
  int mantissa_bits, bias;
  std::uint16_t infinity;  // bits
  float (*decode)(std::uint16_t);
  std::uint16_t (*encode)(float);
};

const Half kHalves[] = {{"float16", 10, 15, 0x7C00, f32_from_f16, f16_from_f32},
                        {"bfloat16", 7, 127, 0x7F80, f32_from_bf16, bf16_from_f32}};

// The value of positive finite bits: (1 + m / 2^p) 2^(e - bias), or m / 2^p 2^(1 - bias) where e is 0.
double value_of(const Half& half, std::uint16_t bits) {
  const int mantissa = bits & ((1 << half.mantissa_bits) - 1), exponent = bits >> half.mantissa_bits;
  const double fraction = mantissa / std::ldexp(1.0, half.mantissa_bits);
  return exponent == 0 ? std::ldexp(fraction, 1 - half.bias) : std::ldexp(1 + fraction, exponent - half.bias);
}

TEST(DType, EveryValueDecodesAndComesBack) {
  for (const Half& half : kHalves) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto h = static_cast<std::uint16_t>(bits);
      const auto magnitude = static_cast<std::uint16_t>(h & 0x7FFF);
      const float x = half.decode(h);
      if (magnitude > half.infinity) {
        ASSERT_TRUE(std::isnan(x)) << half.name << " " << bits;
        ASSERT_TRUE(std::isnan(half.decode(half.encode(x)))) << half.name << " " << bits;
        continue;
      }
      const double expected =
          magnitude == half.infinity ? std::numeric_limits<double>::infinity() : value_of(half, magnitude);
      ASSERT_EQ(static_cast<double>(x), h & 0x8000 ? -expected : expected) << half.name << " " << bits;
      ASSERT_EQ(std::signbit(x), (h & 0x8000) != 0) << half.name << " " << bits;
      ASSERT_EQ(half.encode(x), h) << half.name << " " << bits;
    }
  }
}

// Between each pair of neighbours: the middle goes to the even one, anything else to the nearer.
TEST(DType, RoundsToNearestEven) {
  for (const Half& half : kHalves) {
    for (std::uint16_t low = 0; low + 1 < half.infinity; ++low) {
      const auto high = static_cast<std::uint16_t>(low + 1);
      const double middle = (value_of(half, low) + value_of(half, high)) / 2;
      const auto tie = static_cast<float>(middle);
      ASSERT_EQ(static_cast<double>(tie), middle);
      const std::uint16_t even = low % 2 == 0 ? low : high;
      const float infinity = std::numeric_limits<float>::infinity();
      ASSERT_EQ(half.encode(tie), even) << half.name << " " << low;
      ASSERT_EQ(half.encode(std::nextafter(tie, -infinity)), low) << half.name << " " << low;
      ASSERT_EQ(half.encode(std::nextafter(tie, infinity)), high) << half.name << " " << low;
      ASSERT_EQ(half.encode(-tie), even | 0x8000) << half.name << " " << low;
    }
  }
}

TEST(DType, OverflowBecomesInfinityAndNaNStaysNaN) {
  for (const Half& half : kHalves) {
    const auto largest_bits = static_cast<std::uint16_t>(half.infinity - 1);
    const double largest = value_of(half, largest_bits);
    const double step = largest - value_of(half, static_cast<std::uint16_t>(half.infinity - 2));
    const auto tie = static_cast<float>(largest + step / 2);  // to even: infinity
    EXPECT_EQ(half.encode(std::nextafter(tie, 0.0f)), largest_bits) << half.name;
    EXPECT_EQ(half.encode(tie), half.infinity) << half.name;
    EXPECT_EQ(half.encode(-tie), half.infinity | 0x8000) << half.name;
    EXPECT_EQ(half.encode(std::numeric_limits<float>::max()), half.infinity) << half.name;
    // A NaN whose payload lies in the bits that are cut off must not become infinity.
    for (const std::uint32_t nan : {0x7F800001u, 0x7FC00000u, 0xFF800001u, 0x7FFFFFFFu}) {
      EXPECT_TRUE(std::isnan(half.decode(half.encode(std::bit_cast<float>(nan))))) << half.name;
    }
  }
}

}  // namespace
}  // namespace snug
