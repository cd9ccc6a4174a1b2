// A product of the decode kernel: its input into shared memory, the weights as they come through the rings,
// the sums of tiles that several warps had a part of.
#pragma once

#include <utility>

#include "kernels/cuda/decode_stream.cuh"
#include "kernels/cuda/decode_unit.cuh"
#include "kernels/cuda/vector.cuh"

namespace snug::kernels::cuda {

inline constexpr int kDecodeColumns = 8192;  // of the residual stream, at most

// A product's activations in shared memory: bfloat16, and where its weights are packed the sums of each 16.
struct Stage {
  std::byte* values;
  float* sums;
  __device__ __forceinline__ Stage(std::byte* memory, int cols)
      : values(memory), sums(reinterpret_cast<float*>(memory + cols * 2)) {}
};

// Four columns to their place, where `has`. By all lanes of a warp, with neighbouring quads.
template <bool kPacked>
__device__ __forceinline__ void stage_quad(const Stage& stage, int quad, bool has, const uint2& v) {
  if (has) reinterpret_cast<uint2*>(stage.values)[quad] = v;
  if constexpr (kPacked) {
    float sum = low_bf16(v.x) + high_bf16(v.x) + (low_bf16(v.y) + high_bf16(v.y));
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (has && quad % 4 == 0) stage.sums[quad / 4] = sum;
  }
}

// What a norm needs that is known before the product ahead of it has ended: a thread's share.
struct NormInput {
  static constexpr int kQuads = kDecodeColumns / (4 * kDecodeThreads);
  float4 x[kQuads], weight[kQuads];
  __device__ __forceinline__ void load(const DecodeArgs& a, const float* from, const float* norm) {
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      const int i = threadIdx.x + j * kDecodeThreads;
      x[j] = weight[j] = {0, 0, 0, 0};
      if (i >= a.hidden / 4) continue;
      x[j] = load_l2(from + i * 4);
      weight[j] = *reinterpret_cast<const float4*>(norm + i * 4);
    }
  }
};

// The RMS norm (Zhang and Sennrich 2019) of x + part 0 + part 1 as bfloat16, to shared memory. Every block
// makes it for itself; where there are parts (parts != null), the sum goes to `next`, a share from each
// block. Ends without a barrier.
template <bool kPacked>
__device__ __forceinline__ void stage_norm(const DecodeArgs& a, const NormInput& input, const float* parts,
                                           float* next, const Stage& stage, float* warp_sums) {
  constexpr int kQuads = NormInput::kQuads;
  const int quads = a.hidden / 4;
  const float4 zero = {0, 0, 0, 0};
  float4 h[kQuads], part0[kQuads], part1[kQuads];
#pragma unroll
  for (int j = 0; j < kQuads; ++j) {
    const int i = threadIdx.x + j * kDecodeThreads;
    part0[j] = part1[j] = zero;
    if (i >= quads || parts == nullptr) continue;
    part0[j] = load_l2(parts + i * 4);
    part1[j] = load_l2(parts + a.hidden + i * 4);
  }
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kQuads; ++j) {
    const int i = threadIdx.x + j * kDecodeThreads;
    h[j] = plus(plus(input.x[j], part0[j]), part1[j]);
    if (parts != nullptr && i < quads && i % gridDim.x == blockIdx.x)
      reinterpret_cast<float4*>(next)[i] = h[j];
    sum += h[j].x * h[j].x + h[j].y * h[j].y + h[j].z * h[j].z + h[j].w * h[j].w;
  }
  const float factor = norm_factor<kDecodeWarps>(sum, warp_sums, a.hidden, a.eps);
#pragma unroll
  for (int j = 0; j < kQuads; ++j) {
    const int i = threadIdx.x + j * kDecodeThreads;
    stage_quad<kPacked>(stage, i, i < quads, normed(h[j], factor, input.weight[j]));
  }
}

