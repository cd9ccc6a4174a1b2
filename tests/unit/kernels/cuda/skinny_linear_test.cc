// cuda::skinny_linear against products in double of the same weights: every format, input and output.
#include "kernels/skinny_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/linear_layout.h"
#include "quant/format.h"
#include "unit/kernels/cuda/values.h"

namespace snug::kernels {
namespace {

using quant::Format;

enum class Output { parts, gated, f32, bf16 };

struct Case {
  std::int64_t rows, cols;
  int tokens;
  Output output;
  bool norm = false;  // the input is the norm of the residual stream, else x
  int pending = 0;    // parts that are to be added to it
};

class CudaSkinnyLinear : public test::GpuTest, public testing::WithParamInterface<Format> {
 protected:
  // Row-major random weights of the format: their bytes, and what they decode to.
  void make_weights(std::int64_t rows, std::int64_t cols) {
    const auto& info = quant::info(GetParam());
    const std::int64_t row_bytes = cols / info.block_elems * info.block_bytes;
    const auto values = random_vector(rng_, rows * cols, 0.05f);
    std::vector<std::byte> blocks(static_cast<std::size_t>(rows * row_bytes));
    decoded_.resize(values.size());
    info.encode(values.data(), blocks.data(), rows * cols);
    info.decode(blocks.data(), decoded_.data(), rows * cols);
    source_ = std::make_unique<test::DeviceArray<std::byte>>(blocks);
    weight_ = {GetParam(), Layout::rows, rows, cols, source_->data()};
    const auto target = cuda::target_of(GetParam(), rows, cols, false);
    ASSERT_EQ(target.layout, Layout::packed);
    packed_ = std::make_unique<test::DeviceArray<std::byte>>(target.bytes);
    const WeightView packed = {target.format, target.layout, rows, cols, packed_->data()};
    cuda::pack_rows(stream(), weight_, packed, 0);
    weight_ = packed;
  }

  void check(const Case& c) {
    SCOPED_TRACE(std::string(quant::info(GetParam()).name) + " rows " + std::to_string(c.rows) + " cols " +
                 std::to_string(c.cols) + " tokens " + std::to_string(c.tokens) + " output " +
                 std::to_string(static_cast<int>(c.output)) + " norm " + std::to_string(c.norm) +
                 " pending " + std::to_string(c.pending));
    make_weights(c.rows, c.cols);
    const std::int64_t count = c.tokens * c.cols;
    const auto x = rounded_to(DType::bf16, random_vector(rng_, count));
    const auto h = random_vector(rng_, count), parts = random_vector(rng_, 2 * count, 0.3f);
    const auto bias = random_vector(rng_, c.cols, 0.1f), norm = random_vector(rng_, c.cols);
    const auto results = run(c, x, h, parts, bias, norm, c.tokens);
    const auto input = c.norm ? normed(c, h, parts, bias, norm) : x;
    compare(c, input, results);
    // The last token alone has the same bits.
    const auto last = [&](const std::vector<float>& all) {
      return std::vector<float>(all.end() - c.cols, all.end());
    };
    std::vector<float> last_parts;
    for (int p = 0; p < 2; ++p) {
      const auto end = parts.begin() + (p + 1) * count;
      last_parts.insert(last_parts.end(), end - c.cols, end);
    }
    const auto alone = run(c, last(x), last(h), last_parts, bias, norm, 1);
    const std::int64_t width = c.output == Output::gated ? c.rows / 2 : c.rows;
    const std::vector<float> whole(results.end() - width, results.end());
    EXPECT_EQ(alone, whole) << "alone";
  }

