// Attention of single query tokens: the context is cut into splits that many blocks read at once
// ("Flash-Decoding for long-context inference", Dao, Haziza, Massa, Sizov 2023), and the query heads of one
// KV head share each read of K and V as the columns of one matrix product, as in "GQA" (Ainslie et al. 2023).
//
// The kernel is bound by reading K and V. Each warp streams tiles of 16 keys through its own ring of shared
// memory and needs no other warp until a split ends; the ring runs on into the block's next split.
#include <algorithm>

#include "kernels/cuda/attention_combine.cuh"
#include "kernels/cuda/attention_parts.h"

namespace snug::kernels::cuda {
namespace {

constexpr int kColumns = 8;            // query heads of one product: the n of m16n8k16
constexpr int kSequencesAtOnce = 128;  // of one launch
// Tokens of a split, at least. One multiprocessor reads them in about as long as it takes to hand a result to
// another; cut finer, a batch that fills the GPU anyway waits for its splits.
constexpr int kSplit = 1024;

template <int kHeadDim, int kWarps>
struct Layout {
  static constexpr int kHalfTile = kTileKeys * kHeadDim * 2;       // bytes of K or of V
  static constexpr int kTile = 2 * kHalfTile;                      // K, then V
  static constexpr int kMerge = kWarps * kColumns * kHeadDim * 4;  // bytes: the warps' sums
  // The warps' largest scores and sums, for two units in turn: a warp may begin the next one's while others
  // still read the last one's.
  static constexpr int kUnitStats = 2 * kWarps * kColumns;  // floats
  static constexpr int kStats = 2 * kUnitStats * 4;         // bytes
  static constexpr int shared_bytes(int stages) { return kWarps * stages * kTile + kMerge + kStats; }
};

// One split of one sequence for up to kColumns heads of a KV head.
struct Unit {
  int sequence = 0, kv_head = 0, head = 0, columns = 0;  // head: the first one
  int split = 0, splits = 0;
  int visible = 0;         // the first position to count
  int begin = 0, end = 0;  // positions of the split
  int tiles = 0;
  int q_begin = 0;
};

// The work of all sequences, in the registers of every warp: that costs less than launching blocks for the
// longest possible context, and no warp waits for another. Lane l has sequences l, l + 32, ...
class Work {
 public:
  __device__ __forceinline__ Work(const AttentionCall& call, int lane) : call_(call) {
    int q_len[kParts];
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int sequence = 32 * i + lane;
      const bool real = sequence < call.sequence_count;
      q_len[i] = real ? call.sequences.q_len[sequence] : 0;
      kv_len_[i] = real ? call.sequences.kv_len[sequence] : 0;
      q_begin_[i] = real ? call.sequences.q_begin[sequence] : 0;
    }
    total_ = 0;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      end_[i] = q_len[i] == 1 ? units_of(kv_len_[i]) : 0;
      if (32 * i < call.sequence_count) {
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
          const int before = __shfl_up_sync(~0u, end_[i], step);
          if (lane >= step) end_[i] += before;
        }
      }
      end_[i] += total_;
      total_ = __shfl_sync(~0u, end_[i], 31);
    }
  }

  __device__ __forceinline__ int total() const {
    return total_;
  }

  __device__ __forceinline__ Unit unit(int index) const {
    Unit unit;
#pragma unroll
    for (int i = 0; i < kParts; ++i) unit.sequence += __popc(__ballot_sync(~0u, end_[i] <= index));
    const int kv_len = of(kv_len_, unit.sequence);
    unit.q_begin = of(q_begin_, unit.sequence);
    const ContextCut cut = cut_context(kv_len, call_.window, call_.max_splits, kSplit);
    const int rest = index - (of(end_, unit.sequence) - units_of(kv_len));
    const int column = rest / cut.count;  // of (KV heads, chunks of kColumns heads)
    unit.split = rest - column * cut.count;
    unit.splits = cut.count;
    unit.kv_head = column / chunks();
    const int first = (column - unit.kv_head * chunks()) * kColumns;
    unit.head = unit.kv_head * call_.group + first;
    unit.columns = min(kColumns, call_.group - first);
    unit.visible = cut.visible;
    unit.begin = cut.first + unit.split * cut.length;
    unit.end = min(unit.begin + cut.length, kv_len);
    unit.tiles = (unit.end - unit.begin + kTileKeys - 1) / kTileKeys;
    return unit;
  }

 private:
  static constexpr int kParts = kSequencesAtOnce / 32;

  __device__ __forceinline__ int chunks() const {
    return (call_.group + kColumns - 1) / kColumns;
  }
  __device__ __forceinline__ int units_of(int kv_len) const {
    return cut_context(kv_len, call_.window, call_.max_splits, kSplit).count * call_.kv_heads * chunks();
  }
  __device__ __forceinline__ int of(const int (&values)[kParts], int sequence) const {
    int value = 0;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int candidate = __shfl_sync(~0u, values[i], sequence % 32);
      if (sequence / 32 == i) value = candidate;
    }
    return value;
  }

  const AttentionCall& call_;
  int end_[kParts], kv_len_[kParts], q_begin_[kParts];  // end_: units up to and with the sequence's
  int total_;
};

