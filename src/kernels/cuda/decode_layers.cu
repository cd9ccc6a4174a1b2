#include "kernels/decode_layers.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <vector>

#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/decode_kernel.cuh"

namespace snug::kernels::cuda {
namespace {

using quant::Format;

constexpr int kStaticBytes = 2048;  // what the kernel has besides, and what the system takes of a block
// On top of what latency needs, a ring bridges the barriers of the grid; with less than this it does not pay.
constexpr int kLeastDepth = 3;

std::int64_t bytes_of(const WeightView& w) {
  return w.rows / kTileRows * tile_bytes(w.format, w.cols);
}

bool is_rows(const WeightView& w) {
  return w.layout == Layout::rows && w.format == Format::bf16;
}

bool takes(const WeightView& w, bool rows) {
  if (w.rows <= 0 || w.rows % kTileRows != 0 || w.rows / kTileRows * (w.cols / 32) > (1 << 23)) return false;
  if (rows) return is_rows(w) && w.cols % 64 == 0;
  return w.layout == Layout::packed && is_packable(w.format, w.rows, w.cols) && w.cols >= 128;
}

enum class Cut : std::uint8_t { anywhere, tiles, pairs };

DecodeMatrix matrix(const WeightView& w, Cut cut) {
  const int units = group_units(w.format);
  DecodeMatrix m;
  m.weight = w.data;
  m.tiles = static_cast<int>(w.rows / kTileRows);
  m.tile_units = static_cast<int>(w.cols / unit_shape(w.format).cols);
  m.tile_bytes = static_cast<int>(tile_bytes(w.format, w.cols));
  m.warp_shift = static_cast<std::int8_t>(
      m.tile_units % units == 0 ? std::countr_zero(static_cast<unsigned>(units)) : 0);
  m.block_step = cut == Cut::anywhere ? 1 << m.warp_shift
                 : cut == Cut::tiles  ? m.tile_units
                                      : 2 * m.tile_units;
  m.format = w.format;
  m.gated = cut == Cut::pairs;
  return m;
}

void give_blocks(DecodeMatrix& m, int first, int blocks) {
  m.first_block = static_cast<std::int16_t>(first);
  // A block's run is never shorter than a tile, so that a tile lies in two at most.
  m.blocks = static_cast<std::int16_t>(std::min(blocks, m.gated ? m.tiles / 2 : m.tiles));
}

// Blocks for weights that are read at the same time: by their bytes.
void share_blocks(DecodeMatrix* m, const std::vector<WeightView>& weights, int blocks) {
  std::int64_t left = 0;
  for (const WeightView& w : weights) left += bytes_of(w);
  int first = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::int64_t bytes = bytes_of(weights[i]), others = std::ssize(weights) - 1 - static_cast<int>(i);
    const auto share = static_cast<int>((bytes * (blocks - first) + left / 2) / left);
    const int own = std::clamp<int>(share, 1, blocks - first - static_cast<int>(others));
    give_blocks(m[i], first, own);
    first += own;
    left -= bytes;
  }
}

struct SharedLayout {
  int parts = 0, slots = 0, ring = 0, depth = 0, slot_bytes = 0, total = 0;
};

bool is_rows(const DecodeModel& model) {
  return is_rows(model.lm_head);
}

SharedLayout layout(const DecodeModel& model, std::int64_t limit) {
  const DecodeLayer& layer = model.layers.front();
  const std::int64_t columns = std::max({layer.q.cols, layer.o.cols, layer.down.cols});
  const std::int64_t staged = columns * 2 + columns / 16 * 4;
  const std::int64_t attention =
      layer.kv.head_dim == 64 ? sizeof(AttendShared<64>) : sizeof(AttendShared<128>);
  SharedLayout l;
  const auto rounded = [](std::int64_t bytes) { return static_cast<int>((bytes + 127) / 128 * 128); };
  const std::int64_t phases = std::ssize(model.layers) * kPhases + 1;
  l.parts = rounded(std::max(staged, attention));
  l.slots = l.parts + rounded(phases * static_cast<std::int64_t>(sizeof(DecodePart)));
  l.ring = l.slots + rounded(sizeof(DecodeSlots));
  const auto count = [&l](const WeightView& w) {
    l.slot_bytes = std::max(l.slot_bytes, (group_bytes(w.format) + 127) / 128 * 128);
  };
  for (const DecodeLayer& x : model.layers) {
    for (const WeightView& w : {x.q, x.k, x.v, x.o, x.gate, x.down}) count(w);
  }
  count(model.lm_head);
  const auto room = static_cast<int>(limit) - kStaticBytes - l.ring;
  l.depth = std::max(room, 0) / (kDecodeWarps * l.slot_bytes);
  l.depth = is_rows(model) ? (l.depth >= kRowsDepth ? kRowsDepth : 0) : std::min(l.depth, kDecodeDepth);
  l.total = l.ring + kDecodeWarps * l.depth * l.slot_bytes;
  return l;
}

}  // namespace

