// cuda::decode_layers, a whole step as one kernel, against the same step in double.
#include "kernels/decode_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "quant/format.h"
#include "unit/kernels/cuda/values.h"

namespace snug::kernels {
namespace {

using quant::Format;
using Doubles = std::vector<double>;

constexpr int kLayers = 2, kPage = 16;
constexpr float kEps = 1e-6f;

struct Shape {
  std::string name;
  Format weights, v, down, head;
  int head_dim, heads, kv_heads, hidden, intermediate, vocab;
  int context;  // tokens, with the one at hand
  int window = 0;

  int q_dim() const { return heads * head_dim; }
  int kv_dim() const { return kv_heads * head_dim; }
  int qkv_dim() const { return q_dim() + 2 * kv_dim(); }
};

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

double bf16(double x) {
  return f32_from_bf16(bf16_from_f32(static_cast<float>(x)));
}

// (rows) = w (rows, x.size()) * x
Doubles product(const std::vector<float>& w, const Doubles& x) {
  Doubles y(w.size() / x.size());
  for (std::size_t r = 0; r < y.size(); ++r) {
    for (std::size_t i = 0; i < x.size(); ++i) y[r] += double{w[r * x.size() + i]} * x[i];
  }
  return y;
}

Doubles normed(const Doubles& x, const std::vector<float>& weight) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEps);
  Doubles y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = bf16(x[i] * factor * weight[i]);
  return y;
}

class CudaDecodeLayers : public test::GpuTest, public testing::WithParamInterface<Shape> {
 protected:
  struct Layer {
    std::vector<float> q, k, v, o, gate, up, down;  // what the weights decode to
    std::vector<float> input_norm, post_norm, bias;
    std::vector<float> keys, values;  // (context - 1, kv_dim): the cache
  };

  std::vector<float> norm_weights() {
    auto w = random_vector(rng_, shape_.hidden, 0.3f);
    for (float& x : w) x += 1;
    return w;
  }

  // The bytes of a weight on the GPU.
  static std::int64_t bytes_of(Format f, std::int64_t rows, std::int64_t cols) {
    return (cuda::target_of(f, rows, cols, false).bytes + 255) / 256 * 256;
  }

  // A random weight, laid out for the GPU at `to`; `decoded` is what it means.
  WeightView make(Format f, std::int64_t rows, std::int64_t cols, std::byte* to,
                  std::vector<float>& decoded) {
    const auto& info = quant::info(f);
    const auto values = random_vector(rng_, rows * cols, 1 / std::sqrt(static_cast<float>(cols)));
    std::vector<std::byte> blocks(index(rows * cols / info.block_elems * info.block_bytes));
    decoded.resize(values.size());
    info.encode(values.data(), blocks.data(), rows * cols);
    info.decode(blocks.data(), decoded.data(), rows * cols);
    const auto target = cuda::target_of(f, rows, cols, false);
    const WeightView view = {target.format, target.layout, rows, cols, to};
    if (target.layout == Layout::rows) {
      gpu().upload(to, blocks.data(), std::ssize(blocks));
      gpu().synchronize();
    } else {
      const test::DeviceArray<std::byte> source(blocks);
      cuda::pack_rows(stream(), {f, Layout::rows, rows, cols, source.data()}, view, 0);
      gpu().synchronize();
    }
    return view;
  }

  // Where the cache has a token's element: pages in the order of pages_, heads inside them.
  std::size_t cached(std::int64_t token, std::int64_t element) const {
    const std::int64_t page = pages_[index(token / kPage)], head = element / shape_.head_dim;
    return index(((page * shape_.kv_heads + head) * kPage + token % kPage) * shape_.head_dim +
                 element % shape_.head_dim);
  }

  std::vector<float> cache_of(const std::vector<float>& tokens) const {
    std::vector<float> all(index(std::int64_t{kPage} * std::ssize(pages_) * shape_.kv_dim()), std::nanf(""));
    for (std::int64_t t = 0; t + 1 < shape_.context; ++t) {
      for (int e = 0; e < shape_.kv_dim(); ++e) all[cached(t, e)] = tokens[index(t * shape_.kv_dim() + e)];
    }
    return all;
  }

