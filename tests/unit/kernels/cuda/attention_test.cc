// cuda::attention against the plain softmax in double: decode, prefill and both in one call.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "unit/kernels/attention_case.h"
#include "unit/kernels/cuda/values.h"

namespace snug::kernels {
namespace {

using Batch = std::vector<std::pair<std::size_t, Lengths>>;

class CudaAttention : public test::GpuTest {
 protected:
  // A case's cache on the GPU, which no call may change.
  struct Cache {
    explicit Cache(const AttentionCase& the_case) : c(the_case), k(c.k_bytes()), v(c.v_bytes()) {}
    ~Cache() {
      EXPECT_EQ(k.download(), c.k_bytes());
      EXPECT_EQ(v.download(), c.v_bytes());
      EXPECT_TRUE(k.guards_untouched() && v.guards_untouched());
    }
    const AttentionCase& c;
    const test::DeviceArray<std::byte> k, v;
  };

  // Rows of every sequence of the batch.
  std::vector<std::vector<float>> run(const Cache& cache, const Shape& shape, const Batch& batch,
                                      std::int64_t window) {
    const AttentionCase& c = cache.c;
    const std::int64_t width = std::int64_t{shape.heads} * shape.head_dim;
    std::vector<kv::SequenceView> views;
    std::vector<std::int32_t> begins, q_lens, kv_lens, row_sequence;
    std::size_t stride = 0;
    std::vector<float> q;
    for (const auto& [sequence, lengths] : batch) {
      const auto begin = static_cast<std::int32_t>(row_sequence.size());
      views.push_back({c.pages(sequence).data(), begin, lengths.q_len, lengths.kv_len});
      stride = std::max(stride, c.pages(sequence).size());
      row_sequence.insert(row_sequence.end(), static_cast<std::size_t>(lengths.q_len),
                          static_cast<std::int32_t>(begins.size()));
      begins.push_back(begin), q_lens.push_back(lengths.q_len), kv_lens.push_back(lengths.kv_len);
      const auto& all = c.queries(sequence);
      q.insert(q.end(), all.begin() + width * (lengths.kv_len - lengths.q_len),
               all.begin() + width * lengths.kv_len);
    }
    std::vector<std::int32_t> tables(stride * batch.size(), 0x7FFFFFFF);  // entries beyond a sequence's own
    for (std::size_t b = 0; b < batch.size(); ++b) {
      std::copy(c.pages(batch[b].first).begin(), c.pages(batch[b].first).end(),
                tables.begin() + static_cast<std::ptrdiff_t>(stride * b));
    }
    const test::DeviceArray<std::int32_t> pages(tables), q_begin(begins), q_len(q_lens), kv_len(kv_lens),
        rows(row_sequence);
    const DeviceValues queries(shape.dtype, q), out(shape.dtype, static_cast<std::int64_t>(q.size()));
    const std::int64_t bytes =
        cuda::attention_workspace_bytes(shape.heads, shape.head_dim, static_cast<std::int64_t>(batch.size()));
    const test::DeviceArray<std::byte> workspace(bytes);
    const std::vector<std::uint32_t> nobody(batch.size() * static_cast<std::size_t>(shape.heads));
    const test::DeviceArray<std::uint32_t> arrivals(nobody);
    const AttentionParams params = {.stream = stream(),
                                    .q = queries.view(),
                                    .out = out.view(),
                                    .heads = shape.heads,
                                    .scale = c.scale(),
                                    .kv = {.k = cache.k.data(),
                                           .v = cache.v.data(),
                                           .dtype = shape.dtype,
                                           .block_size = shape.block_size,
                                           .kv_heads = shape.kv_heads,
                                           .head_dim = shape.head_dim},
                                    .sequences = views,
                                    .device = {.page_tables = pages.data(),
                                               .page_stride = static_cast<std::int64_t>(stride),
                                               .q_begin = q_begin.data(),
                                               .q_len = q_len.data(),
                                               .kv_len = kv_len.data(),
                                               .row_sequence = rows.data()},
                                    .window = window,
                                    .workspace = workspace.data(),
                                    .workspace_bytes = bytes,
                                    .arrivals = arrivals.data()};
    cuda::attention(params);
    const auto all = out.download();
    const auto bits = out.bytes();
    cuda::attention(params);
    EXPECT_EQ(out.bytes(), bits) << "twice";
    EXPECT_TRUE(out.guards_untouched());
    EXPECT_TRUE(workspace.guards_untouched());
    EXPECT_TRUE(arrivals.guards_untouched());
    EXPECT_EQ(arrivals.download(), nobody);
    std::vector<std::vector<float>> result;
    for (const auto& view : views) {
      result.emplace_back(all.begin() + view.q_begin * width,
                          all.begin() + (view.q_begin + view.q_len) * width);
    }
    return result;
  }

