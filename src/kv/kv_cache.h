// The memory of the paged KV cache: how large it is, and where each layer's K and V lie in it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "kv/paged_view.h"

namespace snug::kv {

// Bytes of one block in every layer, K and V together. This times the blocks is the cache.
constexpr std::int64_t bytes_per_block(std::int64_t layers, std::int64_t kv_heads, std::int64_t head_dim,
                                       std::int64_t block_size, DType dtype) {
  return 2 * layers * kv_heads * block_size * head_dim * static_cast<std::int64_t>(size_of(dtype));
}

// A view; whoever allocated `base` owns it.
struct KvCache {
  std::byte* base = nullptr;  // (layers, 2, blocks, kv_heads, block_size, head_dim), 64-byte aligned
  std::int64_t layers = 0;
  std::int64_t blocks = 0;
  DType dtype = DType::f16;
  int block_size = 0;
  int kv_heads = 0;
  int head_dim = 0;

  std::int64_t bytes() const {
    return blocks * bytes_per_block(layers, kv_heads, head_dim, block_size, dtype);
  }

  PagedLayer layer(std::int64_t index) const {
    const std::int64_t half = blocks * bytes_per_block(1, kv_heads, head_dim, block_size, dtype) / 2;
    return {.k = base + 2 * index * half,
            .v = base + (2 * index + 1) * half,
            .dtype = dtype,
            .block_size = block_size,
            .kv_heads = kv_heads,
            .head_dim = head_dim};
  }
};

}  // namespace snug::kv