// Walks one warp's tiles over all of the block's units and starts their copies.
template <int kHeadDim, int kWarps>
struct TileReader {
  const AttentionCall& call;
  const Work& work;
  int index, warp, lane;
  Unit unit;
  int tile = 0;
  int page = 0;  // this lane's: of the tile kWarps * lane further than the last look-up's

  __device__ __forceinline__ TileReader(const AttentionCall& the_call, const Work& the_work, int the_warp,
                                        int the_lane)
      : call(the_call), work(the_work), index(blockIdx.x), warp(the_warp), lane(the_lane) {
    enter();
  }

  // Goes to the first unit from `index` on where this warp has a tile.
  __device__ __forceinline__ void enter() {
    for (; index < work.total(); index += gridDim.x) {
      unit = work.unit(index);
      tile = warp;
      if (tile < unit.tiles) {
        look_up();
        return;
      }
    }
  }

  // The pages of the next 32 tiles of this warp.
  __device__ __forceinline__ void look_up() {
    const int position = unit.begin + (tile + kWarps * lane) * kTileKeys;
    if (position < unit.end) {
      page = __ldg(call.sequences.page_tables + unit.sequence * call.sequences.page_stride +
                   page_of(call, position));
    }
  }

  __device__ __forceinline__ void start(std::uint32_t to) {
    if (index < work.total()) {
      constexpr int kChunks = kHeadDim / 8, kRowsAtOnce = 32 / kChunks;
      const int step = tile / kWarps;
      const std::int64_t block = __shfl_sync(~0u, page, step % 32);
      const int position = unit.begin + tile * kTileKeys;
      const std::int64_t row = (block * call.kv_heads + unit.kv_head) * call.block_size + position -
                               page_of(call, position) * call.block_size;
      const int chunk = lane % kChunks, own_row = lane / kChunks;
      const std::int64_t element = row * kHeadDim + own_row * kHeadDim + chunk * 8;
      const auto* k = static_cast<const __nv_bfloat16*>(call.k) + element;
      const auto* v = static_cast<const __nv_bfloat16*>(call.v) + element;
#pragma unroll
      for (int i = 0; i < kTileKeys / kRowsAtOnce; ++i) {
        const int at = own_row + i * kRowsAtOnce;
        // Slots outside hold anything, NaN too: in V even a weight of zero would not take it away.
        const bool valid = position + at >= unit.visible && position + at < unit.end;
        copy_async(to + tile_offset<kHeadDim>(at, chunk), k + i * kRowsAtOnce * kHeadDim, valid);
      }
#pragma unroll
      for (int i = 0; i < kTileKeys / kRowsAtOnce; ++i) {
        const int at = own_row + i * kRowsAtOnce;
        const bool valid = position + at >= unit.visible && position + at < unit.end;
        copy_async(to + kTileKeys * kHeadDim * 2 + tile_offset<kHeadDim>(at, chunk),
                   v + i * kRowsAtOnce * kHeadDim, valid);
      }
      tile += kWarps;
      if (tile >= unit.tiles) {
        index += gridDim.x;
        enter();
      } else if ((step + 1) % 32 == 0) {
        look_up();
      }
    }
    copy_commit();  // also where nothing is left: the waits count groups
  }
};

