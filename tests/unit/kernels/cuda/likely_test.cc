// cuda::likely against a sort on the host.
#include "kernels/likely.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "unit/kernels/cuda/values.h"

namespace snug::kernels {
namespace {

class CudaLikely : public test::GpuTest {
 protected:
  std::vector<LikelyTokens> run(const std::vector<float>& logits, std::int64_t rows, std::int64_t usable) {
    const auto vocab = std::ssize(logits) / rows;
    const test::DeviceArray<float> device(logits);
    const test::DeviceArray<LikelyTokens> likely(rows);
    const std::int64_t bytes = cuda::likely_workspace_bytes(rows);
    const test::DeviceArray<std::byte> workspace(bytes);
    cuda::likely({.stream = stream(),
                  .logits = device.data(),
                  .rows = rows,
                  .vocab = vocab,
                  .usable_vocab = usable,
                  .likely = likely.data(),
                  .workspace = workspace.data(),
                  .workspace_bytes = bytes});
    auto result = likely.download();
    EXPECT_TRUE(likely.guards_untouched());
    EXPECT_TRUE(workspace.guards_untouched());
    return result;
  }

  void check(const std::vector<float>& logits, std::int64_t rows, std::int64_t usable) {
    const auto vocab = std::ssize(logits) / rows;
    const auto result = run(logits, rows, usable);
    for (std::int64_t r = 0; r < rows; ++r) {
      SCOPED_TRACE("row " + std::to_string(r));
      const float* row = logits.data() + r * vocab;
      std::vector<float> sorted(row, row + usable);
      std::ranges::sort(sorted, std::greater{});
      const float bound = sorted[static_cast<std::size_t>(std::min<std::int64_t>(kLikelyTokens, usable) - 1)];
      const LikelyTokens& likely = result[static_cast<std::size_t>(r)];
      ASSERT_LE(likely.count, kLikelyRoom);
      std::set<std::int32_t> ids;
      float least = std::numeric_limits<float>::infinity();
      for (int i = 0; i < likely.count; ++i) {
        const LikelyToken& token = likely.tokens[i];
        ASSERT_GE(token.id, 0);
        ASSERT_LT(token.id, usable);
        EXPECT_EQ(token.logit, row[token.id]);
        EXPECT_TRUE(ids.insert(token.id).second) << "twice: " << token.id;
        least = std::min(least, token.logit);
      }
      EXPECT_LE(least, bound);
      for (std::int64_t id = 0; id < usable; ++id) {
        if (!ids.contains(static_cast<std::int32_t>(id))) {
          EXPECT_LT(row[id], least) << "left out: " << id;
        }
      }
    }
  }

  std::mt19937 rng_{fresh_test_seed()};
};

TEST_F(CudaLikely, FindsThem) {
  for (const std::int64_t vocab : {1, 255, 256, 257, 4095, 4097, 151936, 152064}) {
    SCOPED_TRACE("vocab " + std::to_string(vocab));
    check(random_vector(rng_, 3 * vocab, 4.0f), 3, vocab);
  }
}

TEST_F(CudaLikely, LeavesThePaddedTail) {
  auto logits = random_vector(rng_, 2 * 5000, 4.0f);
  for (int r = 0; r < 2; ++r) {
    for (int id = 4800; id < 5000; ++id) logits[static_cast<std::size_t>(r * 5000 + id)] = 1e30f;
  }
  check(logits, 2, 4800);
}

TEST_F(CudaLikely, ExtremesAndSigns) {
  auto logits = random_vector(rng_, 20000, 1.0f);
  const float inf = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (i % 3 == 0) logits[i] = -inf;
    if (i % 1000 == 1) logits[i] *= 1e30f;
    if (i % 1000 == 2) logits[i] *= 1e-30f;
  }
  check(logits, 1, 20000);
  for (float& x : logits) x = -std::abs(x) - 1;
  check(logits, 1, 20000);
}

TEST_F(CudaLikely, SaysWhereTooManyAreEqual) {
  const auto result = run(std::vector<float>(30000, 1.5f), 1, 30000);
  EXPECT_EQ(result[0].count, 30000);
}

}  // namespace
}  // namespace snug::kernels
