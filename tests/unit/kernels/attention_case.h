// A random batch over a scattered, poisoned KV cache, and what attention should make of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "core/dtype.h"
#include "kernels/attention.h"
#include "unit/kernels/attention_backends.h"

namespace snug::kernels {

struct Shape {
  DType dtype = DType::f32;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 64;
  int block_size = 16;
};

struct Lengths {
  int kv_len = 0;
  int q_len = 0;
};

inline float round_to(DType dtype, float x) {
  switch (dtype) {
    case DType::f32:
      return x;
    case DType::f16:
      return f32_from_f16(f16_from_f32(x));
    case DType::bf16:
      return f32_from_bf16(bf16_from_f32(x));
  }
  return x;
}

// Queries, keys and values of every token of every sequence; the cache starts as NaN everywhere.
class AttentionCase {
 public:
  AttentionCase(const Shape& shape, const std::vector<int>& lengths, unsigned seed, float q_scale = 1.0f)
      : shape_(shape), rng_(seed) {
    std::normal_distribution<float> normal;
    std::int32_t blocks = 3;  // some that nobody owns
    for (const int length : lengths) blocks += (length + shape.block_size - 1) / shape.block_size;
    std::vector<std::int32_t> order(static_cast<std::size_t>(blocks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng_);
    for (const int length : lengths) {
      Tokens tokens;
      for (int i = 0; i < (length + shape.block_size - 1) / shape.block_size; ++i) {
        tokens.pages.push_back(order.back());
        order.pop_back();
      }
      tokens.q = random(length * shape.heads * shape.head_dim, normal, q_scale);
      tokens.k = random(length * shape.kv_heads * shape.head_dim, normal, 1.0f);
      tokens.v = random(length * shape.kv_heads * shape.head_dim, normal, 1.0f);
      for (float& x : tokens.k) x = round_to(shape.dtype, x);
      for (float& x : tokens.v) x = round_to(shape.dtype, x);
      sequences_.push_back(std::move(tokens));
    }
    unowned_ = order.front();
    const std::size_t bytes = static_cast<std::size_t>(blocks) * static_cast<std::size_t>(shape.kv_heads) *
                              static_cast<std::size_t>(shape.block_size * shape.head_dim) *
                              size_of(shape.dtype);
    k_.resize(bytes);
    v_.resize(bytes);
    poison();
  }

  void poison() {  // all bits set is NaN in each of the types
    std::memset(k_.data(), 0xFF, k_.size());
    std::memset(v_.data(), 0xFF, v_.size());
  }

  // Stores tokens [0, length) of a sequence.
  void store(std::size_t sequence, int length) {
    const Tokens& tokens = sequences_[sequence];
    for (int t = 0; t < length; ++t) {
      for (int h = 0; h < shape_.kv_heads; ++h) {
        for (int i = 0; i < shape_.head_dim; ++i) {
          const std::size_t at = index(tokens, t, h, i);
          const auto from = static_cast<std::size_t>((t * shape_.kv_heads + h) * shape_.head_dim + i);
          put(k_, at, tokens.k[from]);
          put(v_, at, tokens.v[from]);
        }
      }
    }
  }

  // Makes a block wholly before the window look as if it had been given back.
  void drop_page(std::size_t sequence, std::size_t page) { sequences_[sequence].pages[page] = unowned_; }

  void set_k(std::size_t sequence, int t, float value) {
    put(k_, index(sequences_[sequence], t, 0, 0), value);
  }

  // What a run on another device needs: the cache's bytes, a sequence's pages, its queries (all positions).
  const std::vector<std::byte>& k_bytes() const { return k_; }
  const std::vector<std::byte>& v_bytes() const { return v_; }
  const std::vector<std::int32_t>& pages(std::size_t sequence) const { return sequences_[sequence].pages; }
  const std::vector<float>& queries(std::size_t sequence) const { return sequences_[sequence].q; }
  // For devices that take queries in the cache's type.
  void round_queries() {
    for (Tokens& tokens : sequences_) {
      for (float& x : tokens.q) x = round_to(shape_.dtype, x);
    }
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)); }

  struct Output {
    std::vector<std::vector<float>> rows;  // per sequence of the batch: (q_len, heads * head_dim)
    bool guards_hold = true;
  };