// What a warp has of a split so far. Lane (g, t) = (lane / 4, lane % 4) holds heads 2t and 2t + 1.
template <int kHeadDim>
struct Running {
  float largest[2] = {kNothing, kNothing};
  float sum[2] = {0, 0};                // over this lane's keys g and g + 8
  float values[kHeadDim / 16][4] = {};  // (d, head): 16i + g, then + 8, of both heads each
};

// Scores of 16 keys as K times Q transposed, then the values as V transposed times the weights: in both
// products the heads are the columns, so a head's rescaling needs no exchange between lanes.
template <int kHeadDim>
__device__ __forceinline__ void attend_tile(Running<kHeadDim>& running, std::uint32_t tile,
                                            const std::uint32_t (&q)[kHeadDim / 16][2], int position,
                                            const Unit& unit, float scale_log2, int lane) {
  const int g = lane / 4;
  // Two chains of products, for half the latency.
  float scores[4] = {}, odd_scores[4] = {};
  const int key = lane % 16;
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; i += 2) {
    std::uint32_t a[4], b[4];
    load_matrices(a, tile + tile_offset<kHeadDim>(key, 2 * i + lane / 16));
    load_matrices(b, tile + tile_offset<kHeadDim>(key, 2 * i + 2 + lane / 16));
    multiply_add(scores, a, q[i][0], q[i][1]);
    multiply_add(odd_scores, b, q[i + 1][0], q[i + 1][1]);
  }
  const bool counts[2] = {position + g >= unit.visible && position + g < unit.end,
                          position + g + 8 >= unit.visible && position + g + 8 < unit.end};
  float factor[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    float& low = scores[j];
    float& high = scores[j + 2];
    low = counts[0] ? (low + odd_scores[j]) * scale_log2 : kNothing;
    high = counts[1] ? (high + odd_scores[j + 2]) * scale_log2 : kNothing;
    float largest = fmaxf(low, high);
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 4));
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 8));
    largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 16));
    largest = fmaxf(largest, running.largest[j]);
    const float reference = reference_score(largest);
    factor[j] = power_of_two(running.largest[j] - reference);
    running.largest[j] = largest;
    low = power_of_two(low - reference);
    high = power_of_two(high - reference);
    running.sum[j] = running.sum[j] * factor[j] + (low + high);
  }
  const std::uint32_t weights[2] = {transposed(pack_bf16(scores[0], scores[1])),
                                    transposed(pack_bf16(scores[2], scores[3]))};
  const int value_key = lane % 8 + lane / 16 * 8, value_chunk = lane / 8 % 2;
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; ++i) {
    std::uint32_t a[4];
    load_matrices_transposed(
        a, tile + kTileKeys * kHeadDim * 2 + tile_offset<kHeadDim>(value_key, 2 * i + value_chunk));
#pragma unroll
    for (int j = 0; j < 4; ++j) running.values[i][j] *= factor[j % 2];
    multiply_add(running.values[i], a, weights[0], weights[1]);
  }
}

// Where a warp's sum of (head, d) lies while the warps' sums are merged; exchanged to spread over the banks.
template <int kHeadDim>
__device__ __forceinline__ int merge_index(int warp, int head, int d) {
  return (warp * kColumns + head) * kHeadDim + (d ^ (head / 2 * 8));
}

