// cuda::linear of bfloat16 weights against its slow twin.
#include "kernels/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "unit/kernels/cuda/values.h"

namespace snug::kernels {
namespace {

class CudaLinear : public test::GpuTest {
 protected:
  unsigned seed_ = fresh_test_seed();
  std::mt19937 rng_{seed_};
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
};

struct Case {
  std::int64_t rows, cols, tokens;
  DType y;
  bool add;
};

// The share of the result's norm that the two differ by.
double difference(const Case& c, const DeviceValues& weight, std::mt19937& rng) {
  const std::int64_t x_stride = c.cols + 8;
  auto x = random_vector(rng, c.tokens * x_stride);
  for (std::int64_t i = 0; i < std::ssize(x); ++i) {
    if (i % x_stride >= c.cols) x[static_cast<std::size_t>(i)] = std::numeric_limits<float>::quiet_NaN();
  }
  const auto y0 = random_vector(rng, c.tokens * c.rows);
  const DeviceValues from(DType::bf16, x), fast(c.y, y0), slow(DType::f32, rounded_to(c.y, y0));
  const auto run = [&](const DeviceValues& y, auto&& op) {
    const LinearOutput output = {.weight = {.format = quant::Format::bf16,
                                            .layout = Layout::rows,
                                            .rows = c.rows,
                                            .cols = c.cols,
                                            .data = static_cast<const std::byte*>(weight.view().data)},
                                 .y = y.view(),
                                 .y_stride = c.rows,
                                 .add = c.add};
    op({.stream = test::GpuTest::stream(),
        .x = from.view(),
        .x_stride = x_stride,
        .tokens = c.tokens,
        .outputs = {&output, 1}});
  };
  run(fast, [](const LinearParams& p) { cuda::linear(p); });
  run(slow, [](const LinearParams& p) { cuda::simple_linear(p); });
  EXPECT_TRUE(fast.guards_untouched());
  const auto got = fast.download(), want = slow.download();
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    norm += double{want[i]} * want[i];
  }
  return std::sqrt(error / norm);
}

// Kernels are chosen by a count of tokens that others share: each of these must take its neighbours' kernel.
TEST_F(CudaLinear, AnyNumberOfTokens) {
  const test::DeviceArray<std::byte> workspace(Gpu::blas_workspace_bytes());
  for (const auto& [rows, cols] : {std::pair{1152, 896}, {896, 896}, {896, 4864}, {16, 64}}) {
    const DeviceValues weight(DType::bf16, random_vector(rng_, std::int64_t{rows} * cols));
    for (std::byte* const memory : {workspace.data(), static_cast<std::byte*>(nullptr)}) {
      gpu().set_blas_workspace(memory);
      for (const std::int64_t tokens : {1, 2, 7, 9, 15, 17, 33, 57, 63, 65, 100, 130, 257, 500, 513, 700}) {
        const bool add = rng_() % 2 == 0;
        const DType y = add || rng_() % 2 == 0 ? DType::f32 : DType::bf16;
        const double share = difference({rows, cols, tokens, y, add}, weight, rng_);
        EXPECT_LE(share, y == DType::f32 ? 1e-5 : 4e-3)
            << rows << " rows, " << cols << " columns, " << tokens << " tokens, " << name_of(y)
            << (memory != nullptr ? "" : ", no workspace");
      }
    }
  }
}

// Every number of tokens up to the most is counted as one that was met.
TEST(LinearTokenCounts, ReachTheMost) {
  for (const std::int64_t most : {1, 8, 9, 63, 64, 200, 512, 513, 4096, 5000}) {
    const auto counts = cuda::linear_token_counts(most);
    ASSERT_FALSE(counts.empty());
    EXPECT_EQ(counts.front(), 1);
    EXPECT_EQ(counts.back(), most);
    for (std::size_t i = 1; i < counts.size(); ++i) EXPECT_LT(counts[i - 1], counts[i]);
  }
}

}  // namespace
}  // namespace snug::kernels