// `cols` bfloat16 to shared memory. Ends without a barrier.
template <bool kPacked>
__device__ __forceinline__ void stage_copy(const __nv_bfloat16* from, int cols, const Stage& stage) {
  constexpr int kAtOnce = 5;
  const int pieces = cols / 8;
#pragma unroll 1
  for (int first = 0; first < pieces; first += kAtOnce * kDecodeThreads) {
    uint4 v[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {  // all are set, or the compiler keeps their old values in registers
      const int i = first + threadIdx.x + j * kDecodeThreads;
      v[j] = i < pieces ? __ldcg(reinterpret_cast<const uint4*>(from) + i) : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = first + threadIdx.x + j * kDecodeThreads;
      if (i - static_cast<int>(threadIdx.x % 32) >= pieces) break;  // all of the warp
      if (i < pieces) reinterpret_cast<uint4*>(stage.values)[i] = v[j];
      if constexpr (kPacked) {
        float sum = 0;
        for (const std::uint32_t pair : {v[j].x, v[j].y, v[j].z, v[j].w})
          sum += low_bf16(pair) + high_bf16(pair);
        sum += __shfl_xor_sync(~0u, sum, 1);
        if (i < pieces && i % 2 == 0) stage.sums[i / 2] = sum;
      }
    }
  }
}

// Fetches a line of 128 bytes into L2, ahead of its use.
__device__ __forceinline__ void prefetch_l2(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}
// By one block for all; `turn` says which.
__device__ __forceinline__ void prefetch_floats(const float* from, int count, int turn) {
  if (from == nullptr || turn % static_cast<int>(gridDim.x) != static_cast<int>(blockIdx.x)) return;
  for (int i = threadIdx.x * 32; i < count; i += kDecodeThreads * 32) prefetch_l2(from + i);
}

// Where a product's rows go.
struct DecodeResult {
  enum class Kind : std::uint8_t { parts, gated, whole } kind;
  void* y;          // float32; of gated results bf16
  int part_stride;  // floats
};

// One finished row, or a block's part of it. `end`: which end of a tile that is cut between two blocks this
// block has: 0 the first columns, 1 the last, -1 all.
__device__ __forceinline__ void put(const DecodeResult& to, int row, float value, int end) {
  if (to.kind == DecodeResult::Kind::gated) {
    static_cast<__nv_bfloat16*>(to.y)[row] = __float2bfloat16_rn(value);
    return;
  }
  float* y = static_cast<float*>(to.y);
  if (to.kind == DecodeResult::Kind::whole) {
    y[row] = value;
    return;
  }
  if (end == 1) {
    y[to.part_stride + row] = value;
  } else {
    y[row] = value;
    if (end < 0) y[to.part_stride + row] = 0.0f;
  }
}

// What warps have of tiles that none of them has to itself.
struct DecodeSlots {
  // Of a warp: of the first group and of the last, a group being a tile, or a gate tile and its up tile.
  float sums[kDecodeWarps][2][2][kTileRows];
  int4 places[kDecodeWarps];  // of the tiles in `sums`, in that order; -1: none
};

// Adds up, in the order of columns, what is in the slots.
__device__ __forceinline__ void reduce_slots(const DecodePart& part, const DecodeResult& to,
                                             const DecodeSlots& slots) {
  const int shift = part.gated() ? 1 : 0, group_units = part.tile_units << shift, part_end = part.end();
  const int first = part.place_of(part.begin) >> shift, last = part.place_of(part_end - 1) >> shift;
  for (int i = threadIdx.x; i < (last - first + 1) * kTileRows; i += kDecodeThreads) {
    const int group = first + i / kTileRows, row = i % kTileRows, place = group << shift;
    float sum = 0, up = 0;
    bool is_any = false;
#pragma unroll
    for (int w = 0; w < kDecodeWarps; ++w) {
      const int4 places = slots.places[w];
      if (places.x == place) sum += slots.sums[w][0][0][row], is_any = true;
      if (places.z == place) sum += slots.sums[w][1][0][row], is_any = true;
      if (shift == 0) continue;
      if (places.y == place + 1) up += slots.sums[w][0][1][row];
      if (places.w == place + 1) up += slots.sums[w][1][1][row];
    }
    if (!is_any) continue;  // written by the warp that had all of it
    const int begin = group * group_units;
    const bool whole = begin >= part.begin && begin + group_units <= part_end;
    put(to, part.first_row + group * kTileRows + row, shift != 0 ? gated_value(sum, up) : sum,
        whole                 ? -1
        : begin >= part.begin ? 0
                              : 1);
  }
}

// What a warp has of a tile, either the finished result or a part of it.
__device__ __forceinline__ void flush(const DecodePart& part, const DecodeResult& to, DecodeSlots& slots,
                                      int warp, int begin, int end, int place, float low, float high,
                                      float (&gate)[2]) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int shift = part.gated() ? 1 : 0, group_units = part.tile_units << shift;
  const int group = place >> shift, tile = place & shift;
  // Every lane of a row has it: t = 0 writes row g, t = 1 row g + 8.
  const int row = g + t * 8;
  const float value = t == 0 ? low : high;
  if (group * group_units >= begin && (group + 1) * group_units <= end) {
    if (shift != 0 && tile == 0) {
      gate[0] = low, gate[1] = high;
      return;
    }
    const float result = shift != 0 ? gated_value(t == 0 ? gate[0] : gate[1], value) : value;
    if (t < 2) put(to, part.first_row + group * kTileRows + row, result, -1);
    return;
  }
  const int which = group * group_units <= begin ? 0 : 1;
  if (t < 2) slots.sums[warp][which][tile][row] = value;
  if (threadIdx.x % 32 == 0) reinterpret_cast<int*>(slots.places + warp)[which * 2 + tile] = place;
}

