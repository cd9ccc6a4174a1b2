// Causal attention of prompt chunks on tensor cores: tiles with an online softmax, the scores never leaving
// the registers ("FlashAttention-2", Dao 2023). The query heads of one KV head are rows of the same tile (row
// = token * group + head of the group), so short chunks fill tiles too. Hopper has its own kernel for the
// shapes it knows; this one serves the rest and every other GPU.
#include <algorithm>

#include "kernels/cuda/attention_parts.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRows = 16 * kWarps;  // of a tile of queries
constexpr int kKeys = 64;           // of a tile of keys; tiles start at multiples of it, whatever the chunk

template <int kHeadDim>
constexpr int kTileBytes = kKeys* kHeadDim * 2;  // of K or of V

// What one block works on. Positions count from the start of the sequence.
struct QueryTile {
  int q_len = 0, kv_len = 0, first_row = 0;
  int oldest = 0, newest = 0;  // positions of the first and the last token of the tile
  int visible = 0;             // the first position that any row sees
};

// Starts the copies of keys and values [first, first + kKeys), the values behind the keys; slots that no row
// sees become zeros, for what lies in them may be NaN.
template <int kHeadDim>
__device__ __forceinline__ void start_tiles(std::uint32_t to, const AttentionCall& call,
                                            const std::int32_t* page_table, int kv_head, int first,
                                            const QueryTile& tile) {
  constexpr int kChunks = kHeadDim / 8, kRowsAtOnce = kThreads / kChunks;
  const int chunk = threadIdx.x % kChunks;
  const auto* keys = static_cast<const __nv_bfloat16*>(call.k) + chunk * 8;
  const auto* values = static_cast<const __nv_bfloat16*>(call.v) + chunk * 8;
#pragma unroll
  for (int i = 0; i < kKeys / kRowsAtOnce; ++i) {
    const int row = threadIdx.x / kChunks + i * kRowsAtOnce, position = first + row;
    const bool valid = position >= tile.visible && position <= tile.newest;
    const int page = page_of(call, position);
    const std::int64_t block = valid ? __ldg(page_table + page) : 0;
    const std::int64_t slot =
        (block * call.kv_heads + kv_head) * call.block_size + (position - page * call.block_size);
    const std::uint32_t at = to + tile_offset<kHeadDim>(row, chunk);
    copy_async(at, keys + slot * kHeadDim, valid);
    copy_async(at + kTileBytes<kHeadDim>, values + slot * kHeadDim, valid);
  }
  copy_commit();
}

// A row's place in the batch; lanes hold rows g and g + 8 of their warp's sixteen.
struct Row {
  bool used = false;
  int position = 0;
  std::int64_t token = 0;
  int head = 0;
};