  void rotate(Doubles& x, const std::vector<float>& cos_sin) const {
    const std::size_t half = index(shape_.head_dim / 2);
    for (std::size_t head = 0; head < x.size(); head += 2 * half) {
      for (std::size_t i = 0; i < half; ++i) {
        const double a = x[head + i], b = x[head + half + i], c = cos_sin[i], s = cos_sin[half + i];
        x[head + i] = bf16(a * c - b * s), x[head + half + i] = bf16(b * c + a * s);
      }
    }
  }

  Doubles attended(const Layer& layer, const Doubles& q, const Doubles& k, const Doubles& v) const {
    const int dim = shape_.head_dim, last = shape_.context - 1;
    const int begin = shape_.window > 0 ? std::max(0, shape_.context - shape_.window) : 0;
    Doubles out(q.size());
    for (int head = 0; head < shape_.heads; ++head) {
      const int own = head / (shape_.heads / shape_.kv_heads) * dim;
      const auto element = [&](const std::vector<float>& cache, const Doubles& now, int t, int i) {
        return t == last ? now[index(own + i)]
                         : double{cache[index(std::int64_t{t} * shape_.kv_dim() + own + i)]};
      };
      Doubles weights;
      for (int t = begin; t <= last; ++t) {
        double score = 0;
        for (int i = 0; i < dim; ++i) score += q[index(head * dim + i)] * element(layer.keys, k, t, i);
        weights.push_back(score / std::sqrt(static_cast<double>(dim)));
      }
      const double most = *std::ranges::max_element(weights);
      for (double& w : weights) w = std::exp(w - most);
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (int t = begin; t <= last; ++t) {
        for (int i = 0; i < dim; ++i) {
          out[index(head * dim + i)] += weights[index(t - begin)] / sum * element(layer.values, v, t, i);
        }
      }
    }
    for (double& x : out) x = bf16(x);
    return out;
  }

  // The logits, and each layer's new row of keys and values.
  Doubles reference(const std::vector<float>& x, const std::vector<float>& cos_sin,
                    std::vector<Doubles>& keys, std::vector<Doubles>& values) const {
    Doubles h(x.begin(), x.end());
    for (const Layer& layer : layers_) {
      const Doubles input = normed(h, layer.input_norm);
      Doubles q = product(layer.q, input), k = product(layer.k, input), v = product(layer.v, input);
      std::size_t at = 0;
      for (Doubles* part : {&q, &k, &v}) {
        for (double& y : *part) y += layer.bias[at++];
      }
      rotate(q, cos_sin), rotate(k, cos_sin);
      for (double& y : v) y = bf16(y);
      const Doubles o = product(layer.o, attended(layer, q, k, v));
      for (std::size_t i = 0; i < h.size(); ++i) h[i] += o[i];
      const Doubles middle = normed(h, layer.post_norm);
      Doubles gated = product(layer.gate, middle);
      const Doubles up = product(layer.up, middle);
      for (std::size_t i = 0; i < gated.size(); ++i)
        gated[i] = bf16(gated[i] / (1 + std::exp(-gated[i])) * up[i]);
      const Doubles down = product(layer.down, gated);
      for (std::size_t i = 0; i < h.size(); ++i) h[i] += down[i];
      keys.push_back(k), values.push_back(v);
    }
    return product(head_, normed(h, final_norm_));
  }

  Shape shape_ = GetParam();
  unsigned seed_ = fresh_test_seed();
  std::mt19937 rng_{seed_};
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  std::vector<std::int32_t> pages_;  // of the sequence, then some that nobody owns
  std::vector<Layer> layers_{kLayers};
  std::vector<float> head_, final_norm_;
};

