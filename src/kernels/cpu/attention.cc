#include "kernels/attention.h"

#include "kernels/cpu/targets.h"
//
#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/thread_pool.h"
#include "core/arena.h"
#include "kernels/cpu/attention_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
//
#include "kernels/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace snug::kernels::HWY_NAMESPACE {

void AttendTile(const Tile& tile, const TileScratch& s) {
  PackQueries(tile, s);
  Reset(tile, s.total);
  const std::int64_t begin = tile.begin_position() / cpu::kSegment * cpu::kSegment;
  for (std::int64_t t = begin; t < tile.end_position(); t += cpu::kSegment) {
    SegmentSteps(tile, s, t, tile.end_position(), s.segment);
    Merge(tile, s.segment, s.total);
  }
  WriteOut(tile, s.total);
}

void AttendSegment(const Tile& tile, const TileScratch& s, std::int64_t begin, const RowState& state) {
  PackQueries(tile, s);
  SegmentSteps(tile, s, begin, begin + cpu::kSegment, state);
}

void ResetState(const Tile& tile, const RowState& state) {
  Reset(tile, state);
}
void MergeState(const Tile& tile, const RowState& segment, const RowState& total) {
  Merge(tile, segment, total);
}
void WriteState(const Tile& tile, const RowState& total) {
  WriteOut(tile, total);
}

}  // namespace snug::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace snug::kernels {

HWY_EXPORT(AttendTile);
HWY_EXPORT(AttendSegment);
HWY_EXPORT(ResetState);
HWY_EXPORT(MergeState);
HWY_EXPORT(WriteState);

namespace cpu {
namespace {

// Fewer items than this per worker: a decode step cuts its KV ranges. Slots hold the segments in flight.
constexpr std::int64_t kItemsPerWorker = 2, kSlotsPerWorker = 8;
// Waking the workers costs about as much as this many (token of KV, KV head, query tokens up to 8) visits.
constexpr std::int64_t kInlineVisits = 256;

constexpr std::int64_t padded(std::int64_t rows) {
  return align_up(rows, kMaxLanes);
}

RowState take_state(Arena& arena, std::int64_t rows, std::int64_t head_dim) {
  return {.max = arena.take<float>(rows),
          .sum = arena.take<float>(rows),
          .out = arena.take<float>(rows * head_dim)};
}

std::int64_t state_bytes(std::int64_t rows, std::int64_t head_dim) {
  return 2 * align_up(rows * 4) + align_up(rows * head_dim * 4);
}

TileScratch take_scratch(Arena& arena, std::int64_t heads, std::int64_t head_dim) {
  const std::int64_t rows = padded(std::max<std::int64_t>(kTileRows, heads));
  TileScratch s;
  s.q = arena.take<float>(rows * head_dim);
  s.positions = arena.take<std::int32_t>(rows);
  s.scores = arena.take<float>(kStep * kPanelVectors * kMaxLanes);
  s.k = arena.take<float>(kStep * head_dim);
  s.v = arena.take<float>(kStep * head_dim);
  s.segment = take_state(arena, rows, head_dim);
  s.total = take_state(arena, rows, head_dim);
  return s;
}

std::int64_t scratch_bytes(std::int64_t heads, std::int64_t head_dim) {
  const std::int64_t rows = padded(std::max<std::int64_t>(kTileRows, heads));
  return 2 * state_bytes(rows, head_dim) + align_up(rows * head_dim * 4) + align_up(rows * 4) +
         align_up(kStep * kPanelVectors * kMaxLanes * 4) + 2 * align_up(kStep * head_dim * 4);
}

// The tiles of a batch, numbered so that each sequence's longest come first. Asked in rising order, it walks
// the sequences once.
class Tiles {
 public:
  Tiles(const AttentionParams& p, std::int64_t tile_tokens) : p_(p), tile_tokens_(tile_tokens) {}

  std::int64_t count() const {
    std::int64_t count = 0;
    for (const kv::SequenceView& sequence : p_.sequences) count += of(sequence);
    return count;
  }

  Tile at(std::int64_t index) {
    while (index >= before_ + of(p_.sequences[sequence_])) before_ += of(p_.sequences[sequence_++]);
    const kv::SequenceView& sequence = p_.sequences[sequence_];
    const std::int64_t from_last = (index - before_) / p_.kv.kv_heads;
    Tile tile{.p = &p_, .sequence = &sequence};
    tile.kv_head = static_cast<int>((index - before_) % p_.kv.kv_heads);
    tile.first = (of(sequence) / p_.kv.kv_heads - 1 - from_last) * tile_tokens_;
    tile.tokens = std::min<std::int64_t>(tile_tokens_, sequence.q_len - tile.first);
    return tile;
  }

 private:
  std::int64_t of(const kv::SequenceView& sequence) const {
    return (sequence.q_len + tile_tokens_ - 1) / tile_tokens_ * p_.kv.kv_heads;
  }

