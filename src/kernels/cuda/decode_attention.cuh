// Attention of the decode kernel: one query token, its context cut into splits that blocks take ("Flash-
// Decoding", Dao et al. 2023); the query heads of a KV head are the columns of one product ("GQA", Ainslie et
// al. 2023). A block also rotates the queries it needs (Su et al. 2021), and the one that has the context's
// end stores the new key and value. Splits are added up by all readers of the result, or where they are many
// by the block that ends last of a KV head.
//
// A warp takes 16 keys at a time, straight into registers. Scores are keys by heads, sums are dimensions by
// heads, so both keep a head in the same lanes; V and the weights turn about their diagonals in registers.
#pragma once

#include "kernels/cuda/attention_combine.cuh"
#include "kernels/cuda/decode_product.cuh"

namespace snug::kernels::cuda {

inline constexpr int kAttendWarps = 8;                         // that take keys
inline constexpr int kAttendHeads = 8;                         // query heads of a KV head, at most
inline constexpr int kAttendSplit = kAttendWarps * kTileKeys;  // tokens; splits are multiples of it
static_assert(kAttendSplit == kSplitStep);
inline constexpr int kAttendSplits = 66;  // at most
// Up to so many splits, whoever reads the sum adds them up; more would be too much to read for every block.
inline constexpr int kReaderSplits = 8;

template <int kHeadDim>
struct AttendShared {
  static constexpr int kRow = kHeadDim + 32;  // so that two rows' chunks lie in different banks
  alignas(16) __nv_bfloat16 q[kAttendHeads][kRow];
  float sums[kAttendWarps][kAttendHeads][kHeadDim];
  float largest[kAttendWarps][kAttendHeads], totals[kAttendWarps][kAttendHeads];
};

// The context in splits of at least one tile for each warp.
__device__ __forceinline__ ContextCut cut_of(const DecodeArgs& a, const DecodeLayerArgs& layer, int kv_len) {
  return cut_context(kv_len, layer.window, a.max_splits, kAttendSplit);
}

// The row of the cache where a position of a KV head is.
__device__ __forceinline__ std::int64_t cache_row(const DecodeArgs& a, int kv_head, int position) {
  const int page = position / a.block_size;
  const std::int64_t block = __ldg(a.page_table + page);
  return (block * a.kv_heads + kv_head) * a.block_size + position - page * a.block_size;
}

// Brings the beginning of this block's context into L2, while there is something else to do.
template <int kHeadDim>
__device__ __forceinline__ void prefetch_context(const DecodeArgs& a, const DecodeLayerArgs& layer,
                                                 int kv_len) {
  constexpr int kTiles = 4, kLines = kTileKeys * kHeadDim * 2 / 128;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const ContextCut cut = cut_of(a, layer, kv_len);
  const int kv_head = static_cast<int>(blockIdx.x) / cut.count;
  if (warp >= kAttendWarps || kv_head >= a.kv_heads || lane >= kLines) return;
  const int begin = cut.first + static_cast<int>(blockIdx.x) % cut.count * cut.length;
  const int end = min(begin + cut.length, kv_len);
  for (int i = 0; i < kTiles; ++i) {
    const int position = begin + (warp + i * kAttendWarps) * kTileKeys;
    if (position >= end) break;
    const std::int64_t at = cache_row(a, kv_head, position) * kHeadDim + lane * 64;
    prefetch_l2(layer.k + at);
    prefetch_l2(layer.v + at);
  }
}

// The new token's column pair of a head: parts and bias added, rotated where it is q or k.
struct HeadPair {
  float low, high;
};
template <int kHeadDim>
__device__ __forceinline__ HeadPair head_pair(const DecodeArgs& a, const DecodeLayerArgs& layer, int head,
                                              int pair, bool rotates) {
  const int at = head * kHeadDim + pair, half = kHeadDim / 2;
  const int stride = (a.heads + 2 * a.kv_heads) * kHeadDim;
  float x = __ldcg(a.qkv_parts + at) + __ldcg(a.qkv_parts + stride + at);
  float y = __ldcg(a.qkv_parts + at + half) + __ldcg(a.qkv_parts + stride + at + half);
  if (layer.qkv_bias != nullptr) x += layer.qkv_bias[at], y += layer.qkv_bias[at + half];
  if (!rotates) return {x, y};
  const float c = a.cos_sin[pair], s = a.cos_sin[half + pair];
  return {x * c - y * s, y * c + x * s};
}

// What a warp has found so far of heads 2t and 2t + 1: the largest score, this lane's share of the sum of
// weights, and the weighted sums of V: of each 32 dimensions (u) four groups (j) of rows.
template <int kHeadDim>
struct AttendSums {
  float largest[2] = {kNothing, kNothing}, total[2] = {0, 0};
  float v[kHeadDim / 32][2][4] = {};
};

// 16 keys, of which those in [begin, end) count.
template <int kHeadDim>
__device__ __forceinline__ void attend_tile(const DecodeArgs& a, const DecodeLayerArgs& layer,
                                            const AttendShared<kHeadDim>& shared, int kv_head, int position,
                                            int begin, int end, int lane, AttendSums<kHeadDim>& sums) {
  constexpr int kParts = kHeadDim / 32;
  const int g = lane / 4, t = lane % 4;
  const std::int64_t row = cache_row(a, kv_head, position) + g;
  const bool low_counts = position + g >= begin && position + g < end;
  const bool high_counts = position + g + 8 >= begin && position + g + 8 < end;
  const auto load = [&](const __nv_bfloat16* base, int part, bool high) {
    // What does not count may be NaN, which a weight of zero would not take away.
    if (high ? !high_counts : !low_counts) return uint4{0, 0, 0, 0};
    return *reinterpret_cast<const uint4*>(base + (row + (high ? 8 : 0)) * kHeadDim + part * 32 + t * 8);
  };
  uint4 k[kParts][2], v[kParts][2];
#pragma unroll
  for (int u = 0; u < kParts; ++u) k[u][0] = load(layer.k, u, false), k[u][1] = load(layer.k, u, true);
#pragma unroll
  for (int u = 0; u < kParts; ++u) v[u][0] = load(layer.v, u, false), v[u][1] = load(layer.v, u, true);

  float scores[4] = {0, 0, 0, 0};
#pragma unroll
  for (int u = 0; u < kParts; ++u) {
    const uint4 q = *reinterpret_cast<const uint4*>(&shared.q[g][u * 32 + t * 8]);
    mma_bf16(scores, k[u][0].x, k[u][1].x, k[u][0].y, k[u][1].y, q.x, q.y);
    mma_bf16(scores, k[u][0].z, k[u][1].z, k[u][0].w, k[u][1].w, q.z, q.w);
  }
  float factor[2], weights[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    scores[i] = (i < 2 ? low_counts : high_counts) ? scores[i] * a.scale_log2 : kNothing;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float top = fmaxf(scores[i], scores[i + 2]);
#pragma unroll
    for (int step = 4; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    top = fmaxf(top, sums.largest[i]);
    factor[i] = power_of_two(sums.largest[i] - reference_score(top));
    weights[i] = power_of_two(scores[i] - reference_score(top));
    weights[i + 2] = power_of_two(scores[i + 2] - reference_score(top));
    sums.largest[i] = top;
    sums.total[i] = sums.total[i] * factor[i] + weights[i] + weights[i + 2];
  }
  const std::uint32_t p0 = transposed(pack_bf16(weights[0], weights[1]));
  const std::uint32_t p1 = transposed(pack_bf16(weights[2], weights[3]));
#pragma unroll
  for (int u = 0; u < kParts; ++u) {
    const std::uint32_t low[4] = {v[u][0].x, v[u][0].y, v[u][0].z, v[u][0].w};
    const std::uint32_t high[4] = {v[u][1].x, v[u][1].y, v[u][1].z, v[u][1].w};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float(&c)[4] = sums.v[u][j];
#pragma unroll
      for (int i = 0; i < 4; ++i) c[i] *= factor[i % 2];
      mma_bf16(c, transposed(low[2 * j]), transposed(low[2 * j + 1]), transposed(high[2 * j]),
               transposed(high[2 * j + 1]), p0, p1);
    }
  }
}

template <int kHeadDim>
__device__ __forceinline__ void attend(const DecodeArgs& a, const DecodeLayerArgs& layer, int kv_len,
                                       std::byte* memory) {
  auto& shared = *reinterpret_cast<AttendShared<kHeadDim>*>(memory);
  constexpr int kHalf = kHeadDim / 2;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = a.heads / a.kv_heads;
  const ContextCut cut = cut_of(a, layer, kv_len);
  const int splits = cut.count;
  for (int unit = blockIdx.x; unit < a.kv_heads * splits; unit += gridDim.x) {
    const int kv_head = unit / splits, split = unit % splits;
    const int begin = cut.first + split * cut.length, end = min(begin + cut.length, kv_len);
    for (int i = threadIdx.x; i < kAttendHeads * kHalf; i += kDecodeThreads) {
      const int head = i / kHalf, pair = i % kHalf;
      HeadPair q = {0, 0};
      if (head < group) q = head_pair<kHeadDim>(a, layer, kv_head * group + head, pair, true);
      shared.q[head][pair] = __float2bfloat16_rn(q.low);
      shared.q[head][pair + kHalf] = __float2bfloat16_rn(q.high);
    }
    if (end == kv_len && threadIdx.x < kHeadDim) {
      const bool is_v = threadIdx.x >= kHalf;
      const int pair = threadIdx.x % kHalf, page = (kv_len - 1) / a.block_size;
      const std::int64_t block = __ldg(a.page_table + page);
      const std::int64_t row =
          (block * a.kv_heads + kv_head) * a.block_size + kv_len - 1 - page * a.block_size;
      const HeadPair x =
          head_pair<kHeadDim>(a, layer, a.heads + (is_v ? a.kv_heads : 0) + kv_head, pair, !is_v);
      __nv_bfloat16* to = (is_v ? layer.v : layer.k) + row * kHeadDim + pair;
      to[0] = __float2bfloat16_rn(x.low);
      to[kHalf] = __float2bfloat16_rn(x.high);
    }
    __syncthreads();
    if (warp < kAttendWarps) {
      AttendSums<kHeadDim> sums;
      for (int at = begin + warp * kTileKeys; at < end; at += kAttendSplit) {
        attend_tile<kHeadDim>(a, layer, shared, kv_head, at, cut.visible, end, lane, sums);
      }
      const int g = lane / 4, t = lane % 4;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int step = 4; step < 32; step *= 2) sums.total[i] += __shfl_xor_sync(~0u, sums.total[i], step);
        if (g == 0) {
          shared.largest[warp][2 * t + i] = sums.largest[i];
          shared.totals[warp][2 * t + i] = sums.total[i];
        }
      }
#pragma unroll
      for (int u = 0; u < kHeadDim / 32; ++u) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            // Column g of a turned block of dimensions: words 2j and 2j + 1 of the 16 bytes of lane g / 2.
            const int d = u * 32 + g / 2 * 8 + (2 * j + i / 2) * 2 + g % 2;
            shared.sums[warp][2 * t + i % 2][d] = sums.v[u][j][i];
          }
        }
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < group * kHeadDim; i += kDecodeThreads) {
      const int in_group = i / kHeadDim, d = i % kHeadDim, head = kv_head * group + in_group;
      float largest = kNothing, total = 0, sum = 0;
#pragma unroll
      for (int w = 0; w < kAttendWarps; ++w) largest = fmaxf(largest, shared.largest[w][in_group]);
#pragma unroll
      for (int w = 0; w < kAttendWarps; ++w) {
        const float weight = power_of_two(shared.largest[w][in_group] - reference_score(largest));
        total = fmaf(weight, shared.totals[w][in_group], total);
        sum = fmaf(weight, shared.sums[w][in_group][d], sum);
      }
      if (splits == 1) {
        a.attended[head * kHeadDim + d] = __float2bfloat16_rn(sum / total);
        continue;
      }
      const int at = head * a.max_splits + split;
      a.split_sums[static_cast<std::int64_t>(at) * kHeadDim + d] = sum;
      if (d == 0) a.split_stats[at] = {largest, total};
    }
    if (splits > kReaderSplits && arrives_last(a.sync + kBarrierWords + kv_head, splits) && warp < group) {
      const int head = kv_head * group + warp, at = head * a.max_splits;
      // Eight at a time: the kernel has no registers for more.
      combine_splits<__nv_bfloat16, kHeadDim / 32, 8>(a.split_stats + at,
                                                      a.split_sums + static_cast<std::int64_t>(at) * kHeadDim,
                                                      splits, kHeadDim, a.attended + head * kHeadDim, lane);
    }
    __syncthreads();  // before the next unit's queries
  }
}