// Adds up the warps' results of a unit, in the order of the warps, and writes it: the output itself where the
// context is one split. The block that ends a context's last split adds its splits up.
template <int kHeadDim, int kWarps>
__device__ __forceinline__ void finish_unit(Running<kHeadDim>& running, const AttentionCall& call,
                                            const Unit& unit, float* merge, float* stats, int warp,
                                            int lane) {
  const int g = lane / 4, t = lane % 4;
  float* largest = stats;                   // (warps, columns)
  float* sums = stats + kWarps * kColumns;  // (warps, columns)
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    float sum = running.sum[j];
    sum += __shfl_xor_sync(~0u, sum, 4);
    sum += __shfl_xor_sync(~0u, sum, 8);
    sum += __shfl_xor_sync(~0u, sum, 16);
    if (g == 0) {
      largest[warp * kColumns + 2 * t + j] = running.largest[j];
      sums[warp * kColumns + 2 * t + j] = sum;
    }
  }
  __syncthreads();
  const auto largest_of = [largest](int head) {
    float x = largest[head];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) x = fmaxf(x, largest[w * kColumns + head]);
    return x;
  };
  const float factor[2] = {power_of_two(running.largest[0] - reference_score(largest_of(2 * t))),
                           power_of_two(running.largest[1] - reference_score(largest_of(2 * t + 1)))};
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      merge[merge_index<kHeadDim>(warp, 2 * t + j % 2, 16 * i + g + j / 2 * 8)] =
          running.values[i][j] * factor[j % 2];
    }
  }
  __syncthreads();
  const int d = threadIdx.x % kHeadDim;
  for (int head = threadIdx.x / kHeadDim; head < unit.columns; head += 32 * kWarps / kHeadDim) {
    const float top = largest_of(head), reference = reference_score(top);
    float value = 0, sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      value += merge[merge_index<kHeadDim>(w, head, d)];
      sum += sums[w * kColumns + head] * power_of_two(largest[w * kColumns + head] - reference);
    }
    if (unit.splits == 1) {
      const std::int64_t row = unit.q_begin;
      static_cast<__nv_bfloat16*>(call.out)[(row * call.heads + unit.head + head) * kHeadDim + d] =
          __float2bfloat16(value / sum);
    } else {
      const std::int64_t at =
          (static_cast<std::int64_t>(unit.sequence) * call.heads + unit.head + head) * call.max_splits +
          unit.split;
      call.split_sums[at * kHeadDim + d] = value;
      if (d == 0) call.split_stats[at] = {top, sum};
    }
  }
  if (unit.splits == 1) return;
  const std::int64_t first = static_cast<std::int64_t>(unit.sequence) * call.heads + unit.head;
  if (!arrives_last(call.arrivals + first, unit.splits)) return;
  for (int head = warp; head < unit.columns; head += kWarps) {
    const std::int64_t row = unit.q_begin * static_cast<std::int64_t>(call.heads) + unit.head + head;
    const std::int64_t at = (first + head) * call.max_splits;
    combine_splits<__nv_bfloat16, kHeadDim / 32>(
        call.split_stats + at, call.split_sums + at * call.head_dim, unit.splits, call.head_dim,
        static_cast<__nv_bfloat16*>(call.out) + row * kHeadDim, lane);
  }
}

// Q transposed as the right operand: column g is a head.
template <int kHeadDim>
__device__ __forceinline__ void load_q(std::uint32_t (&q)[kHeadDim / 16][2], const AttentionCall& call,
                                       const Unit& unit, int lane) {
  const auto* own = static_cast<const __nv_bfloat16*>(call.q) + unit.q_begin * call.q_stride +
                    (unit.head + lane / 4) * kHeadDim + lane % 4 * 2;
  const bool used = lane / 4 < unit.columns;
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; ++i) {
    q[i][0] = used ? *reinterpret_cast<const std::uint32_t*>(own + 16 * i) : 0;
    q[i][1] = used ? *reinterpret_cast<const std::uint32_t*>(own + 16 * i + 8) : 0;
  }
}

