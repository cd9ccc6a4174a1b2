#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "unit/kernels/cuda/values.h"

namespace snug::kernels {
namespace {

using test::DeviceArray;
constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

class CudaElementwise : public test::GpuTest {
 protected:
  CudaElementwise()
      : seed_(fresh_test_seed()), rng_(seed_), trace_(__FILE__, __LINE__, "seed " + std::to_string(seed_)) {}
  unsigned seed_;
  std::mt19937 rng_;
  testing::ScopedTrace trace_;
};

// In place as float32, then as bfloat16, of all rows and of some.
TEST_F(CudaElementwise, RmsNormAgreesWithDouble) {
  const float eps = 1e-6f;
  for (const std::int64_t hidden : {1, 7, 64, 576, 896, 1024, 3584, 4099, 5120, 8192, 12000}) {
    for (const std::int64_t tokens : {1, 5, 40}) {
      for (const float factor : {1e-4f, 1.0f, 1e4f}) {
        for (const bool in_place : {true, false}) {
          for (const bool gathered : {false, true}) {
            if (in_place && gathered) continue;
            const auto x = random_vector(rng_, tokens * hidden, factor);
            const auto weight = random_vector(rng_, hidden);
            std::vector<std::int32_t> rows(index(gathered ? (tokens + 1) / 2 : tokens));
            std::iota(rows.begin(), rows.end(), 0);
            if (gathered) {
              for (std::int32_t& row : rows) row = static_cast<std::int32_t>(rng_() % index(tokens));
            }
            const DType dtype = in_place ? DType::f32 : DType::bf16;
            const DeviceArray<float> from(x), scale(weight);
            const DeviceArray<std::int32_t> which(rows);
            const DeviceValues to(dtype, std::ssize(rows) * hidden);
            const DeviceValues own(DType::f32, x);
            const DeviceValues& y = in_place ? own : to;
            cuda::rms_norm({.stream = stream(),
                            .x = in_place ? own.view().f32() : from.data(),
                            .weight = scale.data(),
                            .y = y.view(),
                            .tokens = std::ssize(rows),
                            .hidden = hidden,
                            .eps = eps,
                            .rows = gathered ? which.data() : nullptr});
            const auto result = y.download();
            EXPECT_TRUE(y.guards_untouched());
            const double tolerance = in_place ? 4 * kEpsilon : 1.01 * rounding_of(dtype);
            for (std::int64_t t = 0; t < std::ssize(rows); ++t) {
              const float* row = &x[index(rows[index(t)] * hidden)];
              double sum = 0;
              for (std::int64_t i = 0; i < hidden; ++i) sum += static_cast<double>(row[i]) * row[i];
              const double rms = std::sqrt(sum / static_cast<double>(hidden) + static_cast<double>(eps));
              for (std::int64_t i = 0; i < hidden; ++i) {
                const double expected = row[i] / rms * weight[index(i)];
                ASSERT_NEAR(result[index(t * hidden + i)], expected, tolerance * std::abs(expected))
                    << "hidden " << hidden << " token " << t << " element " << i;
              }
            }
          }
        }
      }
    }
  }
}

TEST_F(CudaElementwise, SwigluAgreesWithDouble) {
  const float extremes[] = {0.0f, -0.0f, 20.0f, -20.0f, 80.0f, -80.0f, 200.0f, -200.0f, 1e30f, -1e30f};
  for (const std::int64_t intermediate : {1, 13, 1000, 4864, 9001}) {
    for (const std::int64_t tokens : {1, 6, 33}) {
      for (const std::int64_t gap : {0, 3, 8}) {
        for (const DType dtype : {DType::f32, DType::bf16}) {
          const std::int64_t stride = 2 * intermediate + gap;
          auto x = random_vector(rng_, tokens * stride, 5.0f);
          for (std::size_t i = 0; i < x.size(); i += 7) x[i] = extremes[rng_() % std::size(extremes)];
          x = rounded_to(dtype, x);
          const DeviceValues data(dtype, x);
          cuda::swiglu({.stream = stream(),
                        .gate = data.view(),
                        .up = data.view().at(intermediate),
                        .y = data.view(),  // over the gate
                        .tokens = tokens,
                        .intermediate = intermediate,
                        .stride = stride,
                        .y_stride = stride});
          const auto y = data.download();
          EXPECT_TRUE(data.guards_untouched());
          for (std::int64_t i = 0; i < tokens * stride; ++i) {
            if (i % stride >= intermediate) {
              ASSERT_EQ(y[index(i)], x[index(i)]) << "only y is written";
              continue;
            }
            const double g = x[index(i)], u = x[index(i + intermediate)];
            const double expected = g / (1.0 + std::exp(-g)) * u;
            if (std::abs(expected) > 3.3e38) {  // bfloat16 ends a little earlier
              ASSERT_TRUE(std::abs(y[index(i)]) > 3.2e38f);
              continue;
            }
            // exp overflows from 88 on, and its reciprocal's subnormals may be 0.
            const double lost = g < -80 && g > -1000 ? 5e-38 * std::abs(g * u) : 0;
            const double tolerance = dtype == DType::f32 ? 6 * kEpsilon : 1.01 * rounding_of(dtype);
            ASSERT_NEAR(y[index(i)], expected, tolerance * std::abs(expected) + lost + 1e-37)
                << name_of(dtype) << " gate " << g << " up " << u;
          }
        }
      }
    }
  }
}

TEST_F(CudaElementwise, SettleAddsPartsInOrder) {
  for (const std::int64_t hidden : {7, 896, 3584}) {
    for (const std::int64_t tokens : {1, 3, 70}) {
      for (const int count : {0, 1, 2, 5}) {
        for (const std::int64_t gap : {0, 1, 8}) {
          const std::int64_t values = tokens * hidden, part_stride = values + gap;
          const auto x = random_vector(rng_, values),
                     parts = random_vector(rng_, std::max(count, 1) * part_stride);
          const auto bias = random_vector(rng_, hidden);
          const DeviceArray<float> stream_x(x), pending(parts), added(bias);
          const bool with_bias = count == 2;
          Residual residual = {.x = stream_x.data(),
                               .next = nullptr,
                               .pending = {.parts = pending.data(),
                                           .part_stride = part_stride,
                                           .count = count,
                                           .bias = with_bias ? added.data() : nullptr}};
          cuda::settle({.stream = stream(), .residual = &residual, .tokens = tokens, .hidden = hidden});
          EXPECT_EQ(residual.pending.count, 0);
          const auto result = stream_x.download();
          EXPECT_TRUE(stream_x.guards_untouched());
          for (std::int64_t i = 0; i < values; ++i) {
            float expected = x[index(i)];
            for (int p = 0; p < count; ++p) expected += parts[index(p * part_stride + i)];
            if (with_bias) expected += bias[index(i % hidden)];
            ASSERT_EQ(result[index(i)], expected) << "hidden " << hidden << " parts " << count;
          }
        }
      }
    }
  }
}

TEST_F(CudaElementwise, RopeAnglesAgreeWithTheHost) {
  for (const int half : {4, 32, 64, 128}) {
    for (const std::int64_t tokens : {1, 77}) {
      std::vector<float> inverse(index(half));
      for (int i = 0; i < half; ++i)
        inverse[index(i)] = static_cast<float>(std::pow(1e6, -static_cast<double>(i) / half));
      std::vector<std::int32_t> positions(index(tokens));
      for (std::int32_t& position : positions) position = static_cast<std::int32_t>(rng_() % (1u << 20));
      std::vector<float> expected(index(tokens * 2 * half));
      const DeviceArray<std::int32_t> at(positions);
      const DeviceArray<float> cos_sin(tokens * 2 * half);
      RopeAnglesParams p{.stream = stream(),
                         .inverse_frequencies = inverse,
                         .factor = 1.25f,
                         .positions = at.data(),
                         .tokens = tokens,
                         .cos_sin = cos_sin.data()};
      cuda::rope_angles(p);
      const auto result = cos_sin.download();
      EXPECT_TRUE(cos_sin.guards_untouched());
      p.stream = {};
      p.positions = positions.data();
      p.cos_sin = expected.data();
      cpu::rope_angles(p);
      for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(result[i], expected[i], 2 * kEpsilon);
    }
  }
}

struct RopeCase {
  DType dtype, kv_dtype;
  int heads, kv_heads, head_dim, block_size;
  bool interleaved;
  int parts;
  bool bias;
  std::int64_t gap;                            // between rows of q, k and v
  std::vector<std::pair<int, int>> sequences;  // tokens in the cache with the query's, query tokens
};

void check_rope(const RopeCase& c, std::mt19937& rng) {
  const int dim = c.head_dim, half = dim / 2, all_heads = c.heads + 2 * c.kv_heads;
  const std::int64_t columns = std::int64_t{all_heads} * dim, stride = columns + c.gap;
  // Blocks are scattered; the second row and the last belong to no sequence.
  std::int64_t page_stride = 0, blocks = 2;
  for (const auto& [kv_len, q_len] : c.sequences) {
    const std::int64_t pages = (kv_len + c.block_size - 1) / c.block_size;
    page_stride = std::max(page_stride, pages + 1);
    blocks += pages;
  }
  std::vector<std::int32_t> order(index(blocks));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), rng);
  std::vector<std::int32_t> pages(index(page_stride * std::ssize(c.sequences)), 0x3FFFFFFF), positions,
      owners;
  for (std::size_t s = 0; s < c.sequences.size(); ++s) {
    const auto [kv_len, q_len] = c.sequences[s];
    for (int i = 0; i < (kv_len + c.block_size - 1) / c.block_size; ++i) {
      pages[s * index(page_stride) + index(i)] = order.back();
      order.pop_back();
    }
    for (int i = 0; i < q_len; ++i) {
      positions.push_back(kv_len - q_len + i);
      owners.push_back(static_cast<std::int32_t>(s));
      if (owners.size() != 1) continue;
      positions.push_back(-1);
      owners.push_back(-1);
    }
  }
  positions.push_back(0);
  owners.push_back(-1);
  const std::int64_t tokens = std::ssize(owners), part_stride = tokens * columns + 4;

