#include "model/size_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/arena.h"
#include "kernels/decode_layers.h"
#include "kernels/likely.h"
#include "kernels/linear.h"
#include "kernels/sample.h"
#include "kernels/skinny_linear.h"
#include "kv/kv_cache.h"
#include "model/workspace.h"
#include "ops/ops.h"

namespace snug::model {
namespace {

// One activation: where it goes in the workspace, and how large it is.
struct Activation {
  const char* name;
  Values Workspace::*field;
  std::int64_t rows, cols;
  DType dtype = DType::f32;
  std::int64_t bytes() const { return rows * cols * static_cast<std::int64_t>(size_of(dtype)); }
};

std::vector<Activation> activations(const Config& c, const ForwardLimits& l) {
  const std::int64_t qkv = c.q_dim() + 2 * c.kv_dim();
  std::vector<Activation> all = {
      {"hidden", &Workspace::hidden, l.tokens, c.hidden},
      {"normed", &Workspace::normed, l.tokens, c.hidden, l.activations},
      {"qkv", &Workspace::qkv, l.tokens, qkv, l.activations},
      {"attended", &Workspace::attended, l.tokens, c.q_dim(), l.activations},
      {"gate_up", &Workspace::gate_up, l.tokens, 2 * c.intermediate, l.activations},
      {"cos_sin", &Workspace::cos_sin, l.tokens, c.head_dim},
      {"final_hidden", &Workspace::final_hidden, l.tokens, c.hidden, l.activations},
      {"logits", &Workspace::logits, l.logit_rows, c.vocab},
  };
  if (l.backend == Backend::cuda) {
    const std::int64_t few = kernels::cuda::kSkinnyTokens;
    all.push_back({"hidden_next", &Workspace::hidden_next, few, c.hidden});
    all.push_back({"hidden_parts", &Workspace::hidden_parts, 2 * few, c.hidden});
    all.push_back({"qkv_parts", &Workspace::qkv_parts, 2 * few, qkv});
    all.push_back({"decode_sync", &Workspace::decode_sync, 1, kernels::cuda::kDecodeSyncWords});
    all.push_back({"attention_sync", &Workspace::attention_sync, l.sequences, c.heads});
  }
  return all;
}

ops::ScratchLimits scratch_limits(const Config& c, const ForwardLimits& l) {
  return {l.backend, l.threads, std::max(l.tokens, l.logit_rows), l.sequences,
          std::max({c.hidden, c.q_dim(), c.intermediate})};
}

std::int64_t linear_bytes(const Config& c, const ForwardLimits& l) {
  return ops::linear_workspace_bytes(scratch_limits(c, l));
}

std::int64_t attention_bytes(const Config& c, const ForwardLimits& l) {
  return ops::attention_workspace_bytes(static_cast<int>(c.heads), static_cast<int>(c.head_dim),
                                        scratch_limits(c, l));
}

std::int64_t pages(std::int64_t bytes) {
  return std::max<std::int64_t>(align_up(bytes, 4096), 4096);
}

}  // namespace

std::vector<PlacedWeight> place_weights(std::vector<BoundWeight> weights, Backend backend, bool exact) {
  std::vector<PlacedWeight> placed;
  placed.reserve(weights.size());
  for (auto& weight : weights) {
    const auto& spec = weight.spec;
    PlacedWeight p;
    if (!spec.is_matrix()) {
      p.placement = Placement::vector;
      p.bytes = spec.elements() * static_cast<std::int64_t>(sizeof(float));
    } else if (backend == Backend::cuda) {
      p.placement = Placement::uploaded;
      p.bytes = kernels::cuda::target_of(weight.tensor.format, spec.shape[0], spec.shape[1], exact).bytes;
    } else if (const auto packed =
                   kernels::cpu::packed_bytes(weight.tensor.format, spec.shape[0], spec.shape[1])) {
      p.placement = Placement::packed;
      p.bytes = packed;
    } else {
      p.bytes = weight.tensor.bytes;
    }
    if (backend == Backend::cuda) p.device = Device::gpu0;
    p.weight = std::move(weight);
    placed.push_back(std::move(p));
  }
  return placed;
}

std::vector<SizeRow> weight_rows(const std::vector<PlacedWeight>& weights, bool mapped) {
  std::int64_t vectors = 0, packed = 0, in_place = 0, staging = 0, uploaded = 0;
  const Device device = weights.empty() ? Device::host : weights.front().device;
  for (const auto& w : weights) {
    if (w.placement == Placement::uploaded) {
      uploaded += align_up(w.bytes, 256);
      staging = std::max(staging, w.weight.tensor.bytes);
      continue;
    }
    (w.placement == Placement::vector   ? vectors
     : w.placement == Placement::packed ? packed
                                        : in_place) += align_up(w.bytes);
    if (w.placement == Placement::packed) staging = std::max(staging, w.weight.tensor.bytes);
  }
  std::vector<SizeRow> rows;
  rows.push_back({"weights.vectors", "norms and biases, float32", pages(vectors), device});
  if (uploaded > 0) {
    rows.push_back({"weights.gpu", "matrices, as the kernels want them", pages(uploaded), Device::gpu0});
    rows.push_back({"load.source", "what is being uploaded", pages(mapped ? 4096 : staging), Device::host,
                    Lifetime::load});
    rows.push_back(
        {"load.decoded", "rows decoded for the GPU", pages(kDecodeSlice * 4), Device::host, Lifetime::load});
    rows.push_back(
        {"load.staging", "what is being packed", pages(kUploadSlice), Device::gpu0, Lifetime::load});
  }
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
    rows.push_back({fmt::format("activations.{}", a.name),
                    fmt::format("({}, {}) {}", a.rows, a.cols, name_of(a.dtype)), pages(a.bytes()),
                    limits.device()});
  }
  rows.push_back({"workspace.linear", "bytes", pages(linear_bytes(config, limits)), limits.device()});
  rows.push_back({"workspace.attention", "bytes", pages(attention_bytes(config, limits)), limits.device()});
  return rows;
}

