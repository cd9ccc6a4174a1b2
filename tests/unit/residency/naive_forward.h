// The model's definition in double precision, one token after another, with nothing of the engine's code:
// the oracle for Qwen2::forward and for how weights are held.
// Source: Qwen2 technical report (arXiv:2407.10671); RoFormer (arXiv:2104.09864).
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "support/tiny_model.h"

namespace snug::test {

class NaiveModel {
 public:
  using Row = std::vector<double>;

  NaiveModel(const model::Config& config, const TinyTensors& tensors) : c_(config), tensors_(tensors) {}

  // (tokens, vocab)
  std::vector<Row> logits(const std::vector<std::int32_t>& ids) const {
    std::vector<Row> x;
    for (const auto id : ids) {
      const auto& table = weight("model.embed_tokens.weight");
      const auto begin = table.begin() + id * c_.hidden;
      x.emplace_back(begin, begin + c_.hidden);
    }
    for (int i = 0; i < c_.layers; ++i) {
      const auto window = static_cast<std::size_t>(c_.window_of_layer(i));
      layer("model.layers." + std::to_string(i) + ".", window > 0 ? window : ids.size(), x);
    }
    std::vector<Row> out;
    for (const Row& row : x) {
      out.push_back(product(norm(row, "model.norm.weight"), c_.tied ? "model.embed_tokens" : "lm_head"));
    }
    return out;
  }

 private:
  const std::vector<float>& weight(const std::string& name) const { return tensors_.at(name).values; }

  Row norm(const Row& x, const std::string& name) const {
    double squares = 0;
    for (const double v : x) squares += v * v;
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(x.size()) + static_cast<double>(c_.rms_eps));
    Row y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * static_cast<double>(weight(name)[i]);
    return y;
  }

  Row product(const Row& x, const std::string& name) const {
    const auto& w = weight(name + ".weight");
    const auto bias = tensors_.find(name + ".bias");
    Row y(w.size() / x.size());
    for (std::size_t r = 0; r < y.size(); ++r) {
      y[r] = bias == tensors_.end() ? 0.0 : static_cast<double>(bias->second.values[r]);
      for (std::size_t i = 0; i < x.size(); ++i) y[r] += static_cast<double>(w[r * x.size() + i]) * x[i];
    }
    return y;
  }

  // Pairs are (i, i + head_dim/2), or (2i, 2i + 1) as GGUF's llama has them.
  void rotate(Row& heads, std::size_t position) const {
    const auto dim = static_cast<std::size_t>(c_.head_dim), half = dim / 2;
    for (std::size_t begin = 0; begin < heads.size(); begin += dim) {
      for (std::size_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(position) *
            std::pow(c_.rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
        double& a = heads[begin + (c_.interleaved_rope ? 2 * i : i)];
        double& b = heads[begin + (c_.interleaved_rope ? 2 * i + 1 : half + i)];
        const double a_new = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = a_new;
      }
    }
  }

  // A token sees itself and the `window` - 1 before it.
  void layer(const std::string& prefix, std::size_t window, std::vector<Row>& x) const {
    std::vector<Row> keys, values;
    const auto dim = static_cast<std::size_t>(c_.head_dim);
    for (std::size_t t = 0; t < x.size(); ++t) {
      const Row h = norm(x[t], prefix + "input_layernorm.weight");
      Row q = product(h, prefix + "self_attn.q_proj");
      keys.push_back(product(h, prefix + "self_attn.k_proj"));
      values.push_back(product(h, prefix + "self_attn.v_proj"));
      rotate(q, t);
      rotate(keys.back(), t);
      Row attended(q.size(), 0.0);
      for (std::size_t head = 0; head < static_cast<std::size_t>(c_.heads); ++head) {
        const std::size_t kv_begin = head / static_cast<std::size_t>(c_.heads / c_.kv_heads) * dim;
        const std::size_t first = t + 1 > window ? t + 1 - window : 0;
        Row weights(t + 1);
        double total = 0;
        for (std::size_t s = first; s <= t; ++s) {
          double score = 0;
          for (std::size_t i = 0; i < dim; ++i) score += q[head * dim + i] * keys[s][kv_begin + i];
          weights[s] = std::exp(score / std::sqrt(static_cast<double>(dim)));
          total += weights[s];
        }
        for (std::size_t s = first; s <= t; ++s) {
          for (std::size_t i = 0; i < dim; ++i) {
            attended[head * dim + i] += weights[s] / total * values[s][kv_begin + i];
          }
        }
      }
      add(x[t], product(attended, prefix + "self_attn.o_proj"));
    }
    for (Row& row : x) {
      const Row h = norm(row, prefix + "post_attention_layernorm.weight");
      Row gate = product(h, prefix + "mlp.gate_proj");
      const Row up = product(h, prefix + "mlp.up_proj");
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      add(row, product(gate, prefix + "mlp.down_proj"));
    }
  }

  static void add(Row& x, const Row& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  model::Config c_;
  const TinyTensors& tensors_;
};

}  // namespace snug::test
