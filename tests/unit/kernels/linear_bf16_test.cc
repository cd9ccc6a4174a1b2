// The BF16 kernels against a double-precision sum of the rounded values: as this CPU's instructions compute
// them where it has AVX512-BF16, and everywhere through a twin that spells the instructions out.
#include "kernels/cpu/linear_bf16.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "core/dtype.h"
#include "kernels/cpu/linear_bf16-inl.h"
#include "kernels/linear.h"
#include "unit/kernels/attention_backends.h"
#include "unit/kernels/linear_case.h"

namespace snug::kernels {
namespace {

struct Twin {
  static constexpr int kLanes = 16;
  using Sums = std::array<float, kLanes>;
  using Pairs = std::array<std::uint16_t, 2 * kLanes>;

  static Sums zero() { return {}; }
  static Pairs load(const void* p) { return load_part(p, 2 * kLanes); }
  static Pairs load_part(const void* p, int count) {
    Pairs v{};
    std::memcpy(v.data(), p, static_cast<std::size_t>(count) * 2);
    return v;
  }
  static Pairs broadcast(const std::uint16_t* p) {
    Pairs v;
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = p[i % 2];
    return v;
  }
  static Sums multiply_add(Sums sums, const Pairs& a, const Pairs& b) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] += f32_from_bf16(a[2 * i]) * f32_from_bf16(b[2 * i]) +
                 f32_from_bf16(a[2 * i + 1]) * f32_from_bf16(b[2 * i + 1]);
    }
    return sums;
  }
  static Sums add(Sums a, const Sums& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  }
  static float total(const Sums& sums) {
    float sum = 0;
    for (const float v : sums) sum += v;
    return sum;
  }
  static void add_part(float* y, const Sums& sums, int count) {
    for (int i = 0; i < count; ++i) y[i] += sums[static_cast<std::size_t>(i)];
  }
  static void round(const float* x, int count, std::uint16_t* rounded) {
    for (int i = 0; i < 2 * kLanes; ++i) rounded[i] = i < count ? bf16_from_f32(x[i]) : std::uint16_t{0};
  }
  static void prefetch(const void*) {}
};

struct Named {
  const char* name;
  cpu::Bf16Kernels kernels;
};

std::vector<Named> all_kernels() {
  std::vector<Named> all{{"twin", cpu::Bf16Loops<Twin>::kernels()}};
  if (const cpu::Bf16Kernels own = cpu::bf16_kernels(); own.available()) {
    all.push_back({"AVX512-BF16", own});
  } else {
    std::printf("This CPU has no AVX512-BF16: only the twin is tested.\n");
  }
  return all;
}

// Weights at an odd address, activations rounded, and the sums they should give.
struct Case {
  std::int64_t rows, cols, tokens, x_stride;
  std::vector<std::byte> store;
  std::vector<std::uint16_t> x;
  std::vector<double> y, norm;

