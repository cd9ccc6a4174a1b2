// What the parts of the skinny product share: its arguments and how its work is cut.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_layout.cuh"
#include "kernels/skinny_linear.h"

namespace snug::kernels::cuda {

enum class SkinnyOutput : std::uint8_t { parts, gated, f32, bf16 };
// Where activations come from: global memory as the products go, or shared memory, where either the norm of
// the residual stream was put (one token) or a copy of x.
enum class SkinnyInput : std::uint8_t { direct, normed, copied };

struct SkinnyArgs {
  const std::byte* weight = nullptr;
  std::int64_t tile_bytes = 0;
  int tiles = 0;       // row tiles
  int tile_units = 0;  // units of a tile
  int cols = 0;
  int tokens = 0;
  SkinnyInput input = SkinnyInput::direct;
  const __nv_bfloat16* x = nullptr;  // (tokens, cols)
  std::int64_t x_stride = 0;
  // The residual stream and what is to be added to it.
  const float* residual = nullptr;
  float* next = nullptr;
  const float* pending = nullptr;
  std::int64_t pending_stride = 0;
  int pending_count = 0;
  const float* pending_bias = nullptr;
  const float* norm = nullptr;
  float eps = 0;
  // Bytes from the start of shared memory: the partial tiles of warps; the rings of weights; x and
  // the length of its rows.
  int slots = 0;
  int ring = 0;
  int staged = 0;
  int staged_row = 0;
  int depth = 0;  // of the ring of weights, in groups
  SkinnyOutput output = SkinnyOutput::f32;
  void* y = nullptr;
  std::int64_t y_stride = 0;
  std::int64_t part_stride = 0;
};

// The row tile that stands at `place` in the sequence: with gated results gate and up take turns.
__device__ __forceinline__ const std::byte* tile_at(const SkinnyArgs& a, int place) {
  const int tile = a.output == SkinnyOutput::gated ? place / 2 + place % 2 * (a.tiles / 2) : place;
  return a.weight + tile * a.tile_bytes;
}

// The run of units of a block, and of each of its warps.
template <int Warps>
struct SkinnyRun {
  int begin, size;
  __device__ __forceinline__ int warp_begin(int warp) const {
    return static_cast<int>(static_cast<std::int64_t>(size) * warp / Warps);
  }
  // The warp whose part holds the unit (counted from `begin`).
  __device__ __forceinline__ int warp_of(int unit) const {
    return static_cast<int>((static_cast<std::int64_t>(unit + 1) * Warps - 1) / size);
  }
};

template <int Warps>
__device__ __forceinline__ SkinnyRun<Warps> run_of_block(const SkinnyArgs& a) {
  const int step =
      a.output == SkinnyOutput::parts ? 1 : a.tile_units * (a.output == SkinnyOutput::gated ? 2 : 1);
  const std::int64_t steps = static_cast<std::int64_t>(a.tiles) * a.tile_units / step;
  const int begin = static_cast<int>(steps * blockIdx.x / gridDim.x) * step;
  const int end = static_cast<int>(steps * (blockIdx.x + 1) / gridDim.x) * step;
  return {begin, end - begin};
}

// Walks over a warp's units in groups of at most Size, which begin at multiples of Size or where the run
// does, and end where a tile does.
template <int Size>
struct SkinnyGroups {
  int place, unit, left;
  __device__ __forceinline__ SkinnyGroups(const SkinnyArgs& a, int begin, int end)
      : place(begin / a.tile_units), unit(begin % a.tile_units), left(end - begin) {}
  __device__ __forceinline__ int count(const SkinnyArgs& a) const {
    return min(min(Size - unit % Size, a.tile_units - unit), left);
  }
  // Returns whether the tile ends here.
  __device__ __forceinline__ bool advance(const SkinnyArgs& a, int count) {
    unit += count;
    left -= count;
    const bool tile_ends = unit == a.tile_units;
    if (tile_ends) {
      unit = 0;
      ++place;
    }
    return tile_ends;
  }
};

}  // namespace snug::kernels::cuda