 private:
  // (tokens, outputs); parts already added up.
  std::vector<float> run(const Case& c, const std::vector<float>& x, const std::vector<float>& h,
                         const std::vector<float>& parts, const std::vector<float>& bias,
                         const std::vector<float>& norm, int tokens) {
    const std::int64_t outputs = c.output == Output::gated ? c.rows / 2 : c.rows;
    const std::int64_t stride = outputs + 16;
    const DeviceValues from(DType::bf16, x);
    const test::DeviceArray<float> residual(h), next(tokens * c.cols), pending(parts), added(bias),
        weights(norm), split(2 * tokens * stride);
    Residual stream_state = {.x = residual.data(),
                             .next = next.data(),
                             .pending = {.parts = pending.data(),
                                         .part_stride = tokens * c.cols,
                                         .count = c.pending,
                                         .bias = c.pending > 0 ? added.data() : nullptr}};
    const DType dtype = c.output == Output::f32 ? DType::f32 : DType::bf16;
    const DeviceValues y(dtype, tokens * stride);
    SkinnyLinearParams p = {.stream = stream(), .tokens = tokens, .weight = weight_, .y_stride = stride};
    if (c.norm) {
      p.residual = &stream_state, p.norm = weights.data(), p.eps = 1e-6f;
    } else {
      p.x = from.view(), p.x_stride = c.cols;
    }
    if (c.output == Output::parts) {
      p.parts = split.data(), p.part_stride = tokens * stride;
    } else {
      p.y = y.view(), p.gated = c.output == Output::gated;
    }
    cuda::skinny_linear(p);
    std::vector<float> result;
    const auto values = c.output == Output::parts ? split.download() : y.download();
    for (int t = 0; t < tokens; ++t) {
      for (std::int64_t r = 0; r < stride; ++r) {
        const auto at = static_cast<std::size_t>(t * stride + r);
        if (r >= outputs) {
          EXPECT_TRUE(std::isnan(values[at])) << "written beyond the row";
          continue;
        }
        result.push_back(c.output == Output::parts
                             ? values[at] + values[at + static_cast<std::size_t>(tokens * stride)]
                             : values[at]);
      }
    }
    EXPECT_TRUE(y.guards_untouched() && split.guards_untouched() && next.guards_untouched());
    if (c.norm && c.pending > 0) {
      EXPECT_EQ(next.download(), summed(c, h, parts, bias, tokens)) << "the residual stream";
    }
    return result;
  }

  static std::vector<float> summed(const Case& c, const std::vector<float>& h,
                                   const std::vector<float>& parts, const std::vector<float>& bias,
                                   int tokens) {
    std::vector<float> sum = h;
    const auto count = static_cast<std::size_t>(tokens * c.cols);
    for (std::size_t i = 0; i < count && c.pending > 0; ++i) {
      for (int p = 0; p < c.pending; ++p) sum[i] += parts[static_cast<std::size_t>(p) * count + i];
      sum[i] += bias[i % static_cast<std::size_t>(c.cols)];
    }
    return sum;
  }

  static std::vector<float> normed(const Case& c, const std::vector<float>& h,
                                   const std::vector<float>& parts, const std::vector<float>& bias,
                                   const std::vector<float>& norm) {
    auto x = summed(c, h, parts, bias, c.tokens);
    for (int t = 0; t < c.tokens; ++t) {
      float* row = x.data() + t * c.cols;
      double squares = 0;
      for (std::int64_t k = 0; k < c.cols; ++k) squares += static_cast<double>(row[k]) * row[k];
      const double factor = 1 / std::sqrt(squares / static_cast<double>(c.cols) + 1e-6);
      for (std::int64_t k = 0; k < c.cols; ++k) {
        row[k] = static_cast<float>(row[k] * factor * norm[static_cast<std::size_t>(k)]);
      }
    }
    return rounded_to(DType::bf16, x);
  }