  const AttentionParams& p_;
  std::int64_t tile_tokens_;
  std::size_t sequence_ = 0;
  std::int64_t before_ = 0;
};

// Calls fn(next, worker) on every worker of the pool; next() hands out 0, 1, … count - 1, then count or more.
template <class Fn>
void run(ThreadPool* pool, Fn&& fn) {
  std::atomic<std::int64_t> next{0};
  const auto take = [&] { return next.fetch_add(1, std::memory_order_relaxed); };
  if (pool == nullptr) return fn(take, 0);
  pool->run([&](int worker) { fn(take, worker); });
}

// Few single tokens with long contexts: segments run in parallel, in waves of as many as there are slots, and
// are merged from left to right after each wave.
void attend_in_segments(const AttentionParams& p, std::int64_t tiles, Arena arena,
                        const TileScratch* scratch) {
  const std::int64_t threads = p.stream.pool->size();
  const std::int64_t per_tile = threads * kSlotsPerWorker / tiles;  // segments of a tile in flight
  const std::int64_t rows = padded(p.heads / p.kv.kv_heads), bytes = state_bytes(rows, p.kv.head_dim);
  auto* base = arena.take<std::byte>((tiles + tiles * per_tile) * bytes);
  const auto state = [&](std::int64_t i) {
    Arena piece(base + i * bytes, bytes);
    return take_state(piece, rows, p.kv.head_dim);
  };
  const auto has = [](const Tile& tile, std::int64_t segment) {
    return segment * kSegment < tile.end_position() && (segment + 1) * kSegment > tile.begin_position();
  };

  std::int64_t first = std::numeric_limits<std::int64_t>::max(), end = 0;
  Tiles all(p, 1);
  for (std::int64_t i = 0; i < tiles; ++i) {
    const Tile tile = all.at(i);
    first = std::min(first, tile.begin_position() / kSegment);
    end = std::max(end, (tile.end_position() + kSegment - 1) / kSegment);
    HWY_DYNAMIC_DISPATCH(ResetState)(tile, state(i));
  }
  for (std::int64_t wave = first; wave < end; wave += per_tile) {
    run(p.stream.pool, [&](auto take, int worker) {
      Tiles walk(p, 1);
      for (std::int64_t i = take(); i < tiles * per_tile; i = take()) {
        const Tile tile = walk.at(i / per_tile);
        const std::int64_t segment = wave + i % per_tile;
        if (!has(tile, segment)) continue;
        HWY_DYNAMIC_DISPATCH(AttendSegment)(tile, scratch[worker], segment * kSegment, state(tiles + i));
      }
    });
    Tiles walk(p, 1);
    for (std::int64_t i = 0; i < tiles * per_tile; ++i) {
      const Tile tile = walk.at(i / per_tile);
      if (!has(tile, wave + i % per_tile)) continue;
      HWY_DYNAMIC_DISPATCH(MergeState)(tile, state(tiles + i), state(i / per_tile));
    }
  }
  Tiles walk(p, 1);
  for (std::int64_t i = 0; i < tiles; ++i) HWY_DYNAMIC_DISPATCH(WriteState)(walk.at(i), state(i));
}

// The largest tile that still leaves every worker a few.
std::int64_t choose_tile_tokens(const AttentionParams& p, std::int64_t threads) {
  const std::int64_t group = p.heads / p.kv.kv_heads;
  std::int64_t rows = kTileRows;
  while (rows > kTileRows / 4 && Tiles(p, std::max<std::int64_t>(1, rows / group)).count() < 4 * threads)
    rows /= 2;
  return std::max<std::int64_t>(1, rows / group);
}

}  // namespace

std::int64_t attention_workspace_bytes(int heads, int head_dim, int threads) {
  const std::int64_t states = threads * (kItemsPerWorker + kSlotsPerWorker);
  return threads *
             (scratch_bytes(heads, head_dim) + align_up(static_cast<std::int64_t>(sizeof(TileScratch)))) +
         states * state_bytes(padded(heads), head_dim) + 2 * 64;
}

void attention(const AttentionParams& p) {
  const int pool_threads = p.stream.pool == nullptr ? 1 : p.stream.pool->size();
  assert(p.workspace_bytes >= attention_workspace_bytes(p.heads, p.kv.head_dim, pool_threads));
  std::int64_t visits = 0, longest = 0, most_queries = 0;
  for (const kv::SequenceView& sequence : p.sequences) {
    visits += std::int64_t{sequence.kv_len} * p.kv.kv_heads * ((sequence.q_len + 7) / 8);
    longest = std::max<std::int64_t>(longest, sequence.kv_len);
    most_queries = std::max<std::int64_t>(most_queries, sequence.q_len);
  }
  ThreadPool* pool = visits <= kInlineVisits ? nullptr : p.stream.pool;
  const std::int64_t threads = pool == nullptr ? 1 : pool_threads;

  Arena arena(p.workspace, p.workspace_bytes);
  auto* scratch = arena.take<TileScratch>(threads);
  for (std::int64_t i = 0; i < threads; ++i) scratch[i] = take_scratch(arena, p.heads, p.kv.head_dim);

  const std::int64_t tile_tokens = choose_tile_tokens(p, threads), tiles = Tiles(p, tile_tokens).count();
  if (tiles == 0) return;
  if (threads > 1 && most_queries == 1 && tiles < kItemsPerWorker * threads && longest > kSegment) {
    return attend_in_segments(p, tiles, arena, scratch);
  }
  run(pool, [&](auto take, int worker) {
    Tiles walk(p, tile_tokens);
    for (std::int64_t i = take(); i < tiles; i = take()) {
      HWY_DYNAMIC_DISPATCH(AttendTile)(walk.at(i), scratch[worker]);
    }
  });
}

}  // namespace cpu
}  // namespace snug::kernels
#endif