TEST_P(CudaDecodeLayers, AgreesWithDouble) {
  const Shape& s = shape_;
  if (gpu().info().arch < 90) GTEST_SKIP() << "the kernel needs Hopper or newer";
  pages_.resize(index((s.context + kPage - 1) / kPage + 3));
  std::iota(pages_.begin(), pages_.end(), 0);
  std::ranges::shuffle(pages_, rng_);

  const std::int64_t layer_bytes =
      bytes_of(s.weights, s.q_dim(), s.hidden) + bytes_of(s.weights, s.kv_dim(), s.hidden) +
      bytes_of(s.v, s.kv_dim(), s.hidden) + bytes_of(s.weights, s.hidden, s.q_dim()) +
      2 * bytes_of(s.weights, s.intermediate, s.hidden) + bytes_of(s.down, s.hidden, s.intermediate);
  const test::DeviceArray<std::byte> weights(kLayers * layer_bytes + bytes_of(s.head, s.vocab, s.hidden));
  std::byte* at = weights.data();
  const auto take = [&](Format f, std::int64_t rows, std::int64_t cols, std::vector<float>& decoded) {
    const WeightView view = make(f, rows, cols, at, decoded);
    at += bytes_of(f, rows, cols);
    return view;
  };
  std::vector<std::unique_ptr<test::DeviceArray<float>>> vectors;
  const auto on_gpu = [&](const std::vector<float>& v) {
    return vectors.emplace_back(std::make_unique<test::DeviceArray<float>>(v))->data();
  };
  std::vector<std::unique_ptr<DeviceValues>> caches;
  std::vector<DecodeLayer> layers;
  for (Layer& l : layers_) {
    DecodeLayer d;
    d.q = take(s.weights, s.q_dim(), s.hidden, l.q);
    d.k = take(s.weights, s.kv_dim(), s.hidden, l.k);
    d.v = take(s.v, s.kv_dim(), s.hidden, l.v);
    d.o = take(s.weights, s.hidden, s.q_dim(), l.o);
    d.gate = take(s.weights, s.intermediate, s.hidden, l.gate);
    d.up = take(s.weights, s.intermediate, s.hidden, l.up);
    d.down = take(s.down, s.hidden, s.intermediate, l.down);
    l.input_norm = norm_weights(), l.post_norm = norm_weights();
    l.bias = random_vector(rng_, s.qkv_dim(), 0.3f);
    d.input_norm = on_gpu(l.input_norm), d.post_norm = on_gpu(l.post_norm), d.qkv_bias = on_gpu(l.bias);
    const std::int64_t cached_values = std::int64_t{s.context - 1} * s.kv_dim();
    l.keys = rounded_to(DType::bf16, random_vector(rng_, cached_values));
    l.values = rounded_to(DType::bf16, random_vector(rng_, cached_values));
    for (const auto* tokens : {&l.keys, &l.values})
      caches.push_back(std::make_unique<DeviceValues>(DType::bf16, cache_of(*tokens)));
    d.kv = {.k = static_cast<std::byte*>(caches[caches.size() - 2]->view().data),
            .v = static_cast<std::byte*>(caches.back()->view().data),
            .dtype = DType::bf16,
            .block_size = kPage,
            .kv_heads = s.kv_heads,
            .head_dim = s.head_dim};
    d.window = s.window;
    layers.push_back(d);
  }
  const WeightView head = take(s.head, s.vocab, s.hidden, head_);
  final_norm_ = norm_weights();

  std::vector<float> cos_sin(index(s.head_dim));
  for (int i = 0; i < s.head_dim / 2; ++i) {
    const float angle = static_cast<float>(s.context - 1) *
                        std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(s.head_dim));
    cos_sin[index(i)] = std::cos(angle), cos_sin[index(s.head_dim / 2 + i)] = std::sin(angle);
  }
  const auto embedded = random_vector(rng_, s.hidden);
  const test::DeviceArray<std::int32_t> pages(pages_), kv_len(std::vector<std::int32_t>{s.context});
  test::DeviceArray<float> x(embedded);
  const test::DeviceArray<float> angles(cos_sin), next(s.hidden), hidden_parts(2 * s.hidden),
      qkv_parts(2 * s.qkv_dim()), logits(s.vocab);
  const DeviceValues attended_row(DType::bf16, s.q_dim()), gated_row(DType::bf16, s.intermediate);
  const test::DeviceArray<std::byte> attention(cuda::attention_workspace_bytes(s.heads, s.head_dim, 1));
  const test::DeviceArray<std::uint32_t> sync(std::vector<std::uint32_t>(cuda::kDecodeSyncWords));
  const DecodeLayersParams p = {
      .stream = stream(),
      .model = {layers, on_gpu(final_norm_), head, kEps, s.heads,
                1 / std::sqrt(static_cast<float>(s.head_dim))},
      .sequences = {.page_tables = pages.data(), .page_stride = std::ssize(pages_), .kv_len = kv_len.data()},
      .cos_sin = angles.data(),
      .x = x.data(),
      .next = next.data(),
      .hidden_parts = hidden_parts.data(),
      .qkv_parts = qkv_parts.data(),
      .attended = attended_row.view().data,
      .gated = gated_row.view().data,
      .attention = attention.data(),
      .sync = sync.data(),
      .logits = logits.data()};
  ASSERT_TRUE(cuda::decode_layers_supports(p.stream, p.model));
  cuda::decode_layers(p);
  const auto got = logits.download();

  std::vector<Doubles> keys, values;
  const auto want = reference(embedded, cos_sin, keys, values);
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  // Where a value lies near the middle of two of bfloat16's, the reference rounds the other way.
  EXPECT_LE(std::sqrt(error), 1e-2 * std::sqrt(norm));
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const bool is_key : {true, false}) {
      const auto cache = caches[index(2 * layer + (is_key ? 0 : 1))]->download();
      const auto& row = (is_key ? keys : values)[index(layer)];
      for (int e = 0; e < s.kv_dim(); ++e) {
        EXPECT_NEAR(cache[cached(s.context - 1, e)], row[index(e)], 0.02 * (1 + std::abs(row[index(e)])))
            << (is_key ? "key" : "value") << " of layer " << layer << ", element " << e;
      }
    }
  }
  // Once more: the same bits, though scratch and cache now hold what the first call left.
  x.upload(embedded);
  cuda::decode_layers(p);
  EXPECT_EQ(logits.download(), got) << "twice";
  for (const auto* array : {&next, &hidden_parts, &qkv_parts, &logits})
    EXPECT_TRUE(array->guards_untouched());
  EXPECT_TRUE(attended_row.guards_untouched() && gated_row.guards_untouched());
  EXPECT_TRUE(attention.guards_untouched() && sync.guards_untouched());
}

