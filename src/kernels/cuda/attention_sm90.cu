#include "kernels/cuda/attention_sm90.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/attention_sm90.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"

namespace snug::kernels::cuda {
namespace {
using namespace sm90;  // NOLINT: its other half

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
using namespace hopper;  // NOLINT: instructions

// What one thread of a consumer holds of the softmax: two rows, eight apart.
struct Softmax {
  float largest[2], sum[2];  // of the scores, unscaled; of this thread's weights

  // Turns scores (64, 128) to weights; `shrink` is what earlier weights must be multiplied by.
  __device__ __forceinline__ void update(float (&s)[64], float scale_log2, float (&shrink)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = largest[r];
#pragma unroll
      for (int j = 0; j < 16; ++j) most = fmaxf(most, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
      const float reference = reference_score(most) * scale_log2;
      shrink[r] = power_of_two(largest[r] * scale_log2 - reference);
      largest[r] = most;
      float total[2] = {0, 0};
#pragma unroll
      for (int j = 0; j < 16; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[4 * j + 2 * r + e];
          x = power_of_two(fmaf(x, scale_log2, -reference));
          total[e] += x;
        }
      }
      sum[r] = sum[r] * shrink[r] + (total[0] + total[1]);
    }
  }
};

// Hides from each row what its query does not see: keys after its position, and before the window.
__device__ __forceinline__ void mask_scores(float (&s)[64], int key, int position, int window) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int newest = position + 8 * r - key;
    const int oldest = window > 0 ? newest - window + 1 : -1;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int k = 8 * j + e;
        if (k > newest || k < oldest) s[4 * j + 2 * r + e] = kNothing;
      }
    }
  }
}

