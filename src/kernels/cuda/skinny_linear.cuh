// The skinny product's kernel: y = x · Wᵀ for 1 … 8 tokens, at the speed at which weights can be read.
//
// Work is a sequence of units (linear_layout.h), row tile after row tile, each along its columns. Every block
// takes a contiguous run of it, the runs as equal as they can be, and every warp of it a contiguous part of
// that run: it streams its bytes, multiplies, and never meets another warp until the end. There, tiles that
// several warps had a part of are added up in the order of the columns. Blocks may end inside a tile where
// the result goes to two partial sums; a block's run is never shorter than a tile, so two are enough. None of
// these cuts depends on the tokens.
//
// What costs time between two such kernels is that memory idles: so the first weights are asked for before
// the wait for the kernel ahead, and two kernels' blocks fit on a multiprocessor side by side.
#pragma once

#include <utility>

#include "kernels/cuda/skinny_args.cuh"
#include "kernels/cuda/skinny_norm.cuh"
#include "kernels/cuda/skinny_stream.cuh"

namespace snug::kernels::cuda {

// One finished value, or a block's part of it. `row` counts in the result. `end`: which end of a tile that is
// cut between two blocks this block has: 0 the first columns, 1 the last, -1 all.
__device__ __forceinline__ void put(const SkinnyArgs& a, int token, int row, float value, int end) {
  const std::int64_t at = token * a.y_stride + row;
  if (a.output == SkinnyOutput::parts) {
    float* y = static_cast<float*>(a.y);
    if (end == 1) {
      y[a.part_stride + at] = value;
    } else {
      y[at] = value;
      if (end < 0) y[a.part_stride + at] = 0.0f;
    }
  } else if (a.output == SkinnyOutput::f32) {
    static_cast<float*>(a.y)[at] = value;
  } else {
    static_cast<__nv_bfloat16*>(a.y)[at] = __float2bfloat16_rn(value);
  }
}

// Adds up the tiles that no warp had to itself. A group is a tile, or a gate tile and its up tile.
template <bool Gated, int Warps>
__device__ __forceinline__ void reduce_slots(const SkinnyArgs& a, const SkinnyRun<Warps>& run,
                                             const float* slots) {
  constexpr int kGroup = Gated ? 2 : 1;
  const int slot = kTileRows * a.tokens, group_units = a.tile_units * kGroup;
  const int first = run.begin / group_units, last = (run.begin + run.size - 1) / group_units;
  for (int i = threadIdx.x; i < (last - first + 1) * slot; i += Warps * 32) {
    const int group = first + i / slot, in_slot = i % slot;
    const int begin = max(group * group_units - run.begin, 0);
    const int end = min((group + 1) * group_units - run.begin, run.size);
    if (begin == group * group_units - run.begin && end == (group + 1) * group_units - run.begin &&
        run.warp_of(begin) == run.warp_of(end - 1)) {
      continue;  // written by that warp
    }
    float sums[kGroup];
#pragma unroll
    for (int tile = 0; tile < kGroup; ++tile) {
      const int tile_begin = max(begin, (group * kGroup + tile) * a.tile_units - run.begin);
      const int tile_end = min(end, (group * kGroup + tile + 1) * a.tile_units - run.begin);
      float sum = 0;
      for (int w = run.warp_of(tile_begin); w <= run.warp_of(tile_end - 1); ++w) {
        const int from = run.warp_begin(w);
        if (from == run.warp_begin(w + 1)) continue;
        const int which = (run.begin + from) / group_units == group ? 0 : 1;
        sum += slots[((w * 2 + which) * kGroup + tile) * slot + in_slot];
      }
      sums[tile] = sum;
    }
    const int token = in_slot / kTileRows, row = group * kTileRows + in_slot % kTileRows;
    if constexpr (Gated) {
      put(a, token, row, gated_value(sums[0], sums[1]), -1);
    } else {
      const bool whole = end - begin == group_units;
      put(a, token, row, sums[0], whole ? -1 : begin == group * group_units - run.begin ? 0 : 1);
    }
  }
}

// What a warp has of a tile, either the finished result or a part of it.
__device__ __forceinline__ void flush(const SkinnyArgs& a, float* slots, int begin, int end, int place,
                                      const float (&y)[4], float (&gate)[4]) {
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const bool gated = a.output == SkinnyOutput::gated;
  const int shift = gated ? 1 : 0, group_units = a.tile_units << shift;
  const int group = place >> shift, tile = place & shift;
  if (group * group_units >= begin && (group + 1) * group_units <= end) {
    if (gated && tile == 0) {
#pragma unroll
      for (int j = 0; j < 4; ++j) gate[j] = y[j];
      return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int token = 2 * t + j % 2;
      const float value = gated ? gated_value(gate[j], y[j]) : y[j];
      if (token < a.tokens) put(a, token, group * kTileRows + g + j / 2 * 8, value, -1);
    }
    return;
  }
  const int which = group * group_units <= begin ? 0 : 1;
  float* to = slots + (((warp * 2 + which) << shift) + tile) * kTileRows * a.tokens;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int token = 2 * t + j % 2;
    if (token < a.tokens) to[token * kTileRows + g + j / 2 * 8] = y[j];
  }
}