  auto x = random_vector(rng, tokens * stride);
  for (std::size_t i = 0; i < x.size(); i += 11) x[i] *= 1e6f;   // beyond float16
  for (std::size_t i = 5; i < x.size(); i += 11) x[i] *= 1e-6f;  // its subnormals
  x[index(2 * stride + (c.heads + c.kv_heads) * dim)] = std::numeric_limits<float>::quiet_NaN();
  x = rounded_to(c.dtype, x);
  const auto parts = random_vector(rng, std::max(c.parts, 1) * part_stride),
             bias = random_vector(rng, columns);
  std::vector<float> cos_sin(index(tokens * dim));
  for (std::int64_t i = 0; i < tokens * dim; ++i) {
    if (i % dim >= half) continue;
    const double angle = static_cast<double>(rng() % 100000) / 100.0;
    cos_sin[index(i)] = static_cast<float>(std::cos(angle));
    cos_sin[index(i + half)] = static_cast<float>(std::sin(angle));
  }
  const std::int64_t elements = blocks * c.kv_heads * c.block_size * dim;
  const DeviceValues data(c.dtype, x), k_pool(c.kv_dtype, elements), v_pool(c.kv_dtype, elements);
  const DeviceArray<float> angles(cos_sin), pending(parts), added(bias);
  const DeviceArray<std::int32_t> at(positions), owner(owners), page_tables(pages);
  const auto before = data.bytes();
  cuda::rope_store({.stream = test::GpuTest::stream(),
                    .q = data.view(),
                    .k = data.view().at(c.heads * dim),
                    .v = data.view().at((c.heads + c.kv_heads) * dim),
                    .cos_sin = angles.data(),
                    .positions = at.data(),
                    .tokens = tokens,
                    .heads = c.heads,
                    .interleaved = c.interleaved,
                    .q_stride = stride,
                    .kv_stride = stride,
                    .kv = {.k = k_pool.view().data,
                           .v = v_pool.view().data,
                           .dtype = c.kv_dtype,
                           .block_size = c.block_size,
                           .kv_heads = c.kv_heads,
                           .head_dim = dim},
                    .sequences = {},
                    .device = {.page_tables = page_tables.data(),
                               .page_stride = page_stride,
                               .row_sequence = owner.data()},
                    .pending = {.parts = pending.data(),
                                .part_stride = part_stride,
                                .count = c.parts,
                                .bias = c.bias ? added.data() : nullptr}});
  const auto after = data.bytes();
  const auto q = decoded(c.dtype, after);
  const auto k_bytes = k_pool.bytes(), v_bytes = v_pool.bytes();
  const auto k = decoded(c.kv_dtype, k_bytes), v = decoded(c.kv_dtype, v_bytes);
  EXPECT_TRUE(data.guards_untouched() && k_pool.guards_untouched() && v_pool.guards_untouched());

