// The codecs by themselves: layouts, rounding, round trips and awkward values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/rng.h"
#include "core/dtype.h"
#include "quant/format.h"
#include "quant/iq4.h"
#include "quant/q4_k.h"

namespace snug::quant {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Floats = std::vector<float>;

Bytes encode(const FormatInfo& f, const Floats& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  Bytes blocks(static_cast<std::size_t>(bytes_of(f.format, n)), 0xA5);
  f.encode(x.data(), blocks.data(), n);
  return blocks;
}

Floats decode(const FormatInfo& f, const Bytes& blocks) {
  Floats x(blocks.size() / static_cast<std::size_t>(f.block_bytes) * static_cast<std::size_t>(f.block_elems),
           NAN);
  f.decode(blocks.data(), x.data(), static_cast<std::int64_t>(x.size()));
  return x;
}

Floats round_trip(const FormatInfo& f, const Floats& x) {
  return decode(f, encode(f, x));
}

double relative_rms(const Floats& got, const Floats& want) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - want[i], 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(error / norm);
}

Floats normal(std::uint64_t seed, std::size_t n, float scale) {
  Floats x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = scale * random_normal(seed, 0, i);
  return x;
}

std::uint64_t fresh_seed() {
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

struct Expected {
  Format format;
  std::vector<int> f16_fields;  // offsets of the binary16 fields in a block
  std::uint64_t hash;           // of four decoded blocks, see DecodesEveryBit
  double error;                 // bound on the relative RMS error for normally distributed values
  double drift;                 // bound on what a second round trip changes, as a part of `error`; 0 is exact
};

// The super-block formats choose sub-scales by least error, so a second trip may choose other ones.
const std::vector<Expected>& expected() {
  static const std::vector<Expected> table = {
      {Format::q4_0, {0}, 0x5B01499694AF4217ull, 0.095, 0},
      {Format::q4_1, {0, 2}, 0x28D1A7A7A07214F0ull, 0.085, 0},
      {Format::q5_0, {0}, 0x424F57D97DD36CB5ull, 0.047, 0},
      {Format::q5_1, {0, 2}, 0x88556A4E194CA44Eull, 0.042, 0},
      {Format::q8_0, {0}, 0x13FCA61402411582ull, 0.0065, 0},
      {Format::q2_k, {80, 82}, 0x5C807D7E30C34D5Aull, 0.29, 0.1},
      {Format::q3_k, {108}, 0x233BEBE66FF02D57ull, 0.16, 0.1},
      {Format::q4_k, {0, 2}, 0xE7EBD9E03D8C2DBDull, 0.082, 0.3},
      {Format::q5_k, {0, 2}, 0x225834A929E2C646ull, 0.041, 0.5},
      {Format::q6_k, {208}, 0xB5BE3E7AEF03B64Eull, 0.021, 0.3},
      {Format::iq4_nl, {0}, 0xF0CF669CC507D94Bull, 0.08, 0.02},
      {Format::iq4_xs, {0}, 0xF4278166386A5CB5ull, 0.08, 0.1},
  };
  return table;
}

TEST(QuantFormat, Registry) {
  EXPECT_EQ(all_formats().size(), static_cast<std::size_t>(kFormatCount));
  for (const FormatInfo& f : all_formats()) {
    EXPECT_EQ(&info(f.format), &f);
    EXPECT_EQ(format_from_name(f.name), f.format);
    EXPECT_EQ(format_from_gguf_type(f.gguf_type), f.format);
    EXPECT_EQ(bytes_of(f.format, 3 * f.block_elems), 3 * f.block_bytes);
  }
  EXPECT_EQ(format_from_name("Q4_K"), std::nullopt);
  EXPECT_EQ(format_from_name(""), std::nullopt);
  EXPECT_EQ(format_from_gguf_type(4), std::nullopt);  // withdrawn from the specification
  EXPECT_EQ(format_from_gguf_type(0xFFFFFFFFu), std::nullopt);
  EXPECT_EQ(bytes_of(Format::q4_k, 3584), 3584 / 256 * 144);
}

// Blocks of pseudo-random bytes (binary16 fields made ordinary numbers), decoded, hashed value by value in
// order (FNV-1a over the bytes of the floats). The hashes were computed from what gguf-py 0.19 decodes: a
// single misplaced bit or element changes them.
TEST(QuantFormat, DecodesEveryBit) {
  for (const Expected& e : expected()) {
    const FormatInfo& f = info(e.format);
    Bytes blocks(static_cast<std::size_t>(4 * f.block_bytes));
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      blocks[i] = static_cast<std::uint8_t>(random_bits(7, f.gguf_type, i) >> 56);
    }
    for (int b = 0; b < 4; ++b) {
      for (const int offset : e.f16_fields) {  // sign and mantissa stay random, the exponent does not
        auto& high = blocks[static_cast<std::size_t>(b * f.block_bytes + offset + 1)];
        high = static_cast<std::uint8_t>((high & 0x83) | 0x2C);
      }
    }
    std::uint64_t hash = 0xCBF29CE484222325ull;
    for (const float x : decode(f, blocks)) {
      std::uint8_t bytes[4];
      std::memcpy(bytes, &x, 4);
      for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001B3ull;
    }
    EXPECT_EQ(hash, e.hash) << f.name;
  }
}