  void check(const Shape& shape, const std::vector<Lengths>& lengths, std::int64_t window = 0) {
    const unsigned seed = fresh_test_seed();
    SCOPED_TRACE(std::string(name_of(shape.dtype)) + " heads " + std::to_string(shape.heads) + "/" +
                 std::to_string(shape.kv_heads) + " head_dim " + std::to_string(shape.head_dim) + " block " +
                 std::to_string(shape.block_size) + " window " + std::to_string(window) + " seed " +
                 std::to_string(seed));
    std::vector<int> sizes;
    Batch batch;
    for (const Lengths& l : lengths) {
      batch.emplace_back(sizes.size(), l);
      sizes.push_back(l.kv_len);
    }
    AttentionCase c(shape, sizes, seed);
    c.round_queries();
    for (const auto& [sequence, l] : batch) c.store(sequence, l.kv_len);
    const Cache cache(c);
    const auto got = run(cache, shape, batch, window);
    for (std::size_t b = 0; b < batch.size(); ++b) {
      SCOPED_TRACE("sequence " + std::to_string(b));
      const auto expected = c.expected(b, batch[b].second, window);
      ASSERT_EQ(got[b].size(), expected.size());
      // A mean of V whose weights, in bfloat16, are rounded once, and the mean once more: largest(V) is
      // below 8 in any draw.
      const double tolerance = 4 * c.tolerance(b) + (shape.dtype == DType::f32 ? 0 : 8.0 / 256);
      double error = 0, norm = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_FALSE(std::isnan(got[b][i])) << "element " << i;
        ASSERT_NEAR(got[b][i], expected[i], tolerance) << "element " << i;
        error += (got[b][i] - expected[i]) * (got[b][i] - expected[i]);
        norm += expected[i] * expected[i];
      }
      EXPECT_LE(std::sqrt(error), (shape.dtype == DType::f32 ? 1e-5 : 5e-3) * std::sqrt(norm));
      // A single token's bits do not depend on what else is in the batch.
      if (batch[b].second.q_len == 1) {
        EXPECT_EQ(run(cache, shape, {batch[b]}, window)[0], got[b]) << "alone";
      }
    }
  }
};

TEST_F(CudaAttention, EveryTypeAndShape) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int head_dim : {8, 32, 64, 80, 128, 256}) {
      for (const int group : {1, 3, 7, 9}) {
        const int block_size = group == 3 || group == 7 ? 32 : 16;
        check({dtype, 2 * group, 2, head_dim, block_size}, {{19, 19}, {70, 9}, {1, 1}, {81, 1}});
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaAttention, EdgesOfSplits) {
  for (const int head_dim : {64, 128}) {
    check({DType::f32, 14, 2, head_dim, 16},
          {{15, 1}, {16, 1}, {17, 1}, {255, 1}, {256, 1}, {257, 1}, {513, 1}});
    std::vector<Lengths> lengths;
    for (const int length : {15, 16, 17, 127, 128, 129, 255, 256, 257, 513, 1023, 1024, 1025, 2200})
      lengths.push_back({length, 1});
    check({DType::bf16, 14, 2, head_dim, 16}, lengths);
  }
}

TEST_F(CudaAttention, EdgesOfTiles) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int head_dim : {64, 128}) {
      check({dtype, 14, 2, head_dim, 16}, {{64, 64}, {65, 65}, {127, 127}, {129, 2}, {128, 64}, {257, 130}});
    }
  }
}

TEST_F(CudaAttention, Windows) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int head_dim : {64, 128}) {
      check({dtype, 14, 2, head_dim, 16}, {{400, 400}, {333, 1}, {300, 40}, {1100, 1}}, 100);
    }
  }
}

TEST_F(CudaAttention, LongContexts) {
  check({DType::bf16, 28, 4, 128, 16}, {{5000, 1}, {600, 1}, {4097, 1}});
  check({DType::bf16, 14, 2, 64, 32}, {{9000, 1}, {700, 300}});
  check({DType::f32, 14, 2, 64, 32}, {{5000, 1}, {600, 1}});
}

// More sequences than one launch takes, more units than blocks: a block's units follow each other closely.
TEST_F(CudaAttention, ManySequences) {
  std::vector<Lengths> many;
  for (int i = 0; i < 150; ++i) many.push_back({1 + i * 37 % 900, 1});
  check({DType::bf16, 28, 4, 128, 16}, many);
}

// What is not a number in the cache of one head shows in its queries, and nowhere else.
TEST_F(CudaAttention, NanIsNotHidden) {
  const Shape shape{DType::bf16, 14, 2, 128, 16};
  AttentionCase c(shape, {600}, fresh_test_seed());
  c.round_queries();
  c.store(0, 600);
  c.set_k(0, 123, std::nanf(""));
  const auto row = run(Cache(c), shape, {{0, {600, 1}}}, 0)[0];
  EXPECT_TRUE(std::isnan(row[0]));
  EXPECT_FALSE(std::isnan(row[7 * 128]));
}

}  // namespace
}  // namespace snug::kernels
