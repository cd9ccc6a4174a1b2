// The decode kernel: phases of products and attention with a barrier of the grid after each, while the rings
// go on.
#pragma once

#include "kernels/cuda/decode_attention.cuh"

namespace snug::kernels::cuda {

// Waits for all blocks; what any of them wrote before is visible to all after. The counter's upper bit
// changes when the last block comes.
__device__ __forceinline__ void grid_barrier(std::uint32_t* counter) {
  __syncthreads();
  if (threadIdx.x == 0) {
    const std::uint32_t step = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    std::uint32_t before, now;
    __threadfence();
    asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(step)
                 : "memory");
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    } while (((before ^ now) & 0x80000000u) == 0);
  }
  __syncthreads();
}

template <class Ring, int kHeadDim>
__global__ void __launch_bounds__(kDecodeThreads, 1) decode_kernel(const __grid_constant__ DecodeArgs a) {
  using quant::Format;
  constexpr bool kPacked = std::is_same_v<Ring, PackedRing>;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ std::uint64_t barriers[kDecodeWarps][Ring::kBarriers];
  __shared__ float warp_sums[kDecodeWarps];
  const int lane = threadIdx.x % 32;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // visibly the same in all of a warp
  Ring ring(a, shared + a.ring + warp * a.depth * a.slot_bytes, barriers[warp], warp, lane);
  std::byte* staged = shared;
  float* slots = reinterpret_cast<float*>(shared + a.slots);
  wait_for_previous();
  float *x = a.x, *next = a.next;
  for (int phase = 0; phase <= a.layer_count * kPhases; ++phase) {
    const int kind = phase % kPhases;
    const bool is_head = phase == a.layer_count * kPhases;
    const DecodeLayerArgs& layer = a.layers[is_head ? 0 : phase / kPhases];
    int cols = a.hidden;
    DecodeResult to = {DecodeResult::Kind::parts, a.hidden_parts, a.hidden};
    if (kind == kQkv || kind == kGateUp) {
      const float* norm = is_head ? a.final_norm : kind == kQkv ? layer.input_norm : layer.post_norm;
      stage_norm(a, x, phase == 0 ? nullptr : a.hidden_parts, next, norm, staged, warp_sums);
      if (phase != 0) {
        float* settled = next;
        next = x;
        x = settled;
      }
      if (is_head) {
        to = {DecodeResult::Kind::whole, a.logits, 0};
      } else if (kind == kQkv) {
        to = {DecodeResult::Kind::parts, a.qkv_parts, (a.heads + 2 * a.kv_heads) * kHeadDim};
      } else {
        to = {DecodeResult::Kind::gated, a.gated, 0};
      }
    } else {
      cols = kind == kO ? a.heads * kHeadDim : a.intermediate;
      stage_copy(kind == kO ? a.attended : a.gated, cols, staged);
    }
    __syncthreads();
    float* sums = reinterpret_cast<float*>(staged + cols * 2);
    if constexpr (kPacked) {
      stage_sums(staged, cols, sums);
      __syncthreads();
    }
    const DecodeMatrix* m = matrix_of(a, phase);
    if (m != nullptr) {
      const auto multiply = [&]<Format F>() {
        multiply_part<F>(a, *m, to, ring, staged, sums, slots, warp, lane);
      };
      if constexpr (!kPacked) {
        multiply.template operator()<Format::bf16>();
      } else if (m->format == Format::q4_0) {
        multiply.template operator()<Format::q4_0>();
      } else if (m->format == Format::q8_0) {
        multiply.template operator()<Format::q8_0>();
      } else if (m->format == Format::q4_k) {
        multiply.template operator()<Format::q4_k>();
      } else {
        multiply.template operator()<Format::q6_k>();
      }
      __syncthreads();
      reduce_slots(*m, to, slots);
    }
    if (is_head) break;
    grid_barrier(a.sync);
    if (kind == kQkv) {
      attend<kHeadDim>(a, layer, shared);
      grid_barrier(a.sync);
    }
  }
}

// Of decode_packed.cu and decode_rows.cu.
template <class Ring, int kHeadDim>
void launch_decode(const Stream& stream, const DecodeArgs& a, int shared_bytes);
#define SNUG_DECODE_LAUNCH(Ring, HeadDim) \
  template void launch_decode<Ring, HeadDim>(const Stream&, const DecodeArgs&, int)
extern SNUG_DECODE_LAUNCH(PackedRing, 64);
extern SNUG_DECODE_LAUNCH(PackedRing, 128);
extern SNUG_DECODE_LAUNCH(RowsRing, 64);
extern SNUG_DECODE_LAUNCH(RowsRing, 128);

}  // namespace snug::kernels::cuda