__device__ __forceinline__ void pack_weights(std::uint32_t (&packed)[32], const float (&s)[64]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) packed[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

template <int kHeadDim>
__device__ void consume(std::byte* memory, Barriers& b, const AttentionCall& call) {
  using T = Tiles<kHeadDim>;
  const std::uint32_t shared = hopper::shared_address(memory);
  const int thread = static_cast<int>(threadIdx.x % 128), warp = thread / 32, lane = thread % 32;
  const int group = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x / 128) - 1, 0);
  const int my_turn = 1 + group, other_turn = 2 - group, my_group = 3 + group;
  const auto release = [&](std::uint32_t barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  unsigned tile = 0;
  if (group == 1) named_arrive(1, 256);
  for (int round = 0;; ++round) {
    const unsigned buffer = round & 1;
    barrier_wait(barrier_of(b.q_full, buffer), (round >> 1) & 1);
    const Item item = b.items[buffer];
    if (item.head < 0) break;
    const std::uint32_t q_tile = shared + buffer * T::kQueryBytes + group * T::kMatrices * kQueryMatrix;
    const int position = item.position + group * kGroupQueries;  // of the warpgroup's first row
    float s[64], o[kHeadDim / 2];
    std::uint32_t weights[32];
    Softmax softmax = {{kNothing, kNothing}, {0, 0}};
    float shrink[2];
#pragma unroll
    for (float& x : o) x = 0;

    const auto scores = [&](unsigned i) {
      const std::uint64_t q = matrix_descriptor(q_tile, 16);
      const std::uint64_t k = matrix_descriptor(shared + T::kK + (i % kStages) * T::kKeyBytes, 16);
#pragma unroll
      for (int c = 0; c < kHeadDim / 16; ++c) {  // 16 columns are 32 bytes; descriptors count in 16
        multiply_shared(s, q + (c / 4) * (kQueryMatrix / 16) + (c % 4) * 2,
                        k + (c / 4) * (kKeyMatrix / 16) + (c % 4) * 2, c > 0);
      }
      products_commit();
    };
    const auto weigh = [&](unsigned i) {
      const std::uint64_t v = matrix_descriptor(shared + T::kV + (i % kStages) * T::kKeyBytes, kKeyMatrix);
#pragma unroll
      for (int c = 0; c < kKeys / 16; ++c) {
        const std::uint32_t a[4] = {weights[4 * c], weights[4 * c + 1], weights[4 * c + 2],
                                    weights[4 * c + 3]};
        multiply_registers(o, a, v + c * (16 * 128 / 16));
      }
      products_commit();
    };
    const auto mask = [&](int n) {
      const bool late = (n + 1) * kKeys - 1 > position;
      const bool early = call.window > 0 && n * kKeys <= position + kGroupQueries - 1 - call.window;
      if (late || early) {
        mask_scores(s, n * kKeys + 2 * (lane % 4), position + warp * 16 + lane / 4, call.window);
      }
    };
    // Slots of V that no query sees may hold anything, NaN too, which a weight of 0 would not hide. Both
    // warpgroups write the same zeros: neither then has to wait for the other.
    const auto clean = [&](int n, unsigned i) {
      if ((n + 1) * kKeys <= item.end && n * kKeys >= item.oldest) return;
      std::byte* v = memory + T::kV + (i % kStages) * T::kKeyBytes;
      for (int chunk = thread; chunk < T::kKeyBytes / 16; chunk += 128) {
        const int key = n * kKeys + chunk / 8 % kKeys;
        if (key < item.oldest || key >= item.end) reinterpret_cast<uint4*>(v)[chunk] = make_uint4(0, 0, 0, 0);
      }
      fence_async_proxy();
      named_sync(my_group, 128);
    };

    int n = item.last;
    barrier_wait(barrier_of(b.k_full, tile % kStages), (tile / kStages) & 1);
    products_begin();
    scores(tile);
    products_wait<0>();
    keep(s);
    release(barrier_of(b.k_empty, tile % kStages));
    mask(n);
    softmax.update(s, call.scale_log2, shrink);
    pack_weights(weights, s);
    barrier_wait(barrier_of(b.v_full, tile % kStages), (tile / kStages) & 1);
    // The scores of the next tile are computed with the weighted sum of this one, and their softmax runs
    // while the other warpgroup has the tensor cores: the two take turns.
    for (; n > item.first; --n, ++tile) {
      clean(n, tile);
      barrier_wait(barrier_of(b.k_full, (tile + 1) % kStages), ((tile + 1) / kStages) & 1);
      named_sync(my_turn, 256);
      keep(s);
      keep(o);
      products_begin();
      scores(tile + 1);
      weigh(tile);
      named_arrive(other_turn, 256);
      products_wait<1>();
      keep(s);
      release(barrier_of(b.k_empty, (tile + 1) % kStages));
      mask(n - 1);
      softmax.update(s, call.scale_log2, shrink);
      keep(s);
      // Not needed before the next round; but here it keeps the assembler from moving the wait that follows,
      // and with it the end of the overlap, ahead of the softmax.
      barrier_wait(barrier_of(b.v_full, (tile + 1) % kStages), ((tile + 1) / kStages) & 1);
      products_wait<0>();
      keep(o);
      release(barrier_of(b.v_empty, tile % kStages));
      pack_weights(weights, s);
      if (__any_sync(0xFFFFFFFFu, shrink[0] != 1 || shrink[1] != 1)) {  // rare once the largest is found
#pragma unroll
        for (int i = 0; i < kHeadDim / 2; ++i) o[i] *= shrink[i / 2 % 2];
      }
    }
    clean(n, tile);
    keep(o);
    products_begin();
    weigh(tile);
    products_wait<0>();
    keep(o);
    release(barrier_of(b.v_empty, tile % kStages));
    ++tile;

    // The result goes through the tile of queries, which this warpgroup has read for the last time, to be
    // written in whole rows. A warp keeps to its own 16 rows.
    named_sync(my_group, 128);
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = softmax.sum[r];
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
      inverse[r] = sum == 0 ? 0.0f : 1.0f / sum;
    }
    constexpr int kChunks = kHeadDim / 8;
    const std::uint32_t rows = q_tile + warp * 16 * kHeadDim * 2;
    const int store_row = lane % 16;
#pragma unroll
    for (int j = 0; j < kChunks; j += 2) {
      const std::uint32_t to = rows + tile_offset<kHeadDim>(store_row, j + lane / 16);
      const float* x = o + 4 * j;
      store_matrices(to, pack_bf16(x[0] * inverse[0], x[1] * inverse[0]),
                     pack_bf16(x[2] * inverse[1], x[3] * inverse[1]),
                     pack_bf16(x[4] * inverse[0], x[5] * inverse[0]),
                     pack_bf16(x[6] * inverse[1], x[7] * inverse[1]));
    }
    __syncwarp();
    auto* out = static_cast<__nv_bfloat16*>(call.out) + item.head * kHeadDim;
#pragma unroll
    for (int i = lane; i < 16 * kChunks; i += 32) {
      const int row = i / kChunks, chunk = i % kChunks, of_tile = group * kGroupQueries + warp * 16 + row;
      const uint4 x = load_shared(rows + tile_offset<kHeadDim>(row, chunk));
      if (of_tile >= item.skip) {
        const std::int64_t at = static_cast<std::int64_t>(item.row + of_tile) * call.heads * kHeadDim;
        *reinterpret_cast<uint4*>(out + at + chunk * 8) = x;
      }
    }
    fence_async_proxy();
    __syncwarp();
    release(barrier_of(b.q_empty, buffer));
  }
}
#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads, 1)
    attention_sm90(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                   const __grid_constant__ CUtensorMap v_map, const __grid_constant__ AttentionCall call) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using T = Tiles<kHeadDim>;
  extern __shared__ std::byte dynamic[];
  std::byte* memory = dynamic + (1024 - hopper::shared_address(dynamic) % 1024) % 1024;
  Barriers& b = *reinterpret_cast<Barriers*>(memory + T::kBarriers);
  if (threadIdx.x == 0) {
    prefetch_map(&q_map);
    prefetch_map(&k_map);
    prefetch_map(&v_map);
    for (unsigned i = 0; i < 2; ++i) {
      barrier_init(barrier_of(b.q_full, i), 1);
      barrier_init(barrier_of(b.q_empty, i), kConsumerWarps);
    }
    for (unsigned i = 0; i < kStages; ++i) {
      barrier_init(barrier_of(b.k_full, i), 1);
      barrier_init(barrier_of(b.v_full, i), 1);
      barrier_init(barrier_of(b.k_empty, i), kConsumerWarps);
      barrier_init(barrier_of(b.v_empty, i), kConsumerWarps);
    }
    barrier_init_fence();
  }
  __syncthreads();
  allow_next();
  wait_for_previous();
  if (threadIdx.x < 128) {
    give_registers<40>();
    if (threadIdx.x < 32) {
      produce<kHeadDim>(hopper::shared_address(memory), b, &q_map, &k_map, &v_map, call);
    }
  } else {
    take_registers<232>();
    consume<kHeadDim>(memory, b, call);
  }
