// The producer of prefill_sm90: what work there is, in which order, and the copies that bring it.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/hopper.cuh"

namespace snug::kernels::cuda::sm90 {

// A work item is 128 queries of one head. Two warpgroups take 64 queries each; a third one's first warp
// copies.
constexpr int kQueries = 128, kGroupQueries = 64, kKeys = 128, kThreads = 384;
constexpr int kStages = 2;  // tiles of K, and of V, in shared memory
constexpr int kConsumerWarps = 8;
constexpr int kColumns = 64;  // of a matrix in shared memory with rows of 128 bytes; wider ones are several
constexpr int kKeyMatrix = kKeys * kColumns * 2, kQueryMatrix = kGroupQueries * kColumns * 2;  // bytes

// Tiles of queries are counted from a sequence's end, so that tile r sees ceil(kv_len / kKeys) - r tiles of
// keys whatever the length; only a sequence's first tile has rows that are no query's.
struct Item {
  int head;  // -1: there is no more work
  int sequence;
  int row;          // of the batch, of the tile's first query; negative where the tile starts before row 0
  int skip;         // rows at the tile's start that are no query's
  int position;     // of the tile's first query
  int first, last;  // tiles of keys that some query of the tile sees
  int oldest, end;  // positions that some query of the sequence sees: [oldest, end)
};

struct Barriers {
  std::uint64_t q_full[2], q_empty[2], k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  Item items[2];
};

template <int kHeadDim>
struct Tiles {
  static constexpr int kMatrices = kHeadDim / kColumns;
  static constexpr int kQueryBytes = kQueries * kHeadDim * 2, kKeyBytes = kKeys * kHeadDim * 2;
  // Offsets in shared memory: two tiles of queries (per warpgroup, its matrices), then K, then V.
  static constexpr int kK = 2 * kQueryBytes, kV = kK + kStages * kKeyBytes,
                       kBarriers = kV + kStages * kKeyBytes;
  static constexpr int kBytes = kBarriers + static_cast<int>(sizeof(Barriers)) + 1024;  // to align to 1024
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The address of barrier i.
__device__ __forceinline__ std::uint32_t barrier_of(const std::uint64_t* barriers, unsigned i) {
  return hopper::shared_address(barriers) + i * 8;
}

__device__ __forceinline__ int tiles_of_queries(const AttentionCall& call, int sequence) {
  const int q_len = sequence < call.sequence_count ? __ldg(call.sequences.q_len + sequence) : 0;
  return q_len > 1 ? (q_len + kQueries - 1) / kQueries : 0;
}
__device__ __forceinline__ int tiles_of_keys(const AttentionCall& call, int sequence) {
  return sequence < call.sequence_count ? (__ldg(call.sequences.kv_len + sequence) + kKeys - 1) / kKeys : 0;
}

// How many tiles of queries see at least `keys` tiles of keys.
inline __device__ int tiles_seeing(const AttentionCall& call, int keys) {
  int sum = 0;
  for (int s = static_cast<int>(threadIdx.x % 32); s < call.sequence_count; s += 32) {
    sum += max(0, min(tiles_of_keys(call, s) - keys + 1, tiles_of_queries(call, s)));
  }
  return __reduce_add_sync(0xFFFFFFFFu, sum);
}

// Work item `index` in the order of falling work, over all sequences; the heads of a tile are neighbours and
// so share keys and values in the L2 cache. Called by a whole warp.
inline __device__ Item find_item(const AttentionCall& call, int index) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int rank = index / call.heads;
  Item item;
  item.head = -1;
  int keys = 0;  // tiles of keys that the item sees
  item.sequence = 0;
  if (call.sequence_count == 1) {
    if (rank >= tiles_of_queries(call, 0)) return item;
    keys = tiles_of_keys(call, 0) - rank;
  } else {
    int most = 0;
    for (int s = lane; s < call.sequence_count; s += 32) most = max(most, tiles_of_keys(call, s));
    most = __reduce_max_sync(0xFFFFFFFFu, most);
    if (tiles_seeing(call, 1) <= rank) return item;
    keys = 1;
    for (int above = most + 1; above - keys > 1;) {
      const int middle = (keys + above) / 2;
      if (tiles_seeing(call, middle) > rank) {
        keys = middle;
      } else {
        above = middle;
      }
    }
    rank -= tiles_seeing(call, keys + 1);  // now among the tiles that see just as many, one of a sequence
    for (int base = 0; base < call.sequence_count; base += 32) {
      const int from_end = tiles_of_keys(call, base + lane) - keys;
      const bool has = from_end >= 0 && from_end < tiles_of_queries(call, base + lane);
      const unsigned those = __ballot_sync(0xFFFFFFFFu, has);
      const unsigned hit = __ballot_sync(0xFFFFFFFFu, has && __popc(those & ((1u << lane) - 1)) == rank);
      if (hit != 0) {
        item.sequence = base + __ffs(static_cast<int>(hit)) - 1;
        break;
      }
      rank -= __popc(those);
    }
  }
  const int q_len = __ldg(call.sequences.q_len + item.sequence),
            before = (tiles_of_keys(call, item.sequence) - keys + 1) * kQueries;
  item.end = __ldg(call.sequences.kv_len + item.sequence);
  item.head = index % call.heads;
  item.row = __ldg(call.sequences.q_begin + item.sequence) + q_len - before;
  item.skip = max(0, before - q_len);
  item.position = item.end - before;
  item.last = keys - 1;
  item.oldest = call.window > 0 ? max(0, item.end - q_len - call.window + 1) : 0;
  item.first = call.window > 0 ? max(item.oldest, item.position - call.window + 1) / kKeys : 0;
  return item;
}

// Blocks take items in turn, every other round in opposite order, so that none gets the longest each time.
__device__ __forceinline__ int item_index(int round) {
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  return round * blocks + ((round & 1) != 0 ? blocks - 1 - block : block);
}

template <int kHeadDim>
__device__ void produce(std::uint32_t shared, Barriers& b, const CUtensorMap* q_map, const CUtensorMap* k_map,
                        const CUtensorMap* v_map, const AttentionCall& call) {
  using T = Tiles<kHeadDim>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int page = lane / T::kMatrices, matrix = lane % T::kMatrices;  // of a tile of keys, this lane's box
  const int pages = kKeys / call.block_size;
  const std::uint32_t box = static_cast<std::uint32_t>(matrix * kKeyMatrix + page * call.block_size * 128);
  unsigned tile = 0;  // tiles of keys before
  for (int round = 0;; ++round) {
    const Item item = find_item(call, item_index(round));
    const unsigned buffer = round & 1;
    hopper::barrier_wait(barrier_of(b.q_empty, buffer), ((round >> 1) & 1) ^ 1);
    if (lane == 0) {
      b.items[buffer] = item;
      if (item.head < 0) {
        hopper::barrier_arrive(barrier_of(b.q_full, buffer));
      } else {
        hopper::barrier_arrive_expect(barrier_of(b.q_full, buffer), T::kQueryBytes);
      }
    }
    if (item.head < 0) break;
    __syncwarp();
    if (lane < 2 * T::kMatrices) {
      hopper::copy_box(shared + buffer * T::kQueryBytes + lane * kQueryMatrix, q_map,
                       item.head * kHeadDim + matrix * kColumns, item.row + page * kGroupQueries,
                       barrier_of(b.q_full, buffer));
    }
    const int kv_head = item.head / call.group;
    const std::int32_t* table = call.sequences.page_tables + item.sequence * call.sequences.page_stride;
    // A page that no query sees may be missing from the table: a row outside the array reads as zeros.
    const auto box_row = [&](int n) {
      const int i = n * pages + page;
      const bool seen =
          page < pages && i * call.block_size < item.end && (i + 1) * call.block_size > item.oldest;
      return seen ? (__ldg(table + i) * call.kv_heads + kv_head) * call.block_size : -call.block_size;
    };
    const auto load = [&](const CUtensorMap* map, const std::uint64_t* full, const std::uint64_t* empty,
                          int at, unsigned i, int row) {
      const unsigned stage = i % kStages;
      hopper::barrier_wait(barrier_of(empty, stage), ((i / kStages) & 1) ^ 1);
      if (lane == 0) hopper::barrier_arrive_expect(barrier_of(full, stage), T::kKeyBytes);
      __syncwarp();
      if (page < pages) {
        hopper::copy_box(shared + at + stage * T::kKeyBytes + box, map, matrix * kColumns, row,
                         barrier_of(full, stage));
      }
    };
    int row = box_row(item.last);
    load(k_map, b.k_full, b.k_empty, T::kK, tile, row);
    for (int n = item.last; n > item.first; --n) {
      const int next = box_row(n - 1);
      load(k_map, b.k_full, b.k_empty, T::kK, tile + 1, next);
      load(v_map, b.v_full, b.v_empty, T::kV, tile, row);
      row = next;
      ++tile;
    }
    load(v_map, b.v_full, b.v_empty, T::kV, tile, row);
    ++tile;
  }
}
#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace snug::kernels::cuda::sm90