template <int kHeadDim, int kWarps, int kStages>
__global__ __launch_bounds__(32 * kWarps) void decode_kernel(const __grid_constant__ AttentionCall call) {
  extern __shared__ __align__(128) unsigned char shared[];
  using L = Layout<kHeadDim, kWarps>;
  auto* merge = reinterpret_cast<float*>(shared + kWarps * kStages * L::kTile);
  float* const first_stats = merge + L::kMerge / 4;
  float* stats = first_stats;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  allow_next();
  wait_for_previous();
  const Work work(call, lane);
  if (static_cast<int>(blockIdx.x) >= work.total()) return;

  const std::uint32_t ring = shared_address(shared) + warp * kStages * L::kTile;
  TileReader<kHeadDim, kWarps> reader(call, work, warp, lane);
  Unit unit = work.unit(blockIdx.x);
  std::uint32_t q[kHeadDim / 16][2];
  load_q<kHeadDim>(q, call, unit, lane);
#pragma unroll
  for (int i = 0; i < kStages; ++i) reader.start(ring + i * L::kTile);
  int stage = 0;
  for (int index = blockIdx.x; index < work.total();) {
    Running<kHeadDim> running;
    for (int tile = warp; tile < unit.tiles; tile += kWarps) {
      copy_wait<kStages - 1>();
      __syncwarp();
      const std::uint32_t at = ring + stage * L::kTile;
      attend_tile<kHeadDim>(running, at, q, unit.begin + tile * kTileKeys, unit, call.scale_log2, lane);
      __syncwarp();
      reader.start(at);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    // The next unit's queries are on their way while this one is finished.
    const Unit done = unit;
    index += gridDim.x;
    if (index < work.total()) {
      unit = work.unit(index);
      load_q<kHeadDim>(q, call, unit, lane);
    }
    finish_unit<kHeadDim, kWarps>(running, call, done, merge, stats, warp, lane);
    stats = stats == first_stats ? first_stats + L::kUnitStats : first_stats;
  }
}

template <int kHeadDim, int kWarps, int kStages>
void launch_decode(const AttentionParams& p, const AttentionCall& call) {
  constexpr int kShared = Layout<kHeadDim, kWarps>::shared_bytes(kStages);
  const auto kernel = decode_kernel<kHeadDim, kWarps, kStages>;
  allow_shared(kernel, kShared);
  const int chunks = (call.group + kColumns - 1) / kColumns;
  for (int first = 0; first < call.sequence_count; first += kSequencesAtOnce) {
    AttentionCall part = call;
    part.sequence_count = std::min(kSequencesAtOnce, call.sequence_count - first);
    part.sequences.page_tables += first * call.sequences.page_stride;
    part.sequences.q_begin += first;
    part.sequences.q_len += first;
    part.sequences.kv_len += first;
    const std::int64_t heads_before = static_cast<std::int64_t>(first) * call.heads * call.max_splits;
    part.arrivals += static_cast<std::int64_t>(first) * call.heads;
    part.split_stats += heads_before;
    part.split_sums += heads_before * kHeadDim;
    const std::int64_t units =
        static_cast<std::int64_t>(part.sequence_count) * call.kv_heads * chunks * call.max_splits;
    const auto blocks = std::min<std::int64_t>(units, (8 / kWarps) * p.stream.gpu->multiprocessors);
    launch(p.stream, kernel, dim3(static_cast<unsigned>(blocks)), 32 * kWarps, kShared, part);
  }
}

}  // namespace

void decode_bf16(const AttentionParams& p, const AttentionCall& call) {
  const auto room = p.stream.gpu->shared_bytes_per_block;
  if (call.head_dim == 64) {
    if (room >= Layout<64, 8>::shared_bytes(4)) {
      launch_decode<64, 8, 4>(p, call);
    } else {
      launch_decode<64, 4, 4>(p, call);
    }
  } else if (room >= Layout<128, 8>::shared_bytes(3)) {
    launch_decode<128, 8, 3>(p, call);
  } else {
    launch_decode<128, 4, 2>(p, call);
  }
}

}  // namespace snug::kernels::cuda
