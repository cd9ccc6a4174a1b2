// What the scheduler of the attention (attention.cc) and its vector code (attention_tile-inl.h) share.
//
// A tile is a run of query tokens of one sequence times the group of query heads that share a KV head: row r
// is token r / group, head r % group. Rows are kept transposed in panels of up to three vectors, one row a
// lane, so that scores, softmax and the weighted sum of V all run down the lanes: K and V are read as they
// lie, an element broadcast to all rows, and nothing is ever summed across lanes. A row's arithmetic
// therefore depends on nothing but its own position: results are bitwise the same for any chunking, batch and
// number of threads.
//
// The KV range is cut at fixed positions: into steps of kStep tokens with an online softmax, and into
// segments of kSegment tokens, whose results are merged from left to right. A single token's segments may run
// in parallel.
#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace snug::kernels::cpu {

inline constexpr int kTileRows = 192;  // about as many as fill half of a 512 KiB L2 cache at head_dim 128
inline constexpr int kStep = 64;       // tokens whose K and V are converted at a time
inline constexpr std::int64_t kSegment = 512;
inline constexpr int kMaxLanes = 16;  // of float32, in any instruction set compiled
inline constexpr int kPanelVectors = 3;

// The running softmax of a tile's rows.
struct RowState {
  float* max = nullptr;  // (rows)
  float* sum = nullptr;  // (rows): of exp(score - max)
  float* out = nullptr;  // panels of (head_dim, lanes): of exp(score - max) * v
};

struct Tile {
  const AttentionParams* p = nullptr;
  const kv::SequenceView* sequence = nullptr;
  int kv_head = 0;
  std::int64_t first = 0;  // of its query tokens, counted from the sequence's first
  std::int64_t tokens = 0;

  std::int64_t first_position() const { return sequence->kv_len - sequence->q_len + first; }
  std::int64_t end_position() const { return first_position() + tokens; }
  // The oldest token that any row sees.
  std::int64_t begin_position() const {
    const std::int64_t begin = p->window > 0 ? first_position() - p->window + 1 : 0;
    return begin > 0 ? begin : 0;
  }
};

// One worker's.
struct TileScratch {
  float* q = nullptr;                 // panels of (head_dim, lanes), scaled
  std::int32_t* positions = nullptr;  // (rows)
  float* scores = nullptr;            // (kStep, lanes of a panel)
  float* k = nullptr;                 // (kStep, head_dim)
  float* v = nullptr;                 // (kStep, head_dim)
  RowState segment, total;
};

}  // namespace snug::kernels::cpu