// A lane's activations of one unit, of token g: for each block of 32 columns 8, in the order of column_of().
template <quant::Format F>
struct SkinnyX {
  static constexpr int kBlocks = unit_shape(F).cols / 32;
  uint4 b[kBlocks] = {};
  template <bool Staged>
  __device__ __forceinline__ void load(const std::byte* at) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      if constexpr (F == quant::Format::q6_k) {
        const auto* from = reinterpret_cast<const uint2*>(at + i * 64);
        const uint2 v = Staged ? from[0] : __ldcg(from), w = Staged ? from[4] : __ldcg(from + 4);
        b[i] = {v.x, v.y, w.x, w.y};
      } else {
        const auto* from = reinterpret_cast<const uint4*>(at + i * 64);
        b[i] = Staged ? *from : __ldcg(from);
      }
    }
  }
  // Where the lane's first activations of a row are.
  __device__ __forceinline__ static int offset(int t) {
    return F == quant::Format::q6_k ? t * 8 : t * 16;
  }
};

template <quant::Format F, bool Staged>
__global__ void __launch_bounds__(StreamShape<F>::kThreads, 2)
    skinny_kernel(const __grid_constant__ SkinnyArgs a) {
  using Shape = StreamShape<F>;
  constexpr int kColumnBytes = unit_shape(F).cols * 2;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ std::uint64_t barriers[StreamShape<F>::kWarps][WeightStream<F>::kBarriers];
  __shared__ float sums[StreamShape<F>::kWarps];
  allow_next();
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0);  // visibly the same in all of a warp
  const auto run = run_of_block<Shape::kWarps>(a);
  const int begin = run.begin + run.warp_begin(warp), end = run.begin + run.warp_begin(warp + 1);
  WeightStream<F> weights(a, begin, end, shared + a.ring + warp * a.depth * Shape::kGroupBytes,
                          barriers[warp], lane);
  SkinnyGroups<Shape::kUnits> groups(a, begin, end);
  wait_for_previous();
  if constexpr (Staged) {
    if (a.input == SkinnyInput::normed) {
      norm_token<Shape::kWarps>(a, 0, reinterpret_cast<__nv_bfloat16*>(shared + a.staged), false, sums);
    } else {
      copy_rows<Shape::kThreads>(a, shared);
    }
    __syncthreads();
  }

  float* slots = reinterpret_cast<float*>(shared + a.slots);
  // Columns of the product that no token is in go nowhere, so they may hold whatever is easy to reach.
  const int token = g < a.tokens ? g : 0;
  const std::byte* row = Staged ? shared + a.staged + token * a.staged_row
                                : reinterpret_cast<const std::byte*>(a.x + token * a.x_stride);
  row += SkinnyX<F>::offset(t);
  const std::byte* x = row + groups.unit * kColumnBytes;
  SkinnyX<F> ahead;  // of the next unit, since global memory is far
  if (!Staged && groups.left > 0) ahead.template load<false>(x);
  const UnitConstants<F> constants;
  float y[4] = {0, 0, 0, 0}, gate[4] = {0, 0, 0, 0};
  while (groups.left > 0) {
    const int count = groups.count(a);
    weights.arrive();
    const auto unit = [&]<int J, bool All>() {
      if (All || J < count) {
        SkinnyX<F> now;
        if constexpr (Staged) {
          now.template load<true>(x + J * kColumnBytes);
        } else {
          now = ahead;
          const bool wraps = (!All || J + 1 == Shape::kUnits) && groups.unit + J + 1 == a.tile_units;
          ahead.template load<false>(wraps ? row : x + (J + 1) * kColumnBytes);
        }
        const Unit<F> w = weights.template get<J>(lane);
        w.multiply(constants, now.b, y);
      }
      weights.template used<J>();  // the next group may have more units than this one
    };
    const auto units = [&]<bool All, int... J>(std::integer_sequence<int, J...>) {
      (unit.template operator()<J, All>(), ...);
    };
    constexpr auto kIndices = std::make_integer_sequence<int, Shape::kUnits>();
    if (count == Shape::kUnits) {  // without branches the compiler can interleave them
      units.template operator()<true>(kIndices);
    } else {
      units.template operator()<false>(kIndices);
    }
    weights.release(a, lane);
    const int place = groups.place;
    if (groups.advance(a, count) || groups.left == 0) {
      flush(a, slots, begin, end, place, y, gate);
      y[0] = y[1] = y[2] = y[3] = 0;
      x = row;
    } else {
      x += count * kColumnBytes;
    }
  }
  __syncthreads();
  if (a.output == SkinnyOutput::gated) {
    reduce_slots<true, Shape::kWarps>(a, run, slots);
  } else {
    reduce_slots<false, Shape::kWarps>(a, run, slots);
  }
}

// Sizes, shared memory and the launch, in skinny_<format>.cu.
template <quant::Format F>
void launch_skinny(const Stream& stream, SkinnyArgs a, int grid);
extern template void launch_skinny<quant::Format::q4_0>(const Stream&, SkinnyArgs, int);
extern template void launch_skinny<quant::Format::q8_0>(const Stream&, SkinnyArgs, int);
extern template void launch_skinny<quant::Format::q4_k>(const Stream&, SkinnyArgs, int);
extern template void launch_skinny<quant::Format::q6_k>(const Stream&, SkinnyArgs, int);

}  // namespace snug::kernels::cuda
