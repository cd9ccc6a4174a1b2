#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "unit/kernels/attention_case.h"

namespace snug::kernels {
namespace {

using Batch = std::vector<std::pair<std::size_t, Lengths>>;

unsigned fresh_seed() {
  static std::random_device device;
  return device();
}

std::string describe(const Shape& s, unsigned seed) {
  return std::string(name_of(s.dtype)) + " heads " + std::to_string(s.heads) + "/" +
         std::to_string(s.kv_heads) + " head_dim " + std::to_string(s.head_dim) + " block " +
         std::to_string(s.block_size) + " seed " + std::to_string(seed);
}

void store_batch(AttentionCase& c, const Batch& batch) {
  for (const auto& [sequence, lengths] : batch) c.store(sequence, lengths.kv_len);
}

// Every backend agrees with the plain softmax; cpu agrees with itself on any number of threads, bit for bit.
void check(const AttentionCase& c, const Batch& batch, const std::vector<TestBackend>& backends,
           std::int64_t window = 0) {
  std::vector<std::vector<double>> expected;
  for (const auto& [sequence, lengths] : batch) expected.push_back(c.expected(sequence, lengths, window));
  for (const TestBackend& backend : backends) {
    SCOPED_TRACE(backend.name);
    const auto out = c.run(backend, 1, batch, window);
    EXPECT_TRUE(out.guards_hold);
    for (std::size_t b = 0; b < batch.size(); ++b) {
      SCOPED_TRACE("sequence " + std::to_string(b));
      const double tolerance = c.tolerance(batch[b].first);
      ASSERT_EQ(out.rows[b].size(), expected[b].size());
      for (std::size_t i = 0; i < expected[b].size(); ++i) {
        ASSERT_NEAR(out.rows[b][i], expected[b][i], tolerance) << "element " << i;
      }
    }
    if (backend.is_ref()) continue;
    EXPECT_EQ(c.run(backend, 2, batch, window).rows, out.rows) << "2 threads";
  }
}

TEST(Attention, EveryTypeAndShape) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const int head_dim : {8, 32, 64, 80, 128}) {
      for (const int group : {1, 3, 4, 7}) {
        for (const int block_size : {16, 32}) {
          const Shape shape{dtype, 2 * group, 2, head_dim, block_size};
          const unsigned seed = fresh_seed();
          SCOPED_TRACE(describe(shape, seed));
          // A first chunk, a chunk that continues, and single tokens.
          const Batch batch = {{0, {19, 19}}, {1, {70, 9}}, {2, {1, 1}}, {3, {81, 1}}};
          AttentionCase c(shape, {19, 70, 1, 81}, seed);
          store_batch(c, batch);
          check(c, batch, all_backends());
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Attention, LongMixedBatch) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    const Shape shape{dtype, 7, 1, 32, 16};
    const unsigned seed = fresh_seed();
    SCOPED_TRACE(describe(shape, seed));
    const Batch batch = {{0, {200, 200}}, {1, {1100, 1}}, {2, {700, 90}}, {3, {513, 2}}, {4, {40, 1}}};
    AttentionCase c(shape, {200, 1100, 700, 513, 40}, seed);
    store_batch(c, batch);
    check(c, batch, all_backends());
  }
}

// One or two long single-token sequences: the KV range is cut over the workers.
TEST(Attention, LongSingleTokens) {
  for (const int kv_heads : {1, 2, 3}) {
    const Shape shape{DType::f16, 3 * kv_heads, kv_heads, 32, 16};
    const unsigned seed = fresh_seed();
    SCOPED_TRACE(describe(shape, seed));
    AttentionCase c(shape, {5000, 600}, seed);
    const Batch one = {{0, {5000, 1}}}, two = {{0, {4097, 1}}, {1, {600, 1}}};
    store_batch(c, one);
    check(c, one, all_backends());
    store_batch(c, two);
    check(c, two, all_backends());
    check(c, two, all_backends(), 1500);
  }
}

TEST(Attention, ChunksEqualTheWhole) {
  for (const int group : {1, 7}) {
    const Shape shape{DType::f16, group, 1, 32, 16};
    const unsigned seed = fresh_seed();
    SCOPED_TRACE(describe(shape, seed));
    const int total = 600;
    AttentionCase c(shape, {total}, seed);
    for (const std::int64_t window : {0, 200}) {
      for (const TestBackend& backend : cpu_backends()) {
        SCOPED_TRACE(backend.name);
        c.poison();
        c.store(0, total);
        const auto whole = c.run(backend, 2, {{0, {total, total}}}, window).rows[0];
        c.poison();
        std::vector<float> chunked;
        int at = 0;
        for (const int n : {1, 63, 37, 1, 98, 300, 17, 1, 1, 81}) {
          at += n;
          c.store(0, at);  // what a chunk must not see is still NaN
          const auto rows = c.run(backend, 2, {{0, {at, n}}}, window).rows[0];
          chunked.insert(chunked.end(), rows.begin(), rows.end());
        }
        ASSERT_EQ(at, total);
        EXPECT_EQ(chunked, whole) << "window " << window;
      }
    }
  }
}

TEST(Attention, CompanyInTheBatchChangesNothing) {
  const Shape shape{DType::bf16, 6, 2, 80, 32};
  const unsigned seed = fresh_seed();
  SCOPED_TRACE(describe(shape, seed));
  const Batch batch = {{0, {45, 45}}, {1, {600, 1}}, {2, {130, 30}}};
  AttentionCase c(shape, {45, 600, 130}, seed);
  store_batch(c, batch);
  for (const TestBackend& backend : cpu_backends()) {
    SCOPED_TRACE(backend.name);
    const auto together = c.run(backend, 2, batch);
    for (std::size_t b = 0; b < batch.size(); ++b) {
      EXPECT_EQ(c.run(backend, 3, {batch[b]}).rows[0], together.rows[b]) << "sequence " << b;
    }
  }
}

TEST(Attention, SlidingWindowReadsNothingOlder) {
  const Shape shape{DType::f32, 6, 2, 32, 16};
  for (const int window : {1, 5, 16, 64, 100, 1000}) {
    const unsigned seed = fresh_seed();
    SCOPED_TRACE(describe(shape, seed) + " window " + std::to_string(window));
    const Batch batch = {{0, {200, 200}}, {1, {333, 40}}, {2, {777, 1}}};
    AttentionCase c(shape, {200, 333, 777}, seed);
    store_batch(c, batch);
    for (const auto& [sequence, lengths] : batch) {
      const int oldest = std::max(0, lengths.kv_len - lengths.q_len - window + 1);
      for (int page = 0; page < oldest / shape.block_size; ++page) {
        c.drop_page(sequence, static_cast<std::size_t>(page));
      }
    }
    check(c, batch, all_backends(), window);
  }
}

TEST(Attention, LargeScoresStayFinite) {
  const Shape shape{DType::f32, 4, 2, 64, 16};
  const unsigned seed = fresh_seed();
  SCOPED_TRACE(describe(shape, seed));
  const Batch batch = {{0, {150, 150}}, {1, {700, 1}}};
  AttentionCase c(shape, {150, 700}, seed, 300.0f);  // scores of a few hundred: exp would overflow
  store_batch(c, batch);
  check(c, batch, all_backends());
}

TEST(Attention, NotANumberIsNotHidden) {
  const Shape shape{DType::f32, 2, 2, 32, 16};
  AttentionCase c(shape, {100}, fresh_seed());
  c.store(0, 100);
  c.set_k(0, 40, std::numeric_limits<float>::quiet_NaN());  // KV head 0
  for (const TestBackend& backend : all_backends()) {
    SCOPED_TRACE(backend.name);
    const auto rows = c.run(backend, 1, {{0, {100, 100}}}).rows[0];
    const auto at = [&](int t, int h) { return rows[static_cast<std::size_t>((t * 2 + h) * 32)]; };
    EXPECT_TRUE(std::isfinite(at(39, 0)));
    EXPECT_TRUE(std::isnan(at(40, 0)));
    EXPECT_TRUE(std::isnan(at(99, 0)));
    EXPECT_TRUE(std::isfinite(at(99, 1)));
  }
}

TEST(Attention, EmptyBatchDoesNothing) {
  AttentionCase c({}, {20}, fresh_seed());
  c.store(0, 20);
  for (const TestBackend& backend : all_backends()) {
    EXPECT_TRUE(c.run(backend, 2, {}).guards_hold);
    EXPECT_TRUE(c.run(backend, 2, {{0, {20, 0}}}).rows[0].empty());
  }
}

}  // namespace
}  // namespace snug::kernels