  // One call for a batch of (sequence, lengths).
  Output run(const TestBackend& backend, int threads,
             const std::vector<std::pair<std::size_t, Lengths>>& batch, std::int64_t window = 0) const {
    const std::size_t width = static_cast<std::size_t>(shape_.heads * shape_.head_dim), guard = 64;
    std::vector<kv::SequenceView> views;
    std::vector<float> q;
    for (const auto& [sequence, lengths] : batch) {
      const Tokens& tokens = sequences_[sequence];
      views.push_back({.page_table = tokens.pages.data(),
                       .q_begin = static_cast<std::int32_t>(q.size() / width),
                       .q_len = lengths.q_len,
                       .kv_len = lengths.kv_len});
      q.insert(q.end(),
               tokens.q.begin() + static_cast<std::ptrdiff_t>(width) * (lengths.kv_len - lengths.q_len),
               tokens.q.begin() + static_cast<std::ptrdiff_t>(width) * lengths.kv_len);
    }
    std::vector<float> out(q.size() + 2 * guard, kGuard);
    const std::int64_t bytes = cpu::attention_workspace_bytes(shape_.heads, shape_.head_dim, threads);
    std::vector<std::byte> memory(static_cast<std::size_t>(bytes) + 128, std::byte{0xFF});
    void* base = memory.data();
    std::size_t space = memory.size();
    std::align(64, static_cast<std::size_t>(bytes), base, space);
    ThreadPool pool(threads);
    AttentionParams p{.stream = {.pool = &pool},
                      .q = q.data(),
                      .out = out.data() + guard,
                      .heads = shape_.heads,
                      .scale = scale(),
                      .kv = {.k = const_cast<std::byte*>(k_.data()),
                             .v = const_cast<std::byte*>(v_.data()),
                             .dtype = shape_.dtype,
                             .block_size = shape_.block_size,
                             .kv_heads = shape_.kv_heads,
                             .head_dim = shape_.head_dim},
                      .sequences = views,
                      .window = window,
                      .workspace = static_cast<std::byte*>(base),
                      .workspace_bytes = bytes};
    if (backend.is_ref()) {
      ref::attention(p);
    } else {
      const UseTarget use(backend);
      cpu::attention(p);
    }
    Output result;
    const auto is_guard = [](float x) { return x == kGuard; };
    result.guards_hold = std::all_of(out.begin(), out.begin() + guard, is_guard) &&
                         std::all_of(out.end() - guard, out.end(), is_guard);
    for (const std::byte* b = p.workspace + bytes; b < memory.data() + memory.size(); ++b) {
      result.guards_hold = result.guards_hold && *b == std::byte{0xFF};
    }
    for (const kv::SequenceView& view : views) {
      const float* from = out.data() + guard + static_cast<std::size_t>(view.q_begin) * width;
      result.rows.emplace_back(from, from + static_cast<std::size_t>(view.q_len) * width);
    }
    return result;
  }

  // Plain softmax in double over the unpaged keys and values.
  std::vector<double> expected(std::size_t sequence, Lengths lengths, std::int64_t window = 0) const {
    const Tokens& tokens = sequences_[sequence];
    const int group = shape_.heads / shape_.kv_heads, dim = shape_.head_dim;
    std::vector<double> result;
    for (int t = lengths.kv_len - lengths.q_len; t < lengths.kv_len; ++t) {
      const int begin = window > 0 ? std::max<int>(0, t - static_cast<int>(window) + 1) : 0;
      for (int h = 0; h < shape_.heads; ++h) {
        const float* q = &tokens.q[static_cast<std::size_t>((t * shape_.heads + h) * dim)];
        std::vector<double> weights;
        for (int s = begin; s <= t; ++s) {
          const float* k = &tokens.k[static_cast<std::size_t>((s * shape_.kv_heads + h / group) * dim)];
          double dot = 0;
          for (int i = 0; i < dim; ++i) dot += static_cast<double>(q[i]) * k[i];
          weights.push_back(dot * scale());
        }
        const double max = *std::max_element(weights.begin(), weights.end());
        double sum = 0;
        for (double& w : weights) sum += w = std::exp(w - max);
        std::vector<double> row(static_cast<std::size_t>(dim), 0.0);
        for (int s = begin; s <= t; ++s) {
          const float* v = &tokens.v[static_cast<std::size_t>((s * shape_.kv_heads + h / group) * dim)];
          const double w = weights[static_cast<std::size_t>(s - begin)] / sum;
          for (int i = 0; i < dim; ++i) row[static_cast<std::size_t>(i)] += w * v[i];
        }
        result.insert(result.end(), row.begin(), row.end());
      }
    }
    return result;
  }

  // A result is a weighted mean of V. A score's rounding error, relative to |q| |k| scale, changes the
  // weights by as much again; the rest is a few roundings of the mean itself.
  double tolerance(std::size_t sequence) const {
    const Tokens& tokens = sequences_[sequence];
    const double score = largest_norm(tokens.q) * largest_norm(tokens.k) * scale();
    double v = 0;
    for (const float x : tokens.v) v = std::max<double>(v, std::abs(x));
    return std::numeric_limits<float>::epsilon() * (8 + 2 * score) * v;
  }

 private:
  static constexpr float kGuard = -12345.0f;

  struct Tokens {
    std::vector<float> q, k, v;
    std::vector<std::int32_t> pages;
  };

  std::vector<float> random(int n, std::normal_distribution<float>& normal, float factor) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& value : x) value = normal(rng_) * factor;
    return x;
  }

  double largest_norm(const std::vector<float>& x) const {
    double largest = 0;
    for (std::size_t i = 0; i < x.size(); i += static_cast<std::size_t>(shape_.head_dim)) {
      double sum = 0;
      for (int j = 0; j < shape_.head_dim; ++j) {
        sum += static_cast<double>(x[i + static_cast<std::size_t>(j)]) * x[i + static_cast<std::size_t>(j)];
      }
      largest = std::max(largest, sum);
    }
    return std::sqrt(largest);
  }

  std::size_t index(const Tokens& tokens, int t, int h, int i) const {
    const std::int32_t block = tokens.pages[static_cast<std::size_t>(t / shape_.block_size)];
    return static_cast<std::size_t>(
        ((block * shape_.kv_heads + h) * shape_.block_size + t % shape_.block_size) * shape_.head_dim + i);
  }

  void put(std::vector<std::byte>& to, std::size_t at, float x) const {
    if (shape_.dtype == DType::f32) {
      std::memcpy(to.data() + at * 4, &x, 4);
    } else {
      const std::uint16_t bits = shape_.dtype == DType::f16 ? f16_from_f32(x) : bf16_from_f32(x);
      std::memcpy(to.data() + at * 2, &bits, 2);
    }
  }

  Shape shape_;
  std::mt19937 rng_;
  std::vector<Tokens> sequences_;
  std::int32_t unowned_ = 0;  // a block that stays NaN
  std::vector<std::byte> k_, v_;
};

}  // namespace snug::kernels