std::int64_t device_batch_ints(std::int64_t tokens, std::int64_t sequences, std::int64_t pages) {
  return 4 * tokens + 3 * sequences + sequences * pages;
}

std::vector<SizeRow> device_batch_rows(const ForwardLimits& l, std::int64_t max_model_len, int block_size,
                                       std::int64_t vocab) {
  const std::int64_t ints =
      device_batch_ints(l.tokens, l.sequences, (max_model_len + block_size - 1) / block_size);
  // The choice of the most likely token and the search for the next ones take turns.
  const std::int64_t sampling = std::max(kernels::cuda::sample_workspace_bytes(l.sequences, vocab),
                                         kernels::cuda::likely_workspace_bytes(l.sequences));
  const std::int64_t likely = l.sequences * static_cast<std::int64_t>(sizeof(kernels::LikelyTokens));
  return {
      {"workspace.batch", "ids, positions, page tables", pages(ints * 4), Device::gpu0},
      {"workspace.batch", "2 of ids, positions, page tables", pages(2 * ints * 4), Device::pinned},
      {"workspace.sampling", "bytes", pages(sampling), Device::gpu0},
      {"workspace.sampled", "token and log probability of a row", pages(l.sequences * 8), Device::gpu0},
      {"workspace.sampled", "2 of token and log probability of a row", pages(2 * l.sequences * 8),
       Device::pinned},
      {"workspace.likely", "the most likely tokens of a row", pages(likely), Device::gpu0},
      {"workspace.likely", "the most likely tokens of a row", pages(likely), Device::pinned},
      {"workspace.logits", fmt::format("({}, {}) float32", l.logit_rows, vocab),
       pages(l.logit_rows * vocab * 4), Device::pinned},
  };
}

SizeRow kv_row(const Config& config, std::int64_t blocks, int block_size, DType dtype, Device device) {
  const std::int64_t bytes =
      blocks * kv::bytes_per_block(static_cast<int>(config.layers), static_cast<int>(config.kv_heads),
                                   static_cast<int>(config.head_dim), block_size, dtype);
  return {"kv",
          fmt::format("({}, 2, {}, {}, {}, {}) {}", config.layers, blocks, config.kv_heads, block_size,
                      config.head_dim, name_of(dtype)),
          pages(bytes), device};
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
    w.*(a.field) = {data, a.dtype};
  }
  SNUG_ASSIGN(w.linear_scratch, allocate());
  w.linear_scratch_bytes = linear_bytes(config, limits);
  SNUG_ASSIGN(w.attention_scratch, allocate());
  w.attention_scratch_bytes = attention_bytes(config, limits);
  return w;
}

}  // namespace snug::model