INSTANTIATE_TEST_SUITE_P(Models, CudaDecodeLayers,
                         testing::Values(Shape{"bf16_64", Format::bf16, Format::bf16, Format::bf16,
                                               Format::bf16, 64, 14, 2, 896, 1536, 1024, 45},
                                         Shape{"bf16_128", Format::bf16, Format::bf16, Format::bf16,
                                               Format::bf16, 128, 7, 1, 896, 1536, 1024, 300},
                                         Shape{"bf16_long", Format::bf16, Format::bf16, Format::bf16,
                                               Format::bf16, 64, 14, 2, 896, 1024, 512, 2300},
                                         Shape{"q4_0", Format::q4_0, Format::q4_0, Format::q4_0, Format::q6_k,
                                               64, 16, 2, 1024, 1536, 1024, 130},
                                         Shape{"q4_0_odd", Format::q4_0, Format::q4_0, Format::q4_0,
                                               Format::q8_0, 64, 14, 2, 896, 1600, 1024, 33},
                                         Shape{"q8_0_first", Format::q8_0, Format::q8_0, Format::q8_0,
                                               Format::q8_0, 128, 8, 2, 1024, 1536, 1024, 1},
                                         Shape{"q4_k_m", Format::q4_k, Format::q6_k, Format::q6_k,
                                               Format::q6_k, 64, 16, 2, 1024, 1536, 1024, 700},
                                         Shape{"q4_k_window", Format::q4_k, Format::q4_k, Format::q4_k,
                                               Format::q4_k, 128, 8, 2, 1024, 1536, 1024, 500, 200}),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace snug::kernels
