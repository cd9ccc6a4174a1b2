// The paged KV cache as kernels see it: plain data, no ownership. CPU and GPU read the same layout.
//
// One layer's K and V are two arrays of shape (blocks, kv_heads, block_size, head_dim). A sequence's token t
// lies in block page_table[t / block_size], slot t % block_size.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace snug::kv {

struct PagedLayer {
  void* k = nullptr;  // (blocks, kv_heads, block_size, head_dim)
  void* v = nullptr;  // (blocks, kv_heads, block_size, head_dim)
  DType dtype = DType::f16;
  int block_size = 0;  // tokens in a block
  int kv_heads = 0;
  int head_dim = 0;
};

// One sequence of a batch: its query tokens are rows [q_begin, q_begin + q_len) of the batch and stand at
// positions [kv_len - q_len, kv_len); it attends causally to kv_len tokens, the queries' own included.
struct SequenceView {
  const std::int32_t* page_table = nullptr;  // (ceil(kv_len / block_size))
  std::int32_t q_begin = 0;
  std::int32_t q_len = 0;
  std::int32_t kv_len = 0;
};

// The sequences of a batch once more, as device arrays: what kernels on a GPU read. A decode graph is
// replayed with other contents, so nothing here but the strides is known when it is captured. Rows that only
// fill up a batch belong to no sequence: row_sequence is -1, and sequences that only fill it up have q_len
// and kv_len 0.
struct DeviceSequences {
  const std::int32_t* page_tables = nullptr;   // (sequences, page_stride)
  std::int64_t page_stride = 0;                // entries from one sequence's page table to the next one's
  const std::int32_t* q_begin = nullptr;       // (sequences)
  const std::int32_t* q_len = nullptr;         // (sequences)
  const std::int32_t* kv_len = nullptr;        // (sequences)
  const std::int32_t* row_sequence = nullptr;  // (tokens)
};

}  // namespace snug::kv
