#include "kernels/linear.h"

#include <gtest/gtest.h>

#include "kernels/cpu/linear_targets.h"
//
#include "unit/kernels/attention_backends.h"
#include "unit/kernels/linear_case.h"

namespace snug::kernels {
namespace {

using quant::Format;
using quant::FormatInfo;

constexpr std::int64_t kTokens[] = {1, 2, 3, 4, 5, 7, 8, 16, 33, 64};
constexpr std::int64_t kMostTokens = 64;

struct Shape {
  std::int64_t rows, cols;
};

// Rows that are no multiple of a panel; columns that are an odd multiple of the block, and one that needs two
// chunks.
std::vector<Shape> shapes_of(const FormatInfo& info) {
  if (info.block_elems == 256) return {{1, 256}, {37, 768}, {32, 2304}};
  if (info.block_elems == 32) return {{1, 32}, {37, 96}, {48, 2080}};
  return {{1, 1}, {37, 103}, {48, 520}};
}

// Runs the product for the first `tokens` tokens into a poisoned, strided y and checks what surrounds it.
std::vector<float> run(const WeightView& w, const std::vector<float>& x, std::int64_t x_stride,
                       std::int64_t tokens, const float* bias, const float* y0, bool add, Precision precision,
                       ThreadPool* pool) {
  const std::int64_t stride = w.rows + 3;
  PoisonedBytes y_bytes(tokens * stride * 4);
  auto* y = reinterpret_cast<float*>(y_bytes.data());
  for (std::int64_t t = 0; add && t < tokens; ++t) std::copy_n(y0 + t * w.rows, w.rows, y + t * stride);
  PoisonedBytes workspace(cpu::linear_workspace_bytes(tokens, w.cols, pool->size()));
  const LinearOutput out{w, bias, y, stride, add};
  cpu::linear({{Backend::cpu, pool},
               x.data(),
               x_stride,
               tokens,
               {&out, 1},
               precision,
               workspace.data(),
               workspace.bytes()});
  EXPECT_TRUE(y_bytes.guard_untouched());
  EXPECT_TRUE(workspace.guard_untouched());
  std::vector<float> result;
  for (std::int64_t t = 0; t < tokens; ++t) {
    result.insert(result.end(), y + t * stride, y + t * stride + w.rows);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(y[t * stride + w.rows + i])) << "between rows of y";
  }
  return result;
}

void expect_close(const std::vector<float>& y, const Reference& ref, std::int64_t cols, Precision precision,
                  const std::string& what) {
  for (std::size_t i = 0; i < y.size(); ++i) {
    double tolerance = 1e-6 * std::sqrt(static_cast<double>(cols)) * ref.norm[i] + 1e-6;
    if (precision == Precision::fast) tolerance += 7 * ref.rounding[i];
    // The second eight bits round what the first left, at most half a 127th of a block's largest value.
    if (precision == Precision::fine) tolerance += 7 * ref.rounding[i] / 127;
    ASSERT_LE(std::abs(static_cast<double>(y[i]) - ref.y[i]), tolerance)
        << what << ", element " << i << " of " << y.size();
  }
}

class LinearFormat : public testing::TestWithParam<FormatInfo> {};

TEST_P(LinearFormat, AgreesWithTheReference) {
  const FormatInfo& info = GetParam();
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  ThreadPool pool(2);
  for (const Shape shape : shapes_of(info)) {
    TestWeight weight(info.format, shape.rows, shape.cols, seed);
    const std::int64_t x_stride = shape.cols + 5;
    const auto x = random_floats(seed, 4, kMostTokens * x_stride, 1);
    const auto bias = random_floats(seed, 5, shape.rows, 3);
    const auto y0 = random_floats(seed, 6, kMostTokens * shape.rows, 3);
    for (const bool add : {false, true}) {
      const float* b = add ? nullptr : bias.data();
      const Reference ref = reference(weight.rows_view, x, x_stride, kMostTokens, b, y0.data(), add);
      for (const TestBackend& backend : cpu_backends()) {
        UseTarget use(backend);
        const WeightView packed = weight.pack(&pool);
        for (const WeightView& view : {weight.rows_view, packed}) {
          if (view.data == nullptr) continue;
          for (const Precision precision : {Precision::exact, Precision::fine, Precision::fast}) {
            for (const std::int64_t tokens : kTokens) {
              const auto y = run(view, x, x_stride, tokens, b, y0.data(), add, precision, &pool);
              expect_close(y, ref, shape.cols, precision,
                           backend.name + (view.layout == Layout::rows ? " rows " : " packed ") +
                               (precision == Precision::exact  ? "exact "
                                : precision == Precision::fine ? "fine "
                                                               : "fast ") +
                               std::to_string(tokens) + " tokens " + std::to_string(shape.rows) + "x" +
                               std::to_string(shape.cols) + (add ? " add" : " bias"));
            }
          }
        }
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

TEST_P(LinearFormat, PackingKeepsEveryValue) {
  const FormatInfo& info = GetParam();
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  ThreadPool pool(2);
  const std::int64_t rows = 37, cols = info.block_elems == 256 ? 768 : 96;
  TestWeight weight(info.format, rows, cols, seed);
  std::vector<std::int32_t> ids;
  for (std::int64_t r = 0; r < rows; ++r) ids.push_back(static_cast<std::int32_t>(rows - 1 - r));
  std::vector<float> expected(static_cast<std::size_t>(rows * cols));
  ref::embedding({.table = weight.rows_view, .ids = ids.data(), .tokens = rows, .y = expected.data()});
  for (const TestBackend& backend : cpu_backends()) {
    UseTarget use(backend);
    for (const WeightView& view : {weight.rows_view, weight.pack(&pool)}) {
      if (view.data == nullptr) continue;
      PoisonedBytes y(rows * cols * 4);
      cpu::embedding({{Backend::cpu, &pool}, view, ids.data(), rows, reinterpret_cast<float*>(y.data())});
      EXPECT_TRUE(y.guard_untouched());
      EXPECT_EQ(std::memcmp(y.data(), expected.data(), expected.size() * 4), 0) << backend.name;
    }
    EXPECT_TRUE(weight.packed == nullptr || weight.packed->guard_untouched()) << backend.name;
  }
}

// The packed form is what stays in memory: it may not outgrow the file by more than a few scales.
TEST_P(LinearFormat, PackedSizeIsCloseToTheFiles) {
  const FormatInfo& info = GetParam();
  const std::int64_t packed = cpu::packed_bytes(info.format, 512, 1024);
  const std::int64_t file = quant::bytes_of(info.format, 512 * 1024);
  if (packed == 0) return;
  EXPECT_GE(packed, file);
  EXPECT_LE(static_cast<double>(packed), 1.04 * static_cast<double>(file) +
                                             (info.block_bytes < 120 ? 0.2 * static_cast<double>(file) : 0));
}

INSTANTIATE_TEST_SUITE_P(All, LinearFormat,
                         testing::ValuesIn(quant::all_formats().begin(), quant::all_formats().end()),
                         [](const auto& i) { return std::string(i.param.name); });

// Several outputs of different formats, layouts and sizes share x; threads and batch size change no bit of
// the integer products, and threads none of the others.
TEST(Linear, SharedInputIsBitwiseIndependentOfThreadsAndBatch) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  constexpr std::int64_t kCols = 512;
  ThreadPool one(1), three(3);
  const auto x = random_floats(seed, 4, kMostTokens * kCols, 1);
  for (const TestBackend& backend : cpu_backends()) {
    UseTarget use(backend);
    std::vector<TestWeight> weights;
    std::vector<WeightView> views;
    std::int64_t rows = 5;
    for (const FormatInfo& info : quant::all_formats()) {
      rows += 7;
      weights.emplace_back(info.format, rows, kCols, seed + static_cast<std::uint64_t>(rows));
    }
    for (TestWeight& weight : weights) {
      views.push_back(weight.rows_view);
      if (const WeightView packed = weight.pack(&three); packed.data != nullptr) views.push_back(packed);
    }
    const auto all = [&](std::int64_t first, std::int64_t tokens, ThreadPool* pool) {
      std::vector<std::vector<float>> y;
      std::vector<LinearOutput> outputs;
      for (const WeightView& view : views) y.emplace_back(static_cast<std::size_t>(tokens * view.rows), NAN);
      for (std::size_t i = 0; i < views.size(); ++i)
        outputs.push_back({views[i], nullptr, y[i].data(), views[i].rows});
      PoisonedBytes workspace(cpu::linear_workspace_bytes(tokens, kCols, pool->size()));
      cpu::linear({{Backend::cpu, pool},
                   x.data() + first * kCols,
                   kCols,
                   tokens,
                   outputs,
                   Precision::fast,
                   workspace.data(),
                   workspace.bytes()});
      EXPECT_TRUE(workspace.guard_untouched());
      return y;
    };
    for (const std::int64_t tokens : {1, 9, 64})
      EXPECT_EQ(all(0, tokens, &one), all(0, tokens, &three)) << backend.name;
    const auto batch = all(0, kMostTokens, &three);
    for (const std::int64_t t : {0, 5, 63}) {
      const auto alone = all(t, 1, &one);
      for (std::size_t i = 0; i < views.size(); ++i) {
        if (views[i].layout != Layout::packed) continue;
        const float* begin = batch[i].data() + t * views[i].rows;
        EXPECT_EQ(alone[i], std::vector<float>(begin, begin + views[i].rows))
            << quant::info(views[i].format).name;
      }
    }
  }
}

// Activations of zero, tiny ones, one huge value among small ones, and NaN.
TEST(Linear, AwkwardActivations) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  ThreadPool pool(1);
  constexpr std::int64_t kRows = 20, kCols = 64;
  for (const TestBackend& backend : cpu_backends()) {
    UseTarget use(backend);
    for (const Format format : {Format::q4_0, Format::q8_0, Format::q4_1}) {
      TestWeight weight(format, kRows, kCols, seed);
      const WeightView view = weight.pack(&pool);
      if (view.data == nullptr) continue;
      std::vector<float> x(5 * kCols, 0.0f);
      for (std::int64_t k = 0; k < kCols; ++k) x[static_cast<std::size_t>(kCols + k)] = 1e-38f;
      for (std::int64_t k = 0; k < kCols; ++k)
        x[static_cast<std::size_t>(2 * kCols + k)] = k == 3 ? 1e6f : 1.0f;
      x[3 * kCols + 40] = NAN;
      x[4 * kCols + 7] = 2.0f;
      const auto y = run(view, x, kCols, 5, nullptr, nullptr, false, Precision::fast, &pool);
      const Reference ref = reference(weight.rows_view, x, kCols, 5, nullptr, nullptr, false);
      for (std::int64_t r = 0; r < kRows; ++r) {
        EXPECT_EQ(y[static_cast<std::size_t>(r)], 0.0f);
        EXPECT_LT(std::abs(y[static_cast<std::size_t>(kRows + r)]), 1e-30f);
        const auto i = static_cast<std::size_t>(2 * kRows + r),
                   last = static_cast<std::size_t>(4 * kRows + r);
        EXPECT_LE(std::abs(y[i] - ref.y[i]), 7 * ref.rounding[i] + 1e-5 * ref.norm[i]);
        EXPECT_TRUE(std::isnan(y[static_cast<std::size_t>(3 * kRows + r)]));
        EXPECT_NEAR(y[last], ref.y[last], 1e-5 * ref.norm[last]);
      }
    }
  }
}

TEST(Linear, NoTokensIsNothingToDo) {
  ThreadPool pool(1);
  TestWeight weight(Format::q4_0, 8, 32, 1);
  const LinearOutput out{weight.rows_view, nullptr, nullptr, 8};
  cpu::linear({.stream = {Backend::cpu, &pool}, .tokens = 0, .outputs = {&out, 1}});
  EXPECT_STRNE(cpu::target_name(), "");
}

}  // namespace
}  // namespace snug::kernels
