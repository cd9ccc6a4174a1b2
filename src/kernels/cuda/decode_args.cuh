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
// Of DecodeLayersParams::sync; behind them a counter for each KV head.
inline constexpr int kBarrierWords = 2;

// Units that a warp asks for at a time.
constexpr int group_units(quant::Format f) {
  using quant::Format;
  return f == Format::q4_0 || f == Format::q4_k ? 4 : 2;
}
constexpr int group_bytes(quant::Format f) {
  return group_units(f) * unit_shape(f).bytes + unit_shape(f).head_bytes;
}

// A product's weight, and the blocks that share it. A block takes a contiguous run of its units
// (linear_layout.h), in multiples of block_step; a warp a contiguous part of that, in multiples of
// 1 << warp_shift.
struct DecodeMatrix {
  const std::byte* weight = nullptr;
  int tiles = 0;       // of 16 rows
  int tile_units = 0;  // units of a tile
  int tile_bytes = 0;
  int first_row = 0;  // in the result
  int block_step = 0;
  std::int16_t first_block = 0, blocks = 0;  // blocks 0: there is no such weight
  std::int8_t warp_shift = 0;
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
  int parts, slots, ring, depth, slot_bytes;  // of shared memory: offsets, and the rings' shape
};

// A block's part of one product, made once at the start of the kernel and kept in shared memory.
struct alignas(16) DecodePart {
  const std::byte* weight;
  int tile_bytes;
  int half;          // gated: tiles of gate; otherwise 0
  int begin, steps;  // units: begin, and the size in steps of 1 << shift; steps 0: nothing
  int tile_units;
  std::uint32_t per_tile;  // 2^32 / tile_units, rounded up
  int first_row, shift;
  quant::Format format;

  __device__ __forceinline__ bool gated() const { return half != 0; }
  __device__ __forceinline__ int end() const { return begin + (steps << shift); }
  // Where a warp's part of it begins; that of warp kDecodeWarps is the end.
  __device__ __forceinline__ int warp_begin(int warp) const {
    return begin + (steps * warp / kDecodeWarps << shift);
  }
  // The place of a unit's tile in the sequence of tiles. Exact below 2^32 / tile_units.
  __device__ __forceinline__ int place_of(int unit) const {
    return static_cast<int>(__umulhi(static_cast<unsigned>(unit), per_tile));
  }
  // The tile at a place: with gated results gate and up take turns.
  __device__ __forceinline__ const std::byte* tile_at(int place) const {
    const int tile = half != 0 ? place / 2 + place % 2 * half : place;
    return weight + static_cast<std::int64_t>(tile) * tile_bytes;
  }
};

__device__ __forceinline__ int phase_count(const DecodeArgs& a) {
  return a.layer_count * kPhases + 1;
}

// This block's part of a phase, counted through all layers; the last one is the head. All products of counts
// here fit 31 bits (the host sees to it).
__device__ __forceinline__ DecodePart make_part(const DecodeArgs& a, int phase) {
  const int block = static_cast<int>(blockIdx.x), layer = phase / kPhases, kind = phase % kPhases;
  DecodePart part = {};
  const auto take = [&](const DecodeMatrix& m) {
    const auto local = static_cast<unsigned>(block - m.first_block), blocks = static_cast<unsigned>(m.blocks);
    if (local >= blocks) return;
    const unsigned steps =
        static_cast<unsigned>(m.tiles * m.tile_units) / static_cast<unsigned>(m.block_step);
    part.weight = m.weight;
    part.tile_bytes = m.tile_bytes;
    part.half = m.gated ? m.tiles / 2 : 0;
    part.shift = m.warp_shift;
    part.begin = static_cast<int>(steps * local / blocks) * m.block_step;
    part.steps = (static_cast<int>(steps * (local + 1) / blocks) * m.block_step - part.begin) >> m.warp_shift;
    part.tile_units = m.tile_units;
    part.per_tile = 0xFFFFFFFFu / static_cast<unsigned>(m.tile_units) + 1;
    part.first_row = m.first_row;
    part.format = m.format;
  };
  if (layer == a.layer_count) {
    take(a.head);
  } else if (kind != kQkv) {
    take(a.layers[layer].matrices[kQkvMatrices + kind - 1]);
  } else {
    for (int i = 0; i < kQkvMatrices; ++i) take(a.layers[layer].matrices[i]);
  }
  return part;
}

// Walks over a warp's units in groups, which begin at multiples of their size or where the part does, and end
// where a tile does.
struct DecodeGroups {
  int place = 0, unit = 0, left = 0, tile_units = 0;
  __device__ __forceinline__ void enter(const DecodePart& part, int warp) {
    const int begin = part.warp_begin(warp);
    tile_units = part.tile_units;
    left = part.warp_begin(warp + 1) - begin;
    place = part.place_of(begin);
    unit = begin - place * tile_units;
  }
  template <int Size>
  __device__ __forceinline__ int count() const {
    return min(min(Size - unit % Size, tile_units - unit), left);
  }
  // Returns whether the tile ends here.
  __device__ __forceinline__ bool advance(int count) {
    unit += count;
    left -= count;
    const bool tile_ends = unit == tile_units;
    if (tile_ends) {
      unit = 0;
      ++place;
    }
    return tile_ends;
  }
};

}  // namespace snug::kernels::cuda