  void compare(const Case& c, const std::vector<float>& x, const std::vector<float>& got) const {
    const std::int64_t outputs = c.output == Output::gated ? c.rows / 2 : c.rows;
    for (int t = 0; t < c.tokens; ++t) {
      const auto product = [&](std::int64_t row, double& tolerance) {
        double sum = 0, ww = 0, xx = 0;
        for (std::int64_t k = 0; k < c.cols; ++k) {
          const double w = decoded_[static_cast<std::size_t>(row * c.cols + k)];
          const double v = x[static_cast<std::size_t>(t * c.cols + k)];
          sum += w * v, ww += w * w, xx += v * v;
        }
        // Float32 sums; of the norm, a few values that fall to the other side of a bfloat16.
        const double flips = c.norm ? 2.0 / 256 / std::sqrt(static_cast<double>(c.cols)) : 0;
        tolerance = std::sqrt(ww * xx) * (4e-6 + flips);
        return sum;
      };
      for (std::int64_t r = 0; r < outputs; r += 1 + r % 3) {
        double tolerance = 0, up_tolerance = 0;
        double want = product(r, tolerance);
        if (c.output == Output::gated) {
          const double up = product(outputs + r, up_tolerance), gate = want;
          want = gate / (1 + std::exp(-gate)) * up;
          tolerance = 1.1 * tolerance * std::abs(up) + up_tolerance * std::abs(gate) + 1e-5 * std::abs(want) +
                      tolerance * up_tolerance;
        }
        if (c.output == Output::gated || c.output == Output::bf16) tolerance += std::abs(want) / 256 + 1e-30;
        ASSERT_NEAR(got[static_cast<std::size_t>(t * outputs + r)], want, tolerance)
            << "token " << t << " row " << r;
      }
    }
  }

  unsigned seed_ = fresh_test_seed();
  std::mt19937 rng_{seed_};
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  std::vector<float> decoded_;
  std::unique_ptr<test::DeviceArray<std::byte>> source_, packed_;
  WeightView weight_;
};

TEST_P(CudaSkinnyLinear, SmallAndOddShapes) {
  const std::int64_t cols = GetParam() == Format::q4_k || GetParam() == Format::q6_k ? 256 : 64;
  check({.rows = 64, .cols = cols, .tokens = 1, .output = Output::parts});
  check({.rows = 64, .cols = cols, .tokens = 3, .output = Output::f32, .norm = true, .pending = 1});
  check({.rows = 64, .cols = cols, .tokens = 8, .output = Output::bf16});
  check({.rows = 32, .cols = 3 * cols, .tokens = 8, .output = Output::gated, .norm = true, .pending = 2});
  check({.rows = 16, .cols = 5 * cols, .tokens = 2, .output = Output::f32});
  check({.rows = 8800, .cols = cols, .tokens = 4, .output = Output::gated});
  check({.rows = 4352, .cols = 2 * cols, .tokens = 5, .output = Output::parts, .norm = true, .pending = 2});
}

TEST_P(CudaSkinnyLinear, ShapesOfTheModels) {
  const std::int64_t hidden = GetParam() == Format::q4_k || GetParam() == Format::q6_k ? 1024 : 896;
  for (const int tokens : {1, 2, 8}) {
    check({.rows = 1152,
           .cols = hidden,
           .tokens = tokens,
           .output = Output::parts,
           .norm = true,
           .pending = 2});
    check({.rows = 896, .cols = hidden, .tokens = tokens, .output = Output::parts});
    check({.rows = 4864,
           .cols = hidden,
           .tokens = tokens,
           .output = Output::gated,
           .norm = true,
           .pending = 2});
    check({.rows = 896, .cols = 4864, .tokens = tokens, .output = Output::parts});
  }
  check({.rows = 3584, .cols = 3584, .tokens = 1, .output = Output::f32, .norm = true});
  check({.rows = 512, .cols = 18944, .tokens = 8, .output = Output::parts});
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaSkinnyLinear,
                         testing::Values(Format::q4_0, Format::q8_0, Format::q4_k, Format::q6_k),
                         [](const auto& parameter) {
                           return std::string(quant::info(parameter.param).name);
                         });

}  // namespace
}  // namespace snug::kernels