  Case(std::int64_t r, std::int64_t c, std::int64_t t, std::uint64_t seed)
      : rows(r), cols(c), tokens(t), x_stride(align_up(c, cpu::kBf16Step) + 32) {
    const auto w = random_floats(seed, 1, rows * cols, 1), v = random_floats(seed, 2, tokens * cols, 1);
    store.resize(static_cast<std::size_t>(rows * cols * 2 + 1));
    x.assign(static_cast<std::size_t>(tokens * x_stride), 0);
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      const std::uint16_t half = bf16_from_f32(w[static_cast<std::size_t>(i)]);
      std::memcpy(store.data() + 1 + i * 2, &half, 2);
    }
    for (std::int64_t i = 0; i < tokens; ++i) {
      for (std::int64_t k = 0; k < cols; ++k) {
        x[static_cast<std::size_t>(i * x_stride + k)] =
            bf16_from_f32(v[static_cast<std::size_t>(i * cols + k)]);
      }
    }
    for (std::int64_t i = 0; i < tokens; ++i) {
      for (std::int64_t row = 0; row < rows; ++row) {
        double sum = 0, square = 0;
        for (std::int64_t k = 0; k < cols; ++k) {
          const double product =
              static_cast<double>(f32_from_bf16(weight(row, k))) *
              static_cast<double>(f32_from_bf16(x[static_cast<std::size_t>(i * x_stride + k)]));
          sum += product;
          square += product * product;
        }
        y.push_back(sum);
        norm.push_back(std::sqrt(square));
      }
    }
  }
  const std::byte* w() const { return store.data() + 1; }
  std::uint16_t weight(std::int64_t row, std::int64_t k) const {
    std::uint16_t half;
    std::memcpy(&half, w() + (row * cols + k) * 2, 2);
    return half;
  }
  // `sums` (tokens, stride) began as ones; what lies beyond the rows is still so.
  void expect_close(const std::vector<float>& sums, std::int64_t stride, const std::string& what) const {
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t r = 0; r < stride; ++r) {
        const double got = sums[static_cast<std::size_t>(t * stride + r)];
        if (r >= rows) {
          ASSERT_EQ(got, 1.0) << what << ", beyond the rows";
          continue;
        }
        const auto i = static_cast<std::size_t>(t * rows + r);
        const double tolerance = 1e-6 * std::sqrt(static_cast<double>(cols)) * (norm[i] + 1) + 1e-6;
        ASSERT_NEAR(got, 1 + y[i], tolerance) << what << ", token " << t << " row " << r;
      }
    }
  }
};

TEST(LinearBf16, DotProducts) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const Named& named : all_kernels()) {
    for (const std::int64_t rows : {1, 4, 39}) {
      for (const std::int64_t cols : {1, 31, 64, 200, 515}) {
        for (const std::int64_t tokens : {1, 2, 3, 8}) {
          const Case c(rows, cols, tokens, seed);
          const std::int64_t stride = rows + 2;
          std::vector<float> y(static_cast<std::size_t>(tokens * stride), 1.0f);
          named.kernels.dot(c.w(), cols * 2, cols, c.x.data(), c.x_stride, tokens,
                            {y.data(), stride, static_cast<int>(rows)});
          c.expect_close(y, stride,
                         std::string(named.name) + " " + std::to_string(rows) + "x" + std::to_string(cols));
        }
      }
    }
  }
}

TEST(LinearBf16, Panels) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const Named& named : all_kernels()) {
    const int most = named.kernels.panel_rows;
    for (const std::int64_t rows : {1, most / 2, most / 2 + 1, most}) {
      for (const std::int64_t cols : {2, 90, 512}) {
        for (const std::int64_t tokens : {1, 12, 19, 31}) {
          const Case c(rows, cols, tokens, seed);
          std::vector<std::uint16_t> panel(static_cast<std::size_t>(cols * named.kernels.panel_rows), 0);
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t k = 0; k < cols; ++k) {
              panel[static_cast<std::size_t>((k / 2 * named.kernels.panel_rows + r) * 2 + k % 2)] =
                  c.weight(r, k);
            }
          }
          const std::int64_t stride = rows + 2;
          std::vector<float> y(static_cast<std::size_t>(tokens * stride), 1.0f);
          named.kernels.multiply(reinterpret_cast<const std::byte*>(panel.data()), cols / 2, c.x.data(),
                                 c.x_stride, tokens, {y.data(), stride, static_cast<int>(rows)});
          c.expect_close(y, stride,
                         std::string(named.name) + " " + std::to_string(rows) + "x" + std::to_string(cols));
        }
      }
    }
  }
}

// Ties, infinity and NaN among random values; the padding is zero and nothing is written behind it.
TEST(LinearBf16, Rounding) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const Named& named : all_kernels()) {
    for (const std::int64_t count : {1, 32, 47, 130}) {
      auto x = random_floats(seed, 1, count, 100);
      x[0] = 1.00390625f;  // half way between 1 and its successor: to even, down
      if (count > 4) x[1] = 1.01171875f, x[2] = INFINITY, x[3] = NAN, x[4] = -3.4e38f;
      const std::int64_t padded = align_up(count, cpu::kBf16Step);
      std::vector<std::uint16_t> y(static_cast<std::size_t>(padded + 1), 0x7777);
      named.kernels.round(x.data(), count, y.data());
      for (std::int64_t i = 0; i < padded; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::uint16_t expected = i < count ? bf16_from_f32(x[at]) : std::uint16_t{0};
        EXPECT_EQ(y[at], expected) << named.name << ", element " << i << " of " << count;
      }
      EXPECT_EQ(y.back(), 0x7777);
    }
  }
}

