// What the decode kernel works from: its arguments, and how each product is cut into runs of weights.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_layout.cuh"
#include "kernels/decode_layers.h"

namespace snug::kernels::cuda {

inline constexpr int kDecodeWarps = 16;
inline constexpr int kDecodeThreads = 32 * kDecodeWarps;
inline constexpr int kDecodeMaxLayers = 80;

// Units that a warp asks for at a time.
constexpr int group_units(quant::Format f) {
  using quant::Format;
  return f == Format::q4_0 || f == Format::q4_k ? 4 : 2;
}
constexpr int group_bytes(quant::Format f) {
  return group_units(f) * unit_shape(f).bytes + unit_shape(f).head_bytes;
}

// A product's weight, and the blocks that share it. A block takes a contiguous run of its units
// (linear_layout.h), in multiples of block_step; a warp a contiguous part of that, in multiples of warp_step.
struct DecodeMatrix {
  const std::byte* weight = nullptr;
  int tiles = 0;       // of 16 rows
  int tile_units = 0;  // units of a tile
  int tile_bytes = 0;
  int first_row = 0;  // in the result
  int block_step = 0;
  std::int16_t first_block = 0, blocks = 0;  // blocks 0: there is no such weight
  std::int16_t warp_step = 1;
  quant::Format format = quant::Format::bf16;
  bool gated = false;  // gate's rows, then up's
};

enum DecodePhase : std::uint8_t { kQkv, kO, kGateUp, kDown, kPhases };
inline constexpr int kQkvMatrices = 3;  // at most

struct DecodeLayerArgs {
  DecodeMatrix matrices[kQkvMatrices + kPhases - 1];  // of kQkv, then one of each
  const float* input_norm;
  const float* post_norm;
  const float* qkv_bias;
  __nv_bfloat16 *k, *v;
  int window;
};

struct DecodeArgs {
  DecodeLayerArgs layers[kDecodeMaxLayers];
  DecodeMatrix head;
  const float* final_norm;
  const float* cos_sin;
  const std::int32_t* page_table;
  const std::int32_t* kv_len;
  float *x, *next, *hidden_parts, *qkv_parts, *logits;
  __nv_bfloat16 *attended, *gated;
  float2* split_stats;  // (heads, max_splits): largest score, sum of weights
  float* split_sums;    // (heads, max_splits, head_dim)
  std::uint32_t* sync;
  float eps, scale_log2;
  int layer_count, hidden, intermediate, heads, kv_heads, block_size, max_splits;
  int slots, ring, depth, slot_bytes;  // of shared memory: offsets, and the rings' shape
};

// The weight that this block works on in a phase, counted through all layers; null: none.
__device__ __forceinline__ const DecodeMatrix* matrix_of(const DecodeArgs& a, int phase) {
  const int block = static_cast<int>(blockIdx.x), layer = phase / kPhases, kind = phase % kPhases;
  const auto has_block = [&](const DecodeMatrix& m) {
    return static_cast<unsigned>(block - m.first_block) < static_cast<unsigned>(m.blocks);
  };
  if (layer == a.layer_count) return has_block(a.head) ? &a.head : nullptr;
  const DecodeMatrix* m = a.layers[layer].matrices;
  if (kind != kQkv) {
    m += kQkvMatrices + kind - 1;
    return has_block(*m) ? m : nullptr;
  }
  for (int i = 0; i < kQkvMatrices; ++i) {
    if (has_block(m[i])) return m + i;
  }
  return nullptr;
}

// The row tile that stands at `place` in the sequence: with gated results gate and up take turns.
__device__ __forceinline__ const std::byte* tile_at(const DecodeMatrix& m, int place) {
  const int tile = m.gated ? place / 2 + place % 2 * (m.tiles / 2) : place;
  return m.weight + static_cast<std::int64_t>(tile) * m.tile_bytes;
}

// A block's run of units. All products of counts here fit 31 bits (the host sees to it).
struct DecodeRun {
  int begin, size, step;
  __device__ __forceinline__ explicit DecodeRun(const DecodeMatrix& m) : step(m.warp_step) {
    const unsigned local = blockIdx.x - static_cast<unsigned>(m.first_block);
    const unsigned steps =
        static_cast<unsigned>(m.tiles * m.tile_units) / static_cast<unsigned>(m.block_step);
    const unsigned blocks = static_cast<unsigned>(m.blocks);
    begin = static_cast<int>(steps * local / blocks) * m.block_step;
    size = static_cast<int>(steps * (local + 1) / blocks) * m.block_step - begin;
  }
  // Counted from `begin`.
  __device__ __forceinline__ int warp_begin(int warp) const {
    return size / step * warp / kDecodeWarps * step;
  }
  // The warp whose part holds the unit.
  __device__ __forceinline__ int warp_of(int unit) const {
    return ((unit / step + 1) * kDecodeWarps - 1) / (size / step);
  }
};

// Walks over a warp's units in groups, which begin at multiples of Size or where the part does, and end where
// a tile does.
struct DecodeGroups {
  int place = 0, unit = 0, left = 0;
  __device__ __forceinline__ void enter(const DecodeMatrix& m, int warp) {
    const DecodeRun run(m);
    const int begin = run.begin + run.warp_begin(warp);
    left = run.begin + run.warp_begin(warp + 1) - begin;
    place = begin / m.tile_units;
    unit = begin - place * m.tile_units;
  }
  template <int Size>
  __device__ __forceinline__ int count(const DecodeMatrix& m) const {
    return min(min(Size - unit % Size, m.tile_units - unit), left);
  }
  // Returns whether the tile ends here.
  __device__ __forceinline__ bool advance(const DecodeMatrix& m, int count) {
    unit += count;
    left -= count;
    const bool tile_ends = unit == m.tile_units;
    if (tile_ends) {
      unit = 0;
      ++place;
    }
    return tile_ends;
  }
};

}  // namespace snug::kernels::cuda