TEST(QuantFormat, HalfFormatsKeepEveryValue) {
  for (const Format format : {Format::f16, Format::bf16}) {
    const FormatInfo& f = info(format);
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      float x;
      f.decode(&half, &x, 1);
      if (format == Format::bf16) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(x), bits << 16);
      }
      std::uint16_t back;
      f.encode(&x, &back, 1);
      if (std::isnan(x)) {
        float again;
        f.decode(&back, &again, 1);
        ASSERT_TRUE(std::isnan(again));
      } else {
        ASSERT_EQ(back, half) << f.name;
      }
    }
  }
}

TEST(QuantFormat, RoundTripErrorFitsTheBits) {
  const std::uint64_t seed = fresh_seed();
  for (const Expected& e : expected()) {
    const FormatInfo& f = info(e.format);
    for (const float scale : {0.02f, 1.0f, 300.0f}) {
      const Floats x = normal(seed + f.gguf_type, 64 * 256, scale);
      const double error = relative_rms(round_trip(f, x), x);
      EXPECT_LT(error, e.error) << f.name << " scale " << scale;
      EXPECT_GT(error, e.error / 3) << f.name << ": the bound is loose";
    }
  }
}

TEST(QuantFormat, SecondRoundTripKeepsValues) {
  const std::uint64_t seed = fresh_seed();
  for (const Expected& e : expected()) {
    const FormatInfo& f = info(e.format);
    const Floats once = round_trip(f, normal(seed + f.gguf_type, 64 * 256, 0.05f));
    const double change = relative_rms(round_trip(f, once), once);
    EXPECT_LE(change, std::max(1e-6, e.drift * e.error)) << f.name;
  }
}

TEST(QuantFormat, ZerosAndConstants) {
  for (const FormatInfo& f : all_formats()) {
    for (const float x : round_trip(f, Floats(512, 0.0f))) ASSERT_EQ(x, 0.0f) << f.name;
    // A constant block needs no levels, only the precision of its scales: 32 codes at worst.
    for (const float c : {0.75f, -0.75f, 3e-3f, -1234.5f}) {
      for (const float x : round_trip(f, Floats(512, c))) {
        ASSERT_NEAR(x, c, std::fabs(c) * 0.02) << f.name << " of " << c;
      }
    }
  }
}

// One large element among zeros must not disturb the zeros by more than a step.
TEST(QuantFormat, Outlier) {
  for (const Expected& e : expected()) {
    const FormatInfo& f = info(e.format);
    for (const float peak : {8.0f, -8.0f}) {
      Floats x(512, 0.0f);
      x[37] = peak;
      const Floats y = round_trip(f, x);
      EXPECT_NEAR(y[37], peak, 0.01 * 8) << f.name;
      for (std::size_t i = 0; i < y.size(); ++i) {
        if (i == 37) continue;
        ASSERT_NEAR(y[i], 0.0f, 8.0f / 100) << f.name << " element " << i;
      }
    }
  }
}

