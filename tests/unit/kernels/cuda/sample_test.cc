#include "kernels/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "unit/kernels/cuda/values.h"

namespace snug::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class CudaSample : public test::GpuTest {};

enum class Row { plain, ties, level, holes, zeros, single, nan, infinite, nothing };

// The usable logits of a row; what lies behind must not be looked at.
void fill_row(Row kind, float* row, std::int64_t usable, std::int64_t vocab, std::mt19937& rng) {
  const auto any = [&] { return static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(usable)); };
  switch (kind) {
    case Row::plain:
      break;
    case Row::ties:
      for (int i = 0; i < 5; ++i) row[any()] = 20;
      break;
    case Row::level:
      std::fill_n(row, usable, 0.25f);
      break;
    case Row::holes:
      for (std::int64_t i = 0; i < usable; ++i) row[i] = i % 3 == 1 ? -kInfinity : row[i];
      break;
    case Row::zeros:
      for (std::int64_t i = 0; i < usable; ++i) row[i] = i % 2 == 0 ? -0.0f : 0.0f;
      break;
    case Row::single:
      std::fill_n(row, usable, -kInfinity);
      row[usable - 1] = -3e38f;
      break;
    case Row::nan:
      row[any()] = kNan;
      break;
    case Row::infinite:
      row[any()] = kInfinity;
      break;
    case Row::nothing:
      std::fill_n(row, usable, -kInfinity);
      break;
  }
  for (std::int64_t i = usable; i < vocab; ++i) row[i] = i % 2 == 0 ? 1e30f : kNan;
}

TEST_F(CudaSample, MostLikelyTokenAndItsLogProbability) {
  const unsigned seed = fresh_test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  for (const std::int64_t vocab : {1, 5, 1000, 2048, 2049, 32000, 152064, 600001}) {
    for (const std::int64_t rows : {1, 9, 64}) {
      if (vocab * rows > 10'000'000) continue;
      for (const bool padded : {false, true}) {
        const std::int64_t usable = padded ? std::max<std::int64_t>(1, vocab - vocab / 9 - 1) : vocab;
        auto logits = random_vector(rng, rows * vocab, 3);
        std::vector<Row> kinds;
        for (std::int64_t r = 0; r < rows; ++r) {
          kinds.push_back(static_cast<Row>(rows >= 9 ? r % 9 : static_cast<std::int64_t>(rng() % 9)));
          fill_row(kinds.back(), logits.data() + r * vocab, usable, vocab, rng);
        }
        const test::DeviceArray<float> x(logits), logprobs(rows);
        const test::DeviceArray<std::int32_t> tokens(rows);
        const test::DeviceArray<std::byte> workspace(cuda::sample_workspace_bytes(rows, vocab));
        cuda::sample({.stream = stream(),
                      .logits = x.data(),
                      .rows = rows,
                      .vocab = vocab,
                      .usable_vocab = usable,
                      .tokens = tokens.data(),
                      .logprobs = logprobs.data(),
                      .workspace = workspace.data(),
                      .workspace_bytes = workspace.byte_count()});
        const auto token = tokens.download();
        const auto logprob = logprobs.download();
        EXPECT_TRUE(tokens.guards_untouched() && logprobs.guards_untouched() && workspace.guards_untouched());
        for (std::int64_t r = 0; r < rows; ++r) {
          const auto at = static_cast<std::size_t>(r);
          SCOPED_TRACE("vocab " + std::to_string(vocab) + " row " + std::to_string(r) + " kind " +
                       std::to_string(static_cast<int>(kinds[at])));
          if (kinds[at] >= Row::nan) {
            ASSERT_EQ(token[at], -1);
            continue;
          }
          const float* row = logits.data() + r * vocab;
          const auto best = std::max_element(row, row + usable) - row;
          ASSERT_EQ(token[at], best);
          double sum = 0;
          for (std::int64_t i = 0; i < usable; ++i) sum += std::exp(static_cast<double>(row[i]) - row[best]);
          const double expected = -std::log(sum);
          ASSERT_NEAR(logprob[at], expected,
                      4 * std::numeric_limits<float>::epsilon() * (1 + std::abs(expected)));
        }
      }
    }
  }
}

// Of one row alone and of the row among others.
TEST_F(CudaSample, RowDependsOnNoOther) {
  std::mt19937 rng(fresh_test_seed());
  const std::int64_t vocab = 152064, rows = 8;
  const test::DeviceArray<float> x(random_vector(rng, rows * vocab, 3));
  const auto run = [&](std::int64_t first, std::int64_t count) {
    const test::DeviceArray<float> logprobs(count);
    const test::DeviceArray<std::int32_t> tokens(count);
    const test::DeviceArray<std::byte> workspace(cuda::sample_workspace_bytes(count, vocab));
    cuda::sample({.stream = stream(),
                  .logits = x.data() + first * vocab,
                  .rows = count,
                  .vocab = vocab,
                  .usable_vocab = vocab - 399,
                  .tokens = tokens.data(),
                  .logprobs = logprobs.data(),
                  .workspace = workspace.data(),
                  .workspace_bytes = workspace.byte_count()});
    return logprobs.download();
  };
  const auto together = run(0, rows);
  for (std::int64_t r = 0; r < rows; ++r) EXPECT_EQ(run(r, 1)[0], together[static_cast<std::size_t>(r)]);
}

}  // namespace
}  // namespace snug::kernels
