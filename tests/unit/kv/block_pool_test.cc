#include "kv/block_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "kv/kv_cache.h"

namespace snug::kv {
namespace {

TEST(BlockPool, HandsOutEveryBlockOnce) {
  BlockPool pool(5);
  std::set<std::int32_t> seen;
  for (int i = 0; i < 5; ++i) {
    const auto block = pool.allocate();
    ASSERT_TRUE(block.has_value());
    EXPECT_GE(*block, 0);
    EXPECT_LT(*block, 5);
    EXPECT_TRUE(seen.insert(*block).second) << *block << " was handed out twice";
  }
  EXPECT_EQ(pool.free_blocks(), 0);
  EXPECT_FALSE(pool.allocate().has_value());
  EXPECT_TRUE(pool.check().ok());
}

TEST(BlockPool, SharedBlockIsFreedByTheLastRelease) {
  BlockPool pool(2);
  const std::int32_t block = *pool.allocate();
  pool.share(block);
  pool.release(block);
  EXPECT_EQ(pool.references(block), 1);
  EXPECT_EQ(pool.free_blocks(), 1);
  pool.release(block);
  EXPECT_EQ(pool.free_blocks(), 2);
  EXPECT_TRUE(pool.check().ok());
}

TEST(BlockPool, CheckFindsADoubleRelease) {
  BlockPool pool(3);
  const std::int32_t block = *pool.allocate();
  pool.release(block);
  pool.release(block);
  const Status status = pool.check();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("block " + std::to_string(block)), std::string::npos);
}

TEST(BlockPool, CheckFindsASharedFreeBlock) {
  BlockPool pool(3);
  pool.share(1);
  EXPECT_FALSE(pool.check().ok());
}

TEST(SequenceBlocks, GrowsByWholeBlocks) {
  BlockPool pool(4);
  SequenceBlocks blocks(&pool, 16);
  EXPECT_TRUE(blocks.ensure_capacity(0).ok());
  EXPECT_EQ(blocks.capacity(), 0);
  EXPECT_TRUE(blocks.ensure_capacity(1).ok());
  EXPECT_EQ(blocks.capacity(), 16);
  EXPECT_TRUE(blocks.ensure_capacity(16).ok());
  EXPECT_EQ(blocks.capacity(), 16);
  EXPECT_TRUE(blocks.ensure_capacity(17).ok());
  EXPECT_EQ(blocks.page_table().size(), 2u);
  EXPECT_TRUE(blocks.ensure_capacity(3).ok());  // never shrinks
  EXPECT_EQ(blocks.capacity(), 32);
  blocks.truncate(16);
  EXPECT_EQ(blocks.capacity(), 16);
  EXPECT_EQ(pool.free_blocks(), 3);
}

TEST(SequenceBlocks, RefusesWhatDoesNotFitAndTakesNothing) {
  BlockPool pool(3);
  SequenceBlocks blocks(&pool, 16);
  ASSERT_TRUE(blocks.ensure_capacity(10).ok());
  const Status status = blocks.ensure_capacity(16 * 5);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::does_not_fit);
  EXPECT_NE(status.error().message.find("2 are missing"), std::string::npos) << status.error().message;
  EXPECT_EQ(blocks.page_table().size(), 1u);
  EXPECT_EQ(pool.free_blocks(), 2);
}

TEST(SequenceBlocks, MovingHandsTheReferencesOver) {
  BlockPool pool(4);
  {
    SequenceBlocks a(&pool, 16), b(&pool, 16);
    ASSERT_TRUE(a.ensure_capacity(32).ok());
    ASSERT_TRUE(b.ensure_capacity(16).ok());
    b = std::move(a);
    EXPECT_EQ(pool.free_blocks(), 2);
    SequenceBlocks c(std::move(b));
    EXPECT_EQ(c.capacity(), 32);
    EXPECT_EQ(pool.free_blocks(), 2);
  }
  EXPECT_EQ(pool.free_blocks(), 4);
  EXPECT_TRUE(pool.check().ok());
}

TEST(SequenceBlocks, RandomLifeKeepsThePoolSound) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  BlockPool pool(64);
  std::vector<SequenceBlocks> live;
  for (int step = 0; step < 2000; ++step) {
    const auto dice = rng() % 5;
    if (dice == 0 || live.empty()) {
      live.emplace_back(&pool, 16);
    } else if (dice == 1) {
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(rng() % live.size()));
    } else if (dice == 2) {
      SequenceBlocks fork(&pool, 16);
      fork.adopt(live[rng() % live.size()].page_table());
      live.push_back(std::move(fork));
    } else {
      SequenceBlocks& one = live[rng() % live.size()];
      const auto tokens = static_cast<std::int64_t>(rng() % 200);
      if (one.ensure_capacity(tokens).ok()) {
        EXPECT_GE(one.capacity(), tokens);
      }
    }
    ASSERT_TRUE(pool.check().ok()) << "step " << step << ": " << pool.check().error().message;
    std::set<std::int32_t> used;
    std::int64_t references = 0;
    for (const auto& one : live) {
      used.insert(one.page_table().begin(), one.page_table().end());
      references += static_cast<std::int64_t>(one.page_table().size());
    }
    ASSERT_EQ(static_cast<std::int32_t>(used.size()), pool.blocks() - pool.free_blocks());
    std::int64_t counted = 0;
    for (std::int32_t i = 0; i < pool.blocks(); ++i) counted += pool.references(i);
    ASSERT_EQ(counted, references);
  }
  live.clear();
  EXPECT_EQ(pool.free_blocks(), pool.blocks());
}

TEST(KvCache, LayersLieOneBehindTheOther) {
  // Qwen2.5 0.5B: 24 layers, 2 KV heads of 64, so 12288 bytes a token in float16.
  EXPECT_EQ(bytes_per_block(24, 2, 64, 16, DType::f16), 16 * 12288);
  EXPECT_EQ(bytes_per_block(24, 2, 64, 16, DType::f32), 2 * 16 * 12288);
  KvCache cache{
      .layers = 3, .blocks = 5, .dtype = DType::bf16, .block_size = 16, .kv_heads = 2, .head_dim = 8};
  std::vector<std::byte> memory(static_cast<std::size_t>(cache.bytes()));
  cache.base = memory.data();
  const std::int64_t half = 5 * 2 * 16 * 8 * 2;
  for (int i = 0; i < 3; ++i) {
    const PagedLayer layer = cache.layer(i);
    EXPECT_EQ(static_cast<std::byte*>(layer.k) - cache.base, 2 * i * half);
    EXPECT_EQ(static_cast<std::byte*>(layer.v) - cache.base, (2 * i + 1) * half);
    EXPECT_EQ(layer.dtype, DType::bf16);
    EXPECT_EQ(layer.block_size, 16);
    EXPECT_EQ(layer.kv_heads, 2);
    EXPECT_EQ(layer.head_dim, 8);
  }
  EXPECT_EQ(cache.bytes(), 3 * 2 * half);
}

}  // namespace
}  // namespace snug::kv
