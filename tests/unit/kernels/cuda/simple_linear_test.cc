#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/linear.h"
#include "unit/kernels/cuda/values.h"

namespace snug::kernels {
namespace {

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

class CudaSimpleLinear : public test::GpuTest {
 protected:
  CudaSimpleLinear()
      : seed_(fresh_test_seed()), rng_(seed_), trace_(__FILE__, __LINE__, "seed " + std::to_string(seed_)) {}
  unsigned seed_;
  std::mt19937 rng_;
  testing::ScopedTrace trace_;
};

struct Case {
  DType w, x, y;
  std::int64_t tokens, rows, cols, x_gap, y_gap;
  bool bias, add;
  std::int64_t every = 1;  // of the results, how many are looked at
};

// One chain of fused multiply-adds in the order of columns: equal bit for bit, whichever kernel it was.
void check(const Case& c, std::mt19937& rng) {
  const std::int64_t x_stride = c.cols + c.x_gap, y_stride = c.rows + c.y_gap;
  const auto w = rounded_to(c.w, random_vector(rng, c.rows * c.cols));
  auto x = rounded_to(c.x, random_vector(rng, c.tokens * x_stride));
  for (std::int64_t i = 0; i < std::ssize(x); ++i) {
    if (i % x_stride >= c.cols) x[index(i)] = std::numeric_limits<float>::quiet_NaN();
  }
  const auto bias = random_vector(rng, c.rows), y0 = rounded_to(c.y, random_vector(rng, c.tokens * y_stride));
  const DeviceValues weight(c.w, w), from(c.x, x), to(c.y, y0);
  const test::DeviceArray<float> added(bias);
  const LinearOutput output = {
      .weight = {.format = c.w == DType::f32 ? quant::Format::f32 : quant::Format::bf16,
                 .layout = Layout::rows,
                 .rows = c.rows,
                 .cols = c.cols,
                 .data = static_cast<const std::byte*>(weight.view().data)},
      .bias = c.bias ? added.data() : nullptr,
      .y = to.view(),
      .y_stride = y_stride,
      .add = c.add};
  cuda::simple_linear({.stream = test::GpuTest::stream(),
                       .x = from.view(),
                       .x_stride = x_stride,
                       .tokens = c.tokens,
                       .outputs = {&output, 1}});
  const auto y = to.download();
  EXPECT_TRUE(to.guards_untouched());
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t r = 0; r < y_stride; ++r) {
      const std::size_t at = index(t * y_stride + r);
      if (r >= c.rows) {
        ASSERT_EQ(y[at], y0[at]) << "only results are written";
        continue;
      }
      if ((t * 131 + r * 17) % c.every != 0) continue;
      float sum = 0;
      for (std::int64_t k = 0; k < c.cols; ++k)
        sum = std::fmaf(x[index(t * x_stride + k)], w[index(r * c.cols + k)], sum);
      if (c.bias) sum += bias[index(r)];
      if (c.add) sum += y0[at];
      ASSERT_EQ(y[at], rounded_to(c.y, {sum})[0])
          << "weights " << name_of(c.w) << " x " << name_of(c.x) << " y " << name_of(c.y) << " tokens "
          << c.tokens << " rows " << c.rows << " cols " << c.cols << ", at token " << t << " row " << r;
    }
  }
}

TEST_F(CudaSimpleLinear, AddsInTheOrderOfColumns) {
  const DType f32 = DType::f32, bf16 = DType::bf16;
  for (const DType w : {f32, bf16}) {
    for (const DType x : {f32, bf16}) {
      for (const DType y : {f32, bf16}) {
        for (const std::int64_t tokens : {1, 3, 8, 9, 70, 150}) {
          for (const auto& [rows, cols] : {std::pair{1, 1}, {33, 77}, {64, 128}, {100, 264}, {129, 40}}) {
            const bool gaps = rng_() % 2 == 0;
            check({w, x, y, tokens, rows, cols, gaps ? 3 : 8, gaps ? 1 : 0, rng_() % 2 == 0, rng_() % 2 == 0},
                  rng_);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(CudaSimpleLinear, LargeTiles) {
  const DType f32 = DType::f32, bf16 = DType::bf16;
  check({f32, f32, f32, 2048, 2048, 512, 0, 0, true, true, 997}, rng_);
  check({f32, f32, f32, 1025, 2100, 130, 3, 1, true, true, 997}, rng_);
  check({bf16, bf16, bf16, 2048, 2048, 512, 0, 0, true, false, 997}, rng_);
}

TEST_F(CudaSimpleLinear, RefusesQuantisedWeights) {
  const DeviceValues x(DType::f32, 64), y(DType::f32, 1), w(DType::f32, 64);
  const LinearOutput output = {.weight = {.format = quant::Format::q4_0,
                                          .layout = Layout::rows,
                                          .rows = 1,
                                          .cols = 64,
                                          .data = static_cast<const std::byte*>(w.view().data)},
                               .y = y.view(),
                               .y_stride = 1};
  EXPECT_THROW(cuda::simple_linear(
                   {.stream = stream(), .x = x.view(), .x_stride = 64, .tokens = 1, .outputs = {&output, 1}}),
               std::runtime_error);
}

}  // namespace
}  // namespace snug::kernels
