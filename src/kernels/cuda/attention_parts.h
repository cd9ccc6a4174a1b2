// What the attention kernels share: a call as plain device data, how a context is cut, and the tensor-core
// and asynchronous-copy instructions. Only the .cu files of cuda::attention include it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cuda/launch.cuh"

namespace snug::kernels::cuda {

// AttentionParams without what only the host reads. Positions and lengths are in tokens.
struct AttentionCall {
  const void* q = nullptr;  // (tokens, heads, head_dim), row stride q_stride elements
  void* out = nullptr;      // (tokens, heads, head_dim)
  const void* k = nullptr;  // (blocks, kv_heads, block_size, head_dim)
  const void* v = nullptr;
  kv::DeviceSequences sequences;
  int sequence_count = 0;
  int heads = 0, kv_heads = 0, group = 0;  // group: query heads of one KV head
  int head_dim = 0, block_size = 0;
  int block_shift = -1;  // block_size is 2 to this power; -1: it is none
  int window = 0;        // 0: unlimited
  float scale_log2 = 0;  // scale * log2(e): softmax by exp2
  std::int64_t q_stride = 0;
  // Of split contexts. A split's result: the largest score and the sum of the weights relative to it, both in
  // powers of two, and the weighted sum of V that is yet to be divided by it.
  int max_splits = 0;
  std::uint32_t* arrivals = nullptr;  // (sequences, heads): of finished splits, zero between calls
  float2* split_stats = nullptr;      // (sequences, heads, max_splits): score, sum
  float* split_sums = nullptr;        // (sequences, heads, max_splits, head_dim)
};

// The most parts a context is cut into. So many that one sequence fills the multiprocessors of a large GPU
// (models of few heads have two KV heads, others four or more), and a function of the model alone: a row's
// bits must depend neither on the batch nor on the GPU.
constexpr int max_splits(int heads) {
  return heads <= 16 ? 66 : 33;
}

constexpr int kTileKeys = 16;    // keys of one matrix instruction; a tile of them never crosses a page
constexpr int kSplitStep = 128;  // tokens; one tile for each warp of the decode kernel

// How the context of a single query token is cut: a function of its length (and the window) alone. Splits are
// even, so that none is left waiting for a longer one.
struct ContextCut {
  int visible = 0;  // the first position that the query sees
  int first = 0;    // where the first split starts, a multiple of kTileKeys at or before `visible`
  int length = 0;   // tokens of a split, a multiple of kSplitStep
  int count = 0;    // splits; 0 where there is no context
};

// `least` tokens, a multiple of kSplitStep, are not worth cutting.
__host__ __device__ inline ContextCut cut_context(int kv_len, int window, int splits, int least) {
  ContextCut cut;
  cut.visible = window > 0 && kv_len > window ? kv_len - window : 0;
  cut.first = cut.visible / kTileKeys * kTileKeys;
  const int span = kv_len - cut.first;
  const int worth = (span + least - 1) / least;
  if (splits > worth) splits = worth;
  const int even = (span + splits - 1) / splits;
  cut.length = (even + kSplitStep - 1) / kSplitStep * kSplitStep;
  cut.count = (span + cut.length - 1) / cut.length;
  return cut;
}

constexpr float kLog2E = 1.4426950408889634f;

// Of a call's workspace: what split_stats takes, behind which split_sums lies.
constexpr std::int64_t split_stats_bytes(int heads, std::int64_t sequences) {
  return (sequences * heads * max_splits(heads) * static_cast<std::int64_t>(sizeof(float2)) + 63) / 64 * 64;
}

AttentionCall make_call(const AttentionParams& p);

// Head dimensions 64 and 128, bfloat16, pages of a multiple of 16 tokens.
void decode_bf16(const AttentionParams& p, const AttentionCall& call);
void prefill_bf16(const AttentionParams& p, const AttentionCall& call);
// Any head dimension up to 256, float32 or bfloat16, float32 arithmetic: the sequences of one token, or those
// of more.
void decode_any(const AttentionParams& p, const AttentionCall& call);
void prefill_any(const AttentionParams& p, const AttentionCall& call);

#ifdef __CUDACC__

// The entry of the page table that a position lies in.
__device__ __forceinline__ int page_of(const AttentionCall& call, int position) {
  return call.block_shift >= 0 ? position >> call.block_shift : position / call.block_size;
}

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// Copies 16 bytes to shared memory without registers; zeros where !valid, and then reads nothing.
__device__ __forceinline__ void copy_async(std::uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}

// An 8x8 matrix of 16-bit values, spread over the warp, turned about its diagonal.
__device__ __forceinline__ std::uint32_t transposed(std::uint32_t x) {
  std::uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// c += a (16x16) * b (16x8)
__device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                             std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

constexpr float kNothing = -__builtin_huge_valf();  // the score of what a query does not see

// What scores are taken relative to: where there is none yet, minus infinity minus itself must not arise.
__device__ __forceinline__ float reference_score(float largest) {
  return largest == kNothing ? 0.0f : largest;
}

// Where a 16-byte chunk of a row of keys or values lies in a tile in shared memory: exchanged so that eight
// rows' chunks of one column lie in different banks.
template <int kHeadDim>
__device__ __forceinline__ std::uint32_t tile_offset(int row, int chunk) {
  return static_cast<std::uint32_t>((row * (kHeadDim / 8) + (chunk ^ (row & 7))) * 16);
}

#endif  // __CUDACC__

}  // namespace snug::kernels::cuda