// A warp's part of a product.
template <quant::Format F, class Ring>
__device__ __forceinline__ void multiply_part(const DecodeArgs& a, const DecodePart& part,
                                              const DecodeResult& to, Ring& ring, const Stage& stage,
                                              DecodeSlots& slots, int warp, int lane) {
  using quant::Format;
  constexpr int kUnits = group_units(F), kColumnBytes = unit_shape(F).cols * 2;
  const int g = lane / 4, t = lane % 4;
  const int begin = part.warp_begin(warp), end = part.warp_begin(warp + 1);
  DecodeGroups groups;
  groups.enter(part, warp);
  if (lane == 0) slots.places[warp] = {-1, -1, -1, -1};
  __syncwarp();
  const std::byte* row = stage.values + (F == Format::q6_k ? t * 8 : t * 16);
  float gate[2] = {0, 0};
  constexpr bool kRows = F == Format::bf16;
  float y[kRows ? 4 : 2] = {};
  std::uint32_t base = 0;
  if constexpr (!kRows) base = opaque(OneToken<F>::kBase);
  while (groups.left > 0) {
    const int count = kRows ? kUnits : groups.template count<kUnits>();
    const std::byte* slot = ring.arrive(a);
    const auto unit = [&]<int J, bool All>() {
      if (!All && J >= count) return;
      const std::byte* x = row + (groups.unit + J) * kColumnBytes;
      if constexpr (kRows) {
        const std::byte* w = slot + g * 128 + ((J * 4 + t) ^ g % 2 * 4) * 16;
        OneToken<F>::multiply(load_as<uint4>(w), load_as<uint4>(w + 1024), load_as<uint4>(x), y);
      } else {
        Unit<F> weights;
        weights.load(slot + J * unit_shape(F).bytes, slot + kUnits * unit_shape(F).bytes, lane);
        uint4 b[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if constexpr (F == Format::q6_k) {
            const uint2 v = load_as<uint2>(x + i * 64), w = load_as<uint2>(x + i * 64 + 32);
            b[i] = {v.x, v.y, w.x, w.y};
          } else {
            b[i] = load_as<uint4>(x + i * 64);
          }
        }
        const float4 s = reinterpret_cast<const float4*>(stage.sums)[groups.unit + J];
        OneToken<F>::multiply(weights, b, s, base, y);
      }
    };
    const auto units = [&]<bool All, int... J>(std::integer_sequence<int, J...>) {
      (unit.template operator()<J, All>(), ...);
    };
    constexpr auto kIndices = std::make_integer_sequence<int, kUnits>();
    if (kRows || count == kUnits) {  // without branches the compiler can interleave them
      units.template operator()<true>(kIndices);
    } else {
      units.template operator()<false>(kIndices);
    }
    ring.release(a, warp, lane);
    const int place = groups.place;
    if (groups.advance(count) || groups.left == 0) {
      flush(part, to, slots, warp, begin, end, place, y[0], y[kRows ? 2 : 1], gate);
#pragma unroll
      for (float& value : y) value = 0;
    }
  }
}

}  // namespace snug::kernels::cuda