  const auto expect_near = [](float actual, double expected, double norm, DType dtype) {
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual));
      return;
    }
    if (dtype == DType::f16) expected = std::clamp(expected, -65504.0, 65504.0);
    const double tolerance = rounding_of(dtype) * std::abs(expected) + 3 * kEpsilon * norm;
    ASSERT_FALSE(std::isnan(tolerance));
    ASSERT_NEAR(actual, expected, tolerance + (dtype == DType::f16 ? 3e-8 : 0));
  };
  std::vector<bool> written(index(elements), false);
  const std::size_t size = size_of(c.dtype);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int32_t sequence = owners[index(t)];
    const std::int64_t kept = sequence < 0 ? 0 : c.heads * dim;  // from here on a row stays as it is
    ASSERT_EQ(std::memcmp(&after[index(t * stride + kept) * size], &before[index(t * stride + kept) * size],
                          index(stride - kept) * size),
              0);
    if (sequence < 0) continue;
    const auto value = [&](std::int64_t column) {
      double sum = c.parts > 0 ? 0 : x[index(t * stride + column)];
      for (int p = 0; p < c.parts; ++p) sum += parts[index(p * part_stride + t * columns + column)];
      return c.bias ? sum + bias[index(column)] : sum;
    };
    const std::int64_t block = pages[index(sequence * page_stride + positions[index(t)] / c.block_size)];
    for (int head = 0; head < all_heads; ++head) {
      const bool is_v = head >= c.heads + c.kv_heads;
      const std::int64_t column = std::int64_t{head} * dim;
      for (int i = 0; i < half; ++i) {
        const int low = c.interleaved ? 2 * i : i, high = c.interleaved ? low + 1 : i + half;
        const double a = value(column + low), b = value(column + high);
        // Of v, where nothing is rotated, a NaN must not reach its neighbour's tolerance.
        const double norm_a = is_v ? std::abs(a) + 6 : std::abs(a) + std::abs(b) + 6;
        const double norm_b = is_v ? std::abs(b) + 6 : norm_a;
        const double cosine = is_v ? 1 : cos_sin[index(t * dim + i)],
                     sine = is_v ? 0 : cos_sin[index(t * dim + half + i)];
        const double first = is_v ? a : a * cosine - b * sine, second = is_v ? b : b * cosine + a * sine;
        if (head < c.heads) {
          expect_near(q[index(t * stride + column + low)], first, norm_a, c.dtype);
          expect_near(q[index(t * stride + column + high)], second, norm_b, c.dtype);
        } else {
          const int kv_head = (head - c.heads) % c.kv_heads;
          const std::int64_t slot =
              ((block * c.kv_heads + kv_head) * c.block_size + positions[index(t)] % c.block_size) * dim;
          const auto& pool = is_v ? v : k;
          expect_near(pool[index(slot + low)], first, norm_a, c.kv_dtype);
          expect_near(pool[index(slot + high)], second, norm_b, c.kv_dtype);
          written[index(slot + low)] = written[index(slot + high)] = true;
        }
        if (testing::Test::HasFatalFailure()) FAIL() << "token " << t << " head " << head << " pair " << i;
      }
    }
  }
  for (std::size_t i = 0; i < k_bytes.size(); ++i) {
    if (written[i / size_of(c.kv_dtype)]) continue;
    ASSERT_EQ(k_bytes[i], std::byte{0xFF}) << "a slot that no token owns";
    ASSERT_EQ(v_bytes[i], std::byte{0xFF}) << "a slot that no token owns";
  }
}