TEST(QuantFormat, ExtremeValuesStayFinite) {
  const std::uint64_t seed = fresh_seed();
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const Expected& e : expected()) {
    const FormatInfo& f = info(e.format);
    for (const float scale : {1e-42f, 1e-30f, 1e-10f, 1e-6f, 1e5f, 1e30f, kMax / 8}) {
      const Floats x = normal(seed, 1024, scale);
      const Floats y = round_trip(f, x);
      for (std::size_t i = 0; i < y.size(); ++i) {
        ASSERT_TRUE(std::isfinite(y[i])) << f.name << " scale " << scale;
        // Where no binary16 scale is small enough, values become zero or one step of the smallest scale.
        if (scale <= 1e-10f) {
          ASSERT_LE(std::fabs(y[i]), 0x1p-24f) << f.name << " scale " << scale;
        }
      }
    }
    Floats mixed = normal(seed, 512, 1.0f);
    mixed[0] = kMax;
    mixed[1] = -kMax;
    mixed[300] = 1e-45f;
    for (const float y : round_trip(f, mixed)) ASSERT_TRUE(std::isfinite(y)) << f.name;
    // Not numbers to keep, but nothing undefined may happen on the way (a sanitizer would say so).
    mixed[0] = std::numeric_limits<float>::infinity();
    mixed[1] = -mixed[0];
    mixed[300] = std::numeric_limits<float>::quiet_NaN();
    for (const float y : round_trip(f, mixed)) ASSERT_TRUE(std::isfinite(y)) << f.name;
  }
}

// Values near the bottom of binary16 scales: steps are coarse there, but the largest elements must not be
// clipped.
TEST(QuantFormat, SmallValuesAreNotClipped) {
  const std::uint64_t seed = fresh_seed();
  for (const Expected& e : expected()) {
    const FormatInfo& f = info(e.format);
    const Floats x = normal(seed, 1024, 2e-4f);
    EXPECT_LT(relative_rms(round_trip(f, x), x), 1.5 * e.error) << f.name;
  }
}

TEST(QuantFormat, BlocksNeedNoAlignment) {
  const std::uint64_t seed = fresh_seed();
  for (const FormatInfo& f : all_formats()) {
    const Floats x = normal(seed, 512, 1.0f);
    const Bytes want = encode(f, x);
    Bytes buffer(want.size() + 2, 0xEE);
    f.encode(x.data(), buffer.data() + 1, 512);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), buffer.begin() + 1)) << f.name;
    EXPECT_EQ(buffer.front(), 0xEE) << f.name;
    EXPECT_EQ(buffer.back(), 0xEE) << f.name;
    Floats got(512);
    f.decode(buffer.data() + 1, got.data(), 512);
    EXPECT_EQ(got, decode(f, want)) << f.name;
  }
}

TEST(QuantFormat, ScalesPackAndUnpack) {
  const std::uint64_t seed = fresh_seed();
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    std::uint8_t sc[8], m[8], packed[12], sc2[8], m2[8];
    for (std::uint64_t s = 0; s < 8; ++s) {
      sc[s] = random_bits(seed, trial, s) & 63;
      m[s] = random_bits(seed, trial, s + 8) & 63;
    }
    pack_scales(sc, m, packed);
    unpack_scales(packed, sc2, m2);
    EXPECT_TRUE(std::equal(sc, sc + 8, sc2));
    EXPECT_TRUE(std::equal(m, m + 8, m2));
  }
}

TEST(QuantFormat, Iq4NearestLevel) {
  for (float x = -150.0f; x <= 150.0f; x += 0.0625f) {
    float least = 1e9f;
    for (const std::int8_t level : kIq4Levels)
      least = std::min(least, std::fabs(x - static_cast<float>(level)));
    ASSERT_EQ(std::fabs(x - static_cast<float>(kIq4Levels[iq4_nearest(x)])), least) << x;
  }
}

}  // namespace
}  // namespace snug::quant