#endif
}

// The driver's function, found through the runtime so that libcuda is not linked; null in an old driver.
PFN_cuTensorMapEncodeTiled_v12000 map_encoder() {
  static const auto encoder = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                                cudaEnableDefault, &found);
    if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) function = nullptr;
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  return encoder;
}

// A row-major bfloat16 array (rows, columns) and the box that one copy takes of it.
CUtensorMap make_map(const void* data, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                     int box_rows) {
  CUtensorMap map;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t box[2] = {kColumns, static_cast<cuuint32_t>(box_rows)}, steps[2] = {1, 1};
  const CUresult result =
      map_encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(data), sizes, strides, box,
                    steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                    CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw std::runtime_error("attention: the driver refused a tensor map");
  return map;
}

template <int kHeadDim>
void start(const AttentionParams& p, int blocks, const CUtensorMap& q, const CUtensorMap& k,
           const CUtensorMap& v) {
  constexpr int kBytes = Tiles<kHeadDim>::kBytes;
  allow_shared(attention_sm90<kHeadDim>, kBytes);
  launch(p.stream, attention_sm90<kHeadDim>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), kBytes, q,
         k, v, make_call(p));
}

bool is_aligned(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) % 16 == 0;
}

}  // namespace

bool prefill_sm90_supports(const AttentionParams& p) {
  const kv::PagedLayer& kv = p.kv;
  const bool shape = (kv.head_dim == 64 || kv.head_dim == 128) && kv.block_size >= 8 &&
                     kv.block_size <= kKeys && kKeys % kv.block_size == 0 && kv.kv_heads > 0 &&
                     p.heads % kv.kv_heads == 0;
  const bool types = kv.dtype == DType::bf16 && p.q.dtype == DType::bf16 && p.out.dtype == DType::bf16;
  const bool aligned = is_aligned(p.q.data) && is_aligned(p.out.data) && is_aligned(kv.k) &&
                       is_aligned(kv.v) && p.row_stride() % 8 == 0;
  return p.stream.gpu->arch == 90 && shape && types && aligned && p.scale > 0 &&
         p.stream.gpu->shared_bytes_per_block >= Tiles<128>::kBytes && map_encoder() != nullptr;
}

void prefill_sm90(const AttentionParams& p) {
  std::int64_t items = 0, rows = 0;
  for (const kv::SequenceView& s : p.sequences) {
    if (s.q_len > 1) items += std::int64_t{p.heads} * ((s.q_len + kQueries - 1) / kQueries);
    rows = std::max<std::int64_t>(rows, std::int64_t{s.q_begin} + s.q_len);
  }
  if (items == 0) return;
  const kv::PagedLayer& kv = p.kv;
  // Nothing says how many pages there are; no page that a table names lies outside.
  constexpr std::int64_t kAllRows = std::int64_t{1} << 31;
  const CUtensorMap q =
      make_map(p.q.data, rows, std::int64_t{p.heads} * kv.head_dim, p.row_stride(), kGroupQueries);
  const CUtensorMap k = make_map(kv.k, kAllRows, kv.head_dim, kv.head_dim, kv.block_size);
  const CUtensorMap v = make_map(kv.v, kAllRows, kv.head_dim, kv.head_dim, kv.block_size);
  const int blocks = static_cast<int>(std::min<std::int64_t>(items, p.stream.gpu->multiprocessors));
  if (kv.head_dim == 128) {
    start<128>(p, blocks, q, k, v);
  } else {
    start<64>(p, blocks, q, k, v);
  }
}

}  // namespace snug::kernels::cuda