template <int kHeadDim>
__global__ __launch_bounds__(kThreads) void prefill_kernel(const __grid_constant__ AttentionCall call) {
  extern __shared__ __align__(128) unsigned char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int sequence = blockIdx.z, kv_head = blockIdx.y;
  allow_next();
  wait_for_previous();
  QueryTile tile;
  tile.q_len = call.sequences.q_len[sequence];
  tile.kv_len = call.sequences.kv_len[sequence];
  // Late tiles see the most keys: they go first.
  tile.first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  if (tile.q_len <= 1 || tile.first_row >= tile.q_len * call.group) return;
  const int before = tile.kv_len - tile.q_len;
  tile.oldest = before + tile.first_row / call.group;
  tile.newest = before + min(tile.q_len - 1, (tile.first_row + kRows - 1) / call.group);
  tile.visible = call.window > 0 ? max(0, tile.oldest - call.window + 1) : 0;
  const std::int32_t* page_table = call.sequences.page_tables + sequence * call.sequences.page_stride;

  // Two stages of K and V each.
  const std::uint32_t base = shared_address(shared);
  const auto start = [&](int stage, int first) {
    start_tiles<kHeadDim>(base + stage * 2 * kTileBytes<kHeadDim>, call, page_table, kv_head, first, tile);
  };
  int first = tile.visible / kKeys * kKeys;
  start(0, first);

  Row rows[2];
  std::uint32_t q[kHeadDim / 16][4];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int index = tile.first_row + warp * 16 + g + 8 * r, i = index / call.group;
    rows[r].used = i < tile.q_len;
    rows[r].position = before + i;
    rows[r].token = call.sequences.q_begin[sequence] + i;
    rows[r].head = kv_head * call.group + index - i * call.group;
    const auto* own = static_cast<const __nv_bfloat16*>(call.q) + rows[r].token * call.q_stride +
                      static_cast<std::int64_t>(rows[r].head) * kHeadDim + 2 * t;
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; ++d) {
      q[d][r] = rows[r].used ? *reinterpret_cast<const std::uint32_t*>(own + 16 * d) : 0;
      q[d][r + 2] = rows[r].used ? *reinterpret_cast<const std::uint32_t*>(own + 16 * d + 8) : 0;
    }
  }
  float out[kHeadDim / 8][4] = {};
  float largest[2] = {kNothing, kNothing}, sum[2] = {0, 0};

  int stage = 0;
  for (; first <= tile.newest; first += kKeys, stage ^= 1) {
    copy_wait<0>();
    __syncthreads();  // the tile is there, and every warp is done with the other stage
    if (first + kKeys <= tile.newest) start(stage ^ 1, first + kKeys);
    const std::uint32_t k = base + stage * 2 * kTileBytes<kHeadDim>, v = k + kTileBytes<kHeadDim>;

    float scores[kKeys / 8][4] = {};
#pragma unroll
    for (int d = 0; d < kHeadDim / 16; ++d) {
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        std::uint32_t b[4];
        load_matrices(b, k + tile_offset<kHeadDim>(16 * n + lane % 8 + lane / 16 * 8, 2 * d + lane / 8 % 2));
        multiply_add(scores[2 * n], q[d], b[0], b[1]);
        multiply_add(scores[2 * n + 1], q[d], b[2], b[3]);
      }
    }
    const bool partly_seen =
        first + kKeys - 1 > tile.oldest || (call.window > 0 && first <= tile.newest - call.window);
    if (partly_seen) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int position = first + 8 * n + 2 * t + j % 2, own = rows[j / 2].position;
          const bool seen = position <= own && (call.window == 0 || position > own - call.window);
          if (!seen) scores[n][j] = kNothing;
        }
      }
    }
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = largest[r];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) top = fmaxf(top, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      const float reference = reference_score(top) * call.scale_log2;
      factor[r] = power_of_two(largest[r] * call.scale_log2 - reference);
      largest[r] = top;
      float part = 0;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int j = 2 * r; j < 2 * r + 2; ++j) {
          scores[n][j] = power_of_two(fmaf(scores[n][j], call.scale_log2, -reference));
          part += scores[n][j];
        }
      }
      sum[r] = sum[r] * factor[r] + part;
    }
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) out[n][j] *= factor[j / 2];
    }
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      const std::uint32_t a[4] = {pack_bf16(scores[2 * n][0], scores[2 * n][1]),
                                  pack_bf16(scores[2 * n][2], scores[2 * n][3]),
                                  pack_bf16(scores[2 * n + 1][0], scores[2 * n + 1][1]),
                                  pack_bf16(scores[2 * n + 1][2], scores[2 * n + 1][3])};
#pragma unroll
      for (int d = 0; d < kHeadDim / 16; ++d) {
        std::uint32_t b[4];
        load_matrices_transposed(b, v + tile_offset<kHeadDim>(16 * n + lane % 16, 2 * d + lane / 16));
        multiply_add(out[2 * d], a, b[0], b[1]);
        multiply_add(out[2 * d + 1], a, b[2], b[3]);
      }
    }
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
    sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
    if (!rows[r].used) continue;
    auto* to = static_cast<__nv_bfloat16*>(call.out) +
               (rows[r].token * call.heads + rows[r].head) * kHeadDim + 2 * t;
    const float factor = 1.0f / sum[r];
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
      *reinterpret_cast<std::uint32_t*>(to + 8 * n) =
          pack_bf16(out[n][2 * r] * factor, out[n][2 * r + 1] * factor);
    }
  }
}

template <int kHeadDim>
void launch_prefill(const AttentionParams& p, const AttentionCall& call, int tiles) {
  constexpr int kShared = 4 * kTileBytes<kHeadDim>;
  allow_shared(prefill_kernel<kHeadDim>, kShared);
  launch(p.stream, prefill_kernel<kHeadDim>,
         dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(call.kv_heads),
              static_cast<unsigned>(call.sequence_count)),
         kThreads, kShared, call);
}

}  // namespace

void prefill_bf16(const AttentionParams& p, const AttentionCall& call) {
  int rows = 0;
  for (const kv::SequenceView& s : p.sequences) rows = std::max(rows, s.q_len > 1 ? s.q_len * call.group : 0);
  const int tiles = (rows + kRows - 1) / kRows;
  if (call.head_dim == 64) {
    launch_prefill<64>(p, call, tiles);
  } else {
    launch_prefill<128>(p, call, tiles);
  }
}

}  // namespace snug::kernels::cuda
