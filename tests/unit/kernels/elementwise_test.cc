#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "core/dtype.h"
#include "unit/kernels/attention_backends.h"

namespace snug::kernels {
namespace {

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

unsigned fresh_seed() {
  static std::random_device device;
  return device();
}

std::vector<float> random_vector(std::mt19937& rng, std::size_t n, float factor = 1.0f) {
  std::normal_distribution<float> normal(0.0f, factor);
  std::vector<float> x(n);
  for (float& value : x) value = normal(rng);
  return x;
}

// Runs fn(stream, is_ref) on ref and on every instruction set, with one thread and with two.
template <class Fn>
void on_all(Fn&& fn) {
  for (const TestBackend& backend : all_backends()) {
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(backend.name + " threads " + std::to_string(threads));
      ThreadPool pool(threads);
      if (backend.is_ref()) {
        fn(Stream{.pool = &pool}, true);
      } else {
        const UseTarget use(backend);
        fn(Stream{.pool = &pool}, false);
      }
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(RmsNorm, AgreesWithDouble) {
  const unsigned seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  for (const std::int64_t hidden : {1, 7, 64, 576, 896, 4099}) {
    for (const std::int64_t tokens : {1, 5, 40}) {
      for (const float factor : {1e-4f, 1.0f, 1e4f}) {
        const float eps = 1e-6f;
        const auto x = random_vector(rng, static_cast<std::size_t>(tokens * hidden), factor);
        const auto weight = random_vector(rng, static_cast<std::size_t>(hidden));
        on_all([&](Stream stream, bool is_ref) {
          std::vector<float> y = x;  // in place
          y.push_back(7.0f);
          const RmsNormParams p{.stream = stream,
                                .x = y.data(),
                                .weight = weight.data(),
                                .y = y.data(),
                                .tokens = tokens,
                                .hidden = hidden,
                                .eps = eps};
          is_ref ? ref::rms_norm(p) : cpu::rms_norm(p);
          EXPECT_EQ(y.back(), 7.0f);
          for (std::int64_t t = 0; t < tokens; ++t) {
            const float* row = &x[static_cast<std::size_t>(t * hidden)];
            double sum = 0;
            for (std::int64_t i = 0; i < hidden; ++i) sum += static_cast<double>(row[i]) * row[i];
            const double rms = std::sqrt(sum / static_cast<double>(hidden) + static_cast<double>(eps));
            for (std::int64_t i = 0; i < hidden; ++i) {
              const double expected = row[i] / rms * weight[static_cast<std::size_t>(i)];
              ASSERT_NEAR(y[static_cast<std::size_t>(t * hidden + i)], expected,
                          4 * kEpsilon * std::abs(expected))
                  << "hidden " << hidden << " token " << t << " element " << i;
            }
          }
        });
      }
    }
  }
}

TEST(Swiglu, AgreesWithDouble) {
  const unsigned seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  for (const std::int64_t intermediate : {1, 13, 1000, 9001}) {
    for (const std::int64_t tokens : {1, 6}) {
      const std::int64_t stride = 2 * intermediate + 3;  // gate and up side by side, and a gap
      auto gate_up = random_vector(rng, static_cast<std::size_t>(tokens * stride), 5.0f);
      const float extremes[] = {0.0f, -0.0f, 20.0f, -20.0f, 80.0f, -80.0f, 200.0f, -200.0f, 1e30f, -1e30f};
      for (std::size_t i = 0; i < gate_up.size(); i += 7) gate_up[i] = extremes[rng() % std::size(extremes)];
      on_all([&](Stream stream, bool is_ref) {
        std::vector<float> data = gate_up;
        const SwigluParams p{.stream = stream,
                             .gate = data.data(),
                             .up = data.data() + intermediate,
                             .y = data.data(),  // over the gate
                             .tokens = tokens,
                             .intermediate = intermediate,
                             .stride = stride,
                             .y_stride = stride};
        is_ref ? ref::swiglu(p) : cpu::swiglu(p);
        for (std::int64_t t = 0; t < tokens; ++t) {
          for (std::int64_t i = 0; i < stride; ++i) {
            const auto at = static_cast<std::size_t>(t * stride + i);
            if (i >= intermediate) {
              ASSERT_EQ(data[at], gate_up[at]) << "only y is written";
              continue;
            }
            const double g = gate_up[at], u = gate_up[at + static_cast<std::size_t>(intermediate)];
            const double expected = g / (1.0 + std::exp(-g)) * u;
            if (std::abs(expected) > std::numeric_limits<float>::max()) {
              ASSERT_TRUE(std::isinf(data[at]));
              continue;
            }
            // exp(-86) is taken as 0; times up and gate this much may go missing.
            const double lost = g < -80 && g > -1000 ? 5e-38 * std::abs(g * u) : 0;
            ASSERT_NEAR(data[at], expected, 6 * kEpsilon * std::abs(expected) + lost + 1e-37)
                << "gate " << g << " up " << u;
          }
        }
      });
    }
  }
}

struct RopeCase {
  DType dtype;
  int heads, kv_heads, head_dim, block_size;
  bool interleaved;
};

float stored(const std::vector<std::byte>& pool, DType dtype, std::size_t index) {
  if (dtype == DType::f32) {
    float x;
    std::memcpy(&x, pool.data() + index * 4, 4);
    return x;
  }
  std::uint16_t bits;
  std::memcpy(&bits, pool.data() + index * 2, 2);
  return dtype == DType::f16 ? f32_from_f16(bits) : f32_from_bf16(bits);
}

float rounded(DType dtype, float x) {
  if (dtype == DType::f16) return f32_from_f16(f16_from_f32(std::clamp(x, -65504.0f, 65504.0f)));
  return dtype == DType::bf16 ? f32_from_bf16(bf16_from_f32(x)) : x;
}

void check_rope(const RopeCase& c, unsigned seed) {
  std::mt19937 rng(seed);
  const int dim = c.head_dim, half = dim / 2;
  // A first chunk, one that continues, a row that belongs to nobody, a single token; blocks are scattered.
  const std::vector<std::int32_t> pages_a = {4, 1, 7}, pages_b = {0, 6, 3}, pages_c = {2, 5, 8};
  const std::int32_t bs = c.block_size;
  const std::vector<kv::SequenceView> views = {
      {.page_table = pages_a.data(), .q_begin = 0, .q_len = bs + 3, .kv_len = bs + 3},
      {.page_table = pages_b.data(), .q_begin = bs + 3, .q_len = 6, .kv_len = 2 * bs + 2},
      {.page_table = pages_c.data(), .q_begin = bs + 10, .q_len = 1, .kv_len = 2 * bs + 1}};
  const std::int64_t tokens = bs + 11;
  std::vector<std::int32_t> positions(static_cast<std::size_t>(tokens), -1);
  for (const auto& view : views) {
    for (int i = 0; i < view.q_len; ++i) {
      positions[static_cast<std::size_t>(view.q_begin + i)] = view.kv_len - view.q_len + i;
    }
  }
  const auto q = random_vector(rng, static_cast<std::size_t>(tokens * c.heads * dim));
  auto k = random_vector(rng, static_cast<std::size_t>(tokens * c.kv_heads * dim));
  auto v = random_vector(rng, static_cast<std::size_t>(tokens * c.kv_heads * dim));
  for (std::size_t i = 0; i < v.size(); i += 11) v[i] *= 1e6f;   // beyond float16
  for (std::size_t i = 5; i < v.size(); i += 11) v[i] *= 1e-6f;  // its subnormals
  const std::size_t nan_at = static_cast<std::size_t>(2 * c.kv_heads * dim);
  v[nan_at] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> cos_sin(static_cast<std::size_t>(tokens * dim));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (int i = 0; i < half; ++i) {
      const double angle = static_cast<double>(rng() % 100000) / 100.0;
      cos_sin[static_cast<std::size_t>(t * dim + i)] = static_cast<float>(std::cos(angle));
      cos_sin[static_cast<std::size_t>(t * dim + half + i)] = static_cast<float>(std::sin(angle));
    }
  }
  const std::size_t elements = static_cast<std::size_t>(9 * c.kv_heads * bs * dim);

  on_all([&](Stream stream, bool is_ref) {
    std::vector<float> q_out = q, k_out = k;
    std::vector<std::byte> k_pool(elements * size_of(c.dtype), std::byte{0xFF}), v_pool = k_pool;
    const RopeStoreParams p{.stream = stream,
                            .q = q_out.data(),
                            .k = k_out.data(),
                            .v = v.data(),
                            .cos_sin = cos_sin.data(),
                            .positions = positions.data(),
                            .tokens = tokens,
                            .heads = c.heads,
                            .interleaved = c.interleaved,
                            .kv = {.k = k_pool.data(),
                                   .v = v_pool.data(),
                                   .dtype = c.dtype,
                                   .block_size = bs,
                                   .kv_heads = c.kv_heads,
                                   .head_dim = dim},
                            .sequences = views};
    is_ref ? ref::rope_store(p) : cpu::rope_store(p);

    const auto check_rotated = [&](const std::vector<float>& before, const std::vector<float>& after,
                                   int heads) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (int h = 0; h < heads; ++h) {
          const auto row = static_cast<std::size_t>((t * heads + h) * dim);
          for (int i = 0; i < half; ++i) {
            const std::size_t a = row + static_cast<std::size_t>(c.interleaved ? 2 * i : i);
            const std::size_t b = row + static_cast<std::size_t>(c.interleaved ? 2 * i + 1 : i + half);
            if (positions[static_cast<std::size_t>(t)] < 0) {
              ASSERT_EQ(after[a], before[a]) << "a row of no sequence";
              ASSERT_EQ(after[b], before[b]);
              continue;
            }
            const double cosine = cos_sin[static_cast<std::size_t>(t * dim + i)];
            const double sine = cos_sin[static_cast<std::size_t>(t * dim + half + i)];
            const double tolerance = 2 * kEpsilon * std::hypot(before[a], before[b]);
            ASSERT_NEAR(after[a], before[a] * cosine - before[b] * sine, tolerance);
            ASSERT_NEAR(after[b], before[b] * cosine + before[a] * sine, tolerance);
          }
        }
      }
    };
    check_rotated(q, q_out, c.heads);
    check_rotated(k, k_out, c.kv_heads);

    std::vector<bool> written(elements, false);
    for (const auto& view : views) {
      for (std::int64_t row = view.q_begin; row < view.q_begin + view.q_len; ++row) {
        const std::int32_t position = positions[static_cast<std::size_t>(row)];
        for (int h = 0; h < c.kv_heads; ++h) {
          for (int i = 0; i < dim; ++i) {
            const auto at = static_cast<std::size_t>(
                ((view.page_table[position / bs] * c.kv_heads + h) * bs + position % bs) * dim + i);
            const auto from = static_cast<std::size_t>((row * c.kv_heads + h) * dim + i);
            written[at] = true;
            ASSERT_EQ(stored(k_pool, c.dtype, at), rounded(c.dtype, k_out[from]));
            if (from == nan_at) {
              ASSERT_TRUE(std::isnan(stored(v_pool, c.dtype, at)));
            } else {
              ASSERT_EQ(stored(v_pool, c.dtype, at), rounded(c.dtype, v[from])) << v[from];
            }
          }
        }
      }
    }
    const std::size_t size = size_of(c.dtype);
    for (std::size_t i = 0; i < elements * size; ++i) {
      if (written[i / size]) continue;
      ASSERT_EQ(k_pool[i], std::byte{0xFF}) << "a slot that no token owns";
      ASSERT_EQ(v_pool[i], std::byte{0xFF}) << "a slot that no token owns";
    }
  });
}

TEST(RopeStore, RotatesAndStores) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const bool interleaved : {false, true}) {
      for (const RopeCase& shape :
           {RopeCase{dtype, 4, 2, 64, 16, interleaved}, RopeCase{dtype, 3, 1, 80, 32, interleaved},
            RopeCase{dtype, 2, 2, 8, 16, interleaved}, RopeCase{dtype, 7, 1, 128, 16, interleaved}}) {
        const unsigned seed = fresh_seed();
        SCOPED_TRACE(std::string(name_of(dtype)) + (interleaved ? " interleaved" : " halves") + " head_dim " +
                     std::to_string(shape.head_dim) + " seed " + std::to_string(seed));
        check_rope(shape, seed);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace snug::kernels
