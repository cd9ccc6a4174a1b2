#include "model/size_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/arena.h"
#include "kernels/linear.h"
#include "kv/kv_cache.h"
#include "model/workspace.h"
#include "ops/ops.h"

namespace snug::model {
namespace {

// One float32 activation: where it goes in the workspace, and how large it is.
struct Activation {
  const char* name;
  float* Workspace::*field;
  std::int64_t rows, cols;
};

std::vector<Activation> activations(const Config& c, const ForwardLimits& l) {
  return {
      {"hidden", &Workspace::hidden, l.tokens, c.hidden},
      {"normed", &Workspace::normed, l.tokens, c.hidden},
      {"q", &Workspace::q, l.tokens, c.q_dim()},
      {"k", &Workspace::k, l.tokens, c.kv_dim()},
      {"v", &Workspace::v, l.tokens, c.kv_dim()},
      {"attended", &Workspace::attended, l.tokens, c.q_dim()},
      {"gate", &Workspace::gate, l.tokens, c.intermediate},
      {"up", &Workspace::up, l.tokens, c.intermediate},
      {"cos_sin", &Workspace::cos_sin, l.tokens, c.head_dim},
      {"final_hidden", &Workspace::final_hidden, l.tokens, c.hidden},
      {"logits", &Workspace::logits, l.logit_rows, c.vocab},
  };
}

std::int64_t linear_bytes(const Config& c, const ForwardLimits& l) {
  const std::int64_t cols = std::max({c.hidden, c.q_dim(), c.intermediate});
  return ops::linear_workspace_bytes(std::max(l.tokens, l.logit_rows), cols, l.threads);
}

std::int64_t attention_bytes(const Config& c, const ForwardLimits& l) {
  return ops::attention_workspace_bytes(static_cast<int>(c.heads), static_cast<int>(c.head_dim), l.threads);
}

std::int64_t pages(std::int64_t bytes) {
  return std::max<std::int64_t>(align_up(bytes, 4096), 4096);
}

}  // namespace

std::vector<PlacedWeight> place_weights(std::vector<BoundWeight> weights) {
  std::vector<PlacedWeight> placed;
  placed.reserve(weights.size());
  for (auto& weight : weights) {
    const auto& spec = weight.spec;
    PlacedWeight p;
    if (!spec.is_matrix()) {
      p.placement = Placement::vector;
      p.bytes = spec.elements() * static_cast<std::int64_t>(sizeof(float));
    } else if (const auto packed =
                   kernels::cpu::packed_bytes(weight.tensor.format, spec.shape[0], spec.shape[1])) {
      p.placement = Placement::packed;
      p.bytes = packed;
    } else {
      p.bytes = weight.tensor.bytes;
    }
    p.weight = std::move(weight);
    placed.push_back(std::move(p));
  }
  return placed;
}

std::vector<SizeRow> weight_rows(const std::vector<PlacedWeight>& weights, bool mapped) {
  std::int64_t vectors = 0, packed = 0, in_place = 0, staging = 0;
  for (const auto& w : weights) {
    (w.placement == Placement::vector   ? vectors
     : w.placement == Placement::packed ? packed
                                        : in_place) += align_up(w.bytes);
    if (w.placement == Placement::packed) staging = std::max(staging, w.weight.tensor.bytes);
  }
  std::vector<SizeRow> rows;
  rows.push_back({"weights.vectors", "norms and biases, float32", pages(vectors)});
  if (packed > 0) rows.push_back({"weights.packed", "matrices, rows interleaved", pages(packed)});
  if (in_place > 0)
    rows.push_back({mapped ? "weights.mapped" : "weights.random", "matrices, in place", pages(in_place)});
  // A mapped file is packed a slice at a time; random weights are made a tensor at a time.
  const std::int64_t source = mapped ? std::min(staging, kPackSlice) : staging;
  if (packed > 0)
    rows.push_back({"load.source", "what is being packed", pages(source), Device::host, Lifetime::load});
  return rows;
}

std::vector<SizeRow> activation_rows(const Config& config, const ForwardLimits& limits) {
  std::vector<SizeRow> rows;
  for (const auto& a : activations(config, limits)) {
    rows.push_back({fmt::format("activations.{}", a.name), fmt::format("({}, {}) float32", a.rows, a.cols),
                    pages(a.rows * a.cols * static_cast<std::int64_t>(sizeof(float)))});
  }
  rows.push_back({"workspace.linear", "bytes", pages(linear_bytes(config, limits))});
  rows.push_back({"workspace.attention", "bytes", pages(attention_bytes(config, limits))});
  return rows;
}

SizeRow kv_row(const Config& config, std::int64_t blocks, int block_size, DType dtype) {
  const std::int64_t bytes =
      blocks * kv::bytes_per_block(static_cast<int>(config.layers), static_cast<int>(config.kv_heads),
                                   static_cast<int>(config.head_dim), block_size, dtype);
  return {"kv",
          fmt::format("({}, 2, {}, {}, {}, {}) {}", config.layers, blocks, config.kv_heads, block_size,
                      config.head_dim, name_of(dtype)),
          pages(bytes)};
}

std::int64_t total_bytes(const std::vector<SizeRow>& rows, Device device, Lifetime lifetime) {
  std::int64_t total = 0;
  for (const auto& row : rows) {
    if (row.device == device && row.lifetime == lifetime) total += row.bytes;
  }
  return total;
}

Result<Workspace> Workspace::create(const Config& config, const ForwardLimits& limits, Ledger& ledger) {
  Workspace w;
  w.limits = limits;
  std::size_t next = 0;
  const auto rows = activation_rows(config, limits);
  const auto allocate = [&]() -> Result<std::byte*> {
    const auto& row = rows[next++];
    SNUG_ASSIGN(Allocation block, ledger.allocate(row.tag, row.device, row.bytes));
    w.blocks_.push_back(std::move(block));
    return w.blocks_.back().data();
  };
  for (const auto& a : activations(config, limits)) {
    SNUG_ASSIGN(std::byte * data, allocate());
    w.*(a.field) = reinterpret_cast<float*>(data);
  }
  SNUG_ASSIGN(w.linear_scratch, allocate());
  w.linear_scratch_bytes = linear_bytes(config, limits);
  SNUG_ASSIGN(w.attention_scratch, allocate());
  w.attention_scratch_bytes = attention_bytes(config, limits);
  return w;
}

}  // namespace snug::model
