// What the codecs of all block formats share: walking over blocks that need no alignment, and safe rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/dtype.h"

namespace snug::quant {

// Elements in a super-block of the k and iq4_xs formats.
inline constexpr int kSuperBlock = 256;

// Calls decode_block(const Block&, float* out) for each of n / Block::kElems blocks.
template <class Block, class Fn>
void decode_blocks(const void* blocks, float* out, std::int64_t n, Fn decode_block) {
  const auto* bytes = static_cast<const std::byte*>(blocks);
  for (std::int64_t i = 0; i < n / Block::kElems; ++i) {
    Block block;
    std::memcpy(&block, bytes + i * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
    decode_block(block, out + i * Block::kElems);
  }
}

// Calls encode_block(const float* in, Block&) for each block; the block arrives zeroed.
template <class Block, class Fn>
void encode_blocks(const float* in, void* blocks, std::int64_t n, Fn encode_block) {
  auto* bytes = static_cast<std::byte*>(blocks);
  for (std::int64_t i = 0; i < n / Block::kElems; ++i) {
    Block block{};
    encode_block(in + i * Block::kElems, block);
    std::memcpy(bytes + i * static_cast<std::int64_t>(sizeof(Block)), &block, sizeof(Block));
  }
}

// 1 / scale, and 0 for a scale of 0: everything then becomes level 0.
inline float inverse(float scale) {
  return scale != 0.0f ? 1.0f / scale : 0.0f;
}

// Clamps to [lo, hi] and rounds to the nearest integer, half to even. NaN becomes lo, so that a cast to int
// is always defined. |lo| and |hi| stay far below 2^22; the adder does the rounding, which vectorises.
inline float round_clamp(float x, float lo, float hi) {
  x = x > lo ? x : lo;
  x = x < hi ? x : hi;
  return (x + 0x1.8p23f) - 0x1.8p23f;
}

// binary16 to nearest, but never infinite (saturates) nor NaN (becomes 0).
inline std::uint16_t finite_f16(float x) {
  constexpr float kMax = 65504.0f;
  if (!(x == x)) return 0;
  return f16_from_f32(x > kMax ? kMax : x < -kMax ? -kMax : x);
}

// A block's scale as binary16. Among the subnormals, where one step is a large part of the value, it rounds
// away from zero: too large a scale costs a few levels, too small a one would clip the block's largest
// elements.
inline std::uint16_t f16_scale(float x) {
  std::uint16_t h = finite_f16(x);
  const float magnitude = x < 0 ? -x : x;
  if (magnitude < 0x1p-14f && f32_from_f16(h & 0x7FFFu) < magnitude) ++h;
  return h;
}

}  // namespace snug::quant
