// The decode kernel: phases of products and attention with a barrier of the grid after each, while the rings
// go on.
#pragma once

#include "kernels/cuda/decode_attention.cuh"

namespace snug::kernels::cuda {

// Barriers of the whole grid, by a counter that only grows, by one for each block and barrier: between two
// launches it is a multiple of the number of blocks.
class GridBarrier {
 public:
  __device__ __forceinline__ explicit GridBarrier(std::uint32_t* words)
      : counter_(reinterpret_cast<unsigned long long*>(words)) {
    if (threadIdx.x != 0) return;
    // Others may have come to the first barrier by now, but none can have passed it.
    const unsigned long long now = read();
    target_ = now - now % gridDim.x;
  }
  // What any block wrote before arrive() is visible to all after wait().
  __device__ __forceinline__ void arrive() {
    __syncthreads();
    if (threadIdx.x != 0) return;
    target_ += gridDim.x;
    asm volatile("red.release.gpu.global.add.u64 [%0], 1;" ::"l"(counter_) : "memory");
  }
  __device__ __forceinline__ void wait() {
    if (threadIdx.x == 0) {
      while (read() < target_) {
      }
    }
    __syncthreads();
  }

 private:
  __device__ __forceinline__ unsigned long long read() const {
    unsigned long long value;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(counter_) : "memory");
    return value;
  }
  unsigned long long* counter_;
  unsigned long long target_ = 0;
};

template <class Ring, int kHeadDim>
__global__ void __launch_bounds__(kDecodeThreads, 1) decode_kernel(const __grid_constant__ DecodeArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // decode_layers_supports() asks for it
  using quant::Format;
  constexpr bool kPacked = std::is_same_v<Ring, PackedRing>;
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ std::uint64_t barriers[kDecodeWarps][Ring::kBarriers];
  __shared__ float warp_sums[kDecodeWarps];
  const int lane = threadIdx.x % 32;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // visibly the same in all of a warp
  auto* parts = reinterpret_cast<DecodePart*>(shared + a.parts);
  const int phases = phase_count(a);
  for (int i = threadIdx.x; i < phases; i += kDecodeThreads) parts[i] = make_part(a, i);
  __syncthreads();
  Ring ring(a, parts, shared + a.ring + warp * a.depth * a.slot_bytes, barriers[warp], warp, lane);
  auto& slots = *reinterpret_cast<DecodeSlots*>(shared + a.slots);
  wait_for_previous();
  GridBarrier barrier(a.sync);
  const int kv_len = *a.kv_len;
  float *x = a.x, *next = a.next;
  {
    NormInput input;
    input.load(a, x, a.layers[0].input_norm);
    stage_norm<kPacked>(a, input, nullptr, nullptr, Stage(shared, a.hidden), warp_sums);
  }
  for (int phase = 0; phase < phases; ++phase) {
    const int kind = phase % kPhases;
    const bool is_head = phase == phases - 1;
    const DecodeLayerArgs& layer = a.layers[is_head ? 0 : phase / kPhases];
    const DecodePart& part = parts[phase];
    const int cols = kind == kO ? a.heads * kHeadDim : kind == kDown ? a.intermediate : a.hidden;
    const Stage stage(shared, cols);
    DecodeResult to = {DecodeResult::Kind::parts, a.hidden_parts, a.hidden};
    if (is_head) {
      to = {DecodeResult::Kind::whole, a.logits, 0};
    } else if (kind == kQkv) {
      to = {DecodeResult::Kind::parts, a.qkv_parts, (a.heads + 2 * a.kv_heads) * kHeadDim};
    } else if (kind == kGateUp) {
      to = {DecodeResult::Kind::gated, a.gated, 0};
    }
    if (kind == kO) {
      stage_attended<kPacked, kHeadDim>(a, layer, kv_len, stage);
    } else if (kind == kDown) {
      stage_copy<kPacked>(a.gated, cols, stage);
    }
    __syncthreads();
    // What comes cold from memory next, and would be waited for.
    if (kind == kQkv && !is_head) {
      prefetch_floats(layer.post_norm, a.hidden, phase);
      prefetch_floats(layer.qkv_bias, (a.heads + 2 * a.kv_heads) * kHeadDim, phase + 1);
      prefetch_context<kHeadDim>(a, layer, kv_len);
    } else if (kind == kGateUp) {
      const bool is_last = phase + kPhases > phases;
      prefetch_floats(is_last ? a.final_norm : a.layers[phase / kPhases + 1].input_norm, a.hidden, phase);
    }
    if (part.steps != 0) {
      const auto multiply = [&]<Format F>() {
        multiply_part<F>(a, part, to, ring, stage, slots, warp, lane);
      };
      if constexpr (!kPacked) {
        multiply.template operator()<Format::bf16>();
      } else if (part.format == Format::q4_0) {
        multiply.template operator()<Format::q4_0>();
      } else if (part.format == Format::q8_0) {
        multiply.template operator()<Format::q8_0>();
      } else if (part.format == Format::q4_k) {
        multiply.template operator()<Format::q4_k>();
      } else {
        multiply.template operator()<Format::q6_k>();
      }
      __syncthreads();
      reduce_slots(part, to, slots);
    }
    if (is_head) break;
    barrier.arrive();
    if (kind == kO || kind == kDown) {
      NormInput input;
      const float* norm = kind == kO            ? layer.post_norm
                          : phase + 2 == phases ? a.final_norm
                                                : a.layers[phase / kPhases + 1].input_norm;
      input.load(a, x, norm);
      barrier.wait();
      stage_norm<kPacked>(a, input, a.hidden_parts, next, Stage(shared, a.hidden), warp_sums);
      float* settled = next;
      next = x;
      x = settled;
      continue;
    }
    barrier.wait();
    if (kind == kQkv) {
      attend<kHeadDim>(a, layer, kv_len, shared);
      barrier.arrive();
      barrier.wait();
    }
  }
#endif
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