TEST_F(CudaElementwise, RopeStoreRotatesAndStores) {
  struct Shape {
    int heads, kv_heads, head_dim, block_size;
    std::int64_t gap;
    std::vector<std::pair<int, int>> sequences;
  };
  const std::vector<std::pair<int, int>> few = {{19, 19}, {34, 6}, {33, 1}}, many = {{300, 300}, {100, 57}};
  const Shape shapes[] = {{4, 2, 64, 16, 3, few},  {28, 4, 128, 16, 16, few}, {3, 1, 8, 8, 16, few},
                          {6, 2, 80, 16, 16, few}, {2, 2, 24, 4, 0, few},     {28, 4, 128, 16, 16, many},
                          {4, 2, 64, 32, 3, many}, {6, 2, 80, 16, 16, many},  {3, 1, 8, 8, 0, many}};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const DType kv_dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const bool interleaved : {false, true}) {
        for (const int parts : {0, 1, 3}) {
          for (const Shape& s : shapes) {
            SCOPED_TRACE(std::string(name_of(dtype)) + " to " + name_of(kv_dtype) + " head_dim " +
                         std::to_string(s.head_dim) + (interleaved ? " interleaved" : "") + " parts " +
                         std::to_string(parts));
            check_rope({dtype, kv_dtype, s.heads, s.kv_heads, s.head_dim, s.block_size, interleaved, parts,
                        rng_() % 2 == 0, s.gap, s.sequences},
                       rng_);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace snug::kernels