// `attended`, as bfloat16, to shared memory, added up from splits where they are few. Ends without a barrier.
template <bool kPacked, int kHeadDim>
__device__ __forceinline__ void stage_attended(const DecodeArgs& a, const DecodeLayerArgs& layer, int kv_len,
                                               const Stage& stage) {
  const int splits = cut_of(a, layer, kv_len).count;
  if (splits == 1 || splits > kReaderSplits)
    return stage_copy<kPacked>(a.attended, a.heads * kHeadDim, stage);
  const int quads = a.heads * kHeadDim / 4;
#pragma unroll 1
  for (int i = threadIdx.x; i - static_cast<int>(threadIdx.x % 32) < quads; i += kDecodeThreads) {
    const int at = min(i, quads - 1), head = at / (kHeadDim / 4), d = at % (kHeadDim / 4) * 4;
    const float2* stats_at = a.split_stats + head * a.max_splits;
    const float* sums_at = a.split_sums + static_cast<std::int64_t>(head) * a.max_splits * kHeadDim + d;
    float2 stats[kReaderSplits];
    float4 sums[kReaderSplits];
#pragma unroll
    for (int s = 0; s < kReaderSplits; ++s) {
      stats[s] = s < splits ? __ldcg(stats_at + s) : float2{kNothing, 0};
      sums[s] = s < splits ? load_l2(sums_at + s * kHeadDim) : float4{0, 0, 0, 0};
    }
    float largest = kNothing, total = 0;
#pragma unroll
    for (int s = 0; s < kReaderSplits; ++s) largest = fmaxf(largest, stats[s].x);
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int s = 0; s < kReaderSplits; ++s) {
      const float weight = power_of_two(stats[s].x - reference_score(largest));
      total = fmaf(weight, stats[s].y, total);
      sum.x = fmaf(weight, sums[s].x, sum.x), sum.y = fmaf(weight, sums[s].y, sum.y);
      sum.z = fmaf(weight, sums[s].z, sum.z), sum.w = fmaf(weight, sums[s].w, sum.w);
    }
    const float factor = 1.0f / total;
    stage_quad<kPacked>(
        stage, i, i < quads,
        {pack_bf16(sum.x * factor, sum.y * factor), pack_bf16(sum.z * factor, sum.w * factor)});
  }
}

}  // namespace snug::kernels::cuda