// Panels of pairs are made by the float32 transposition, which so must keep every bit pattern.
TEST(LinearBf16, TranspositionKeepsBits) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const TestBackend& backend : cpu_backends()) {
    UseTarget use(backend);
    const cpu::FloatKernels kernels = cpu::float_kernels();
    constexpr std::int64_t kColumns = 45;
    for (int rows = 1; rows <= kernels.panel_rows; ++rows) {
      std::vector<std::uint32_t> w(static_cast<std::size_t>(rows * kColumns));
      for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<std::uint32_t>(random_bits(seed, 1, i));
      std::vector<float> panel(static_cast<std::size_t>(kColumns * kernels.panel_rows), 7.0f);
      kernels.transpose(DType::f32, reinterpret_cast<const std::byte*>(w.data()), kColumns * 4, rows,
                        kColumns, panel.data());
      for (std::int64_t k = 0; k < kColumns; ++k) {
        for (int r = 0; r < kernels.panel_rows; ++r) {
          const float& value = panel[static_cast<std::size_t>(k * kernels.panel_rows + r)];
          std::uint32_t bits;
          std::memcpy(&bits, &value, 4);
          const std::uint32_t expected =
              r < rows ? w[static_cast<std::size_t>(r * kColumns + k)] : std::bit_cast<std::uint32_t>(7.0f);
          ASSERT_EQ(bits, expected) << backend.name << ", row " << r << " of " << rows << ", column " << k;
        }
      }
    }
  }
}

// linear() takes this way for fast alone: its results differ from exact ones by what rounding x does.
TEST(LinearBf16, FastRoundsActivations) {
  if (!cpu::bf16_kernels().available()) GTEST_SKIP() << "this CPU has no AVX512-BF16";
  if (cpu::float_kernels().panel_rows != cpu::bf16_kernels().panel_rows)
    GTEST_SKIP() << "AVX-512 is disabled";
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  ThreadPool pool(2);
  constexpr std::int64_t kRows = 333, kCols = 1110, kTokens = 61;
  TestWeight weight(quant::Format::bf16, kRows, kCols, seed);
  const auto x = random_floats(seed, 2, kTokens * kCols, 1);
  const auto product = [&](std::int64_t tokens, const std::vector<float>& from, Precision precision) {
    std::vector<float> y(static_cast<std::size_t>(tokens * kRows), NAN);
    PoisonedBytes workspace(cpu::linear_workspace_bytes(tokens, kCols, pool.size()));
    const LinearOutput out{weight.rows_view, nullptr, y.data(), kRows};
    cpu::linear({{Backend::cpu, &pool},
                 from.data(),
                 kCols,
                 tokens,
                 {&out, 1},
                 precision,
                 workspace.data(),
                 workspace.bytes()});
    EXPECT_TRUE(workspace.guard_untouched());
    return y;
  };
  auto rounded = x;
  for (float& v : rounded) v = f32_from_bf16(bf16_from_f32(v));
  for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{5}, kTokens}) {
    const auto exact = product(tokens, x, Precision::exact), fast = product(tokens, x, Precision::fast);
    const auto expected = product(tokens, rounded, Precision::exact);
    EXPECT_EQ(product(tokens, x, Precision::fine), exact);
    EXPECT_NE(fast, exact) << tokens << " tokens";
    for (std::size_t i = 0; i < fast.size(); ++i) {
      // Values are of norm 1, so that a sum's is about the root of the columns.
      ASSERT_NEAR(fast[i], expected[i], 1e-5 * std::sqrt(kCols)) << tokens << " tokens, element " << i;
      ASSERT_NEAR(fast[i], exact[i], 7 * 0x1p-9 * std::sqrt(kCols)) << tokens << " tokens, element " << i;
    }
  }
}

}  // namespace
}  // namespace snug::kernels