bool decode_layers_supports(const Stream& stream, const DecodeModel& model) {
  if (stream.gpu->arch < 90 || model.layers.empty() || model.layers.size() > kDecodeMaxLayers) return false;
  const DecodeLayer& first = model.layers.front();
  const bool rows = is_rows(model);
  const int head_dim = first.kv.head_dim, kv_heads = first.kv.kv_heads;
  if (head_dim != 64 && head_dim != 128) return false;
  if (kv_heads <= 0 || kv_heads > kDecodeSyncWords - kBarrierWords || model.heads % kv_heads != 0)
    return false;
  if (model.heads / kv_heads > kAttendHeads || first.q.cols > kDecodeColumns) return false;
  if (max_splits(model.heads) > kAttendSplits) return false;
  if (!takes(model.lm_head, rows)) return false;
  for (const DecodeLayer& layer : model.layers) {
    if (layer.kv.dtype != DType::bf16 || layer.kv.block_size % kTileKeys != 0) return false;
    for (const WeightView& w : {layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down}) {
      if (!takes(w, rows)) return false;
    }
    if (!is_behind(layer.gate, layer.up) || layer.gate.rows != layer.up.rows) return false;
  }
  return layout(model, stream.gpu->shared_bytes_per_block).depth >= kLeastDepth;
}

void decode_layers(const DecodeLayersParams& p) {
  if (!decode_layers_supports(p.stream, p.model)) {
    throw std::runtime_error("decode_layers: this model does not suit this GPU");
  }
  const int blocks = p.stream.gpu->multiprocessors;
  const DecodeLayer& first = p.model.layers.front();
  DecodeArgs a = {};
  a.layer_count = static_cast<int>(p.model.layers.size());
  for (int i = 0; i < a.layer_count; ++i) {
    const DecodeLayer& layer = p.model.layers[static_cast<std::size_t>(i)];
    DecodeLayerArgs& to = a.layers[i];
    const WeightView apart[] = {layer.q, layer.k, layer.v};
    const std::vector<WeightView> qkv = merged(apart);
    int row = 0;
    for (std::size_t j = 0; j < qkv.size(); ++j) {
      to.matrices[j] = matrix(qkv[j], Cut::anywhere);
      to.matrices[j].first_row = row;
      row += static_cast<int>(qkv[j].rows);
    }
    share_blocks(to.matrices, qkv, blocks);
    WeightView gate_up = layer.gate;
    gate_up.rows *= 2;
    DecodeMatrix* const others = to.matrices + kQkvMatrices - 1;
    others[kO] = matrix(layer.o, Cut::anywhere);
    others[kGateUp] = matrix(gate_up, Cut::pairs);
    others[kDown] = matrix(layer.down, Cut::anywhere);
    for (const int kind : {kO, kGateUp, kDown}) give_blocks(others[kind], 0, blocks);
    to.input_norm = layer.input_norm;
    to.post_norm = layer.post_norm;
    to.qkv_bias = layer.qkv_bias;
    to.k = static_cast<__nv_bfloat16*>(layer.kv.k);
    to.v = static_cast<__nv_bfloat16*>(layer.kv.v);
    to.window =
        static_cast<int>(std::clamp<std::int64_t>(layer.window, 0, std::numeric_limits<std::int32_t>::max()));
  }
  a.head = matrix(p.model.lm_head, Cut::tiles);
  give_blocks(a.head, 0, blocks);
  a.final_norm = p.model.final_norm;
  a.cos_sin = p.cos_sin;
  a.page_table = p.sequences.page_tables;
  a.kv_len = p.sequences.kv_len;
  a.x = p.x;
  a.next = p.next;
  a.hidden_parts = p.hidden_parts;
  a.qkv_parts = p.qkv_parts;
  a.logits = p.logits;
  a.attended = static_cast<__nv_bfloat16*>(p.attended);
  a.gated = static_cast<__nv_bfloat16*>(p.gated);
  a.max_splits = max_splits(p.model.heads);
  a.split_stats = reinterpret_cast<float2*>(p.attention);
  a.split_sums = reinterpret_cast<float*>(p.attention + split_stats_bytes(p.model.heads, 1));
  a.sync = p.sync;
  a.eps = p.model.eps;
  a.scale_log2 = p.model.scale * kLog2E;
  a.hidden = static_cast<int>(first.q.cols);
  a.intermediate = static_cast<int>(first.down.cols);
  a.heads = p.model.heads;
  a.kv_heads = first.kv.kv_heads;
  a.block_size = first.kv.block_size;
  const SharedLayout l = layout(p.model, p.stream.gpu->shared_bytes_per_block);
  a.parts = l.parts;
  a.slots = l.slots;
  a.ring = l.ring;
  a.depth = l.depth;
  a.slot_bytes = l.slot_bytes;
  const bool wide = first.kv.head_dim == 128;
  if (is_rows(p.model)) {
    wide ? launch_decode<RowsRing, 128>(p.stream, a, l.total)
         : launch_decode<RowsRing, 64>(p.stream, a, l.total);
  } else {
    wide ? launch_decode<PackedRing, 128>(p.stream, a, l.total)
         : launch_decode<PackedRing, 64>(p.stream, a, l.total);
  }
}

}  // namespace snug::kernels::cuda
