// The packed layout of quantised weights on a GPU: what the tensor cores' m16n8k16 products want, in the
// order in which a warp streams it.
//
// A weight (rows, cols) is a sequence of row tiles of 16 rows. A tile is a sequence of units of 64 columns;
// in the K formats four units make a super-block of 256 columns, and its head (the binary16 scales) stands
// before them. A tile is therefore one run of bytes, and so are neighbouring tiles.
//
// A unit has two blocks of 32 columns. Lane l of a warp (g = l / 4, t = l % 4) works on rows g and g + 8, and
// in each block on 8 columns: 8t … 8t + 7, or in Q6_K 4t … 4t + 3 and 16 + 4t … 16 + 4t + 3 (there a scale
// spans 16 columns, so that one product must not straddle two). Its elements 2p and 2p + 1 of a row (p = 0 …
// 3) lie 16 bits apart in a word, so that one bit operation makes a pair of bfloat16.
//
//   Q4_0   512 bytes of nibbles: 16 a lane, words (block 0, row g), (block 0, row g + 8), (block 1, row g),
//   …;
//          pair p in bits 4p … 4p + 3 of either half.
//          64 bytes of scales: 8 for each g, binary16 in the order of the words.
//   Q8_0   1024 bytes of levels: block 0, then block 1, 16 a lane: row g in words 0 and 1, row g + 8 in 2 and
//   3;
//          pairs 2w and 2w + 1 in word w (of the row) at bits 0 and 8 of either half.
//          64 bytes of scales, as in Q4_0.
//   Q4_K   512 bytes of nibbles, as in Q4_0. 64 bytes: for each g and block the scale and the minimum of row
//   g and
//          of row g + 8, a byte each. Head, 64 bytes: for each g d and dmin of row g and of row g + 8.
//   Q6_K   512 bytes of low nibbles, as in Q4_0; 256 bytes of high bits: 8 a lane, a word for each block,
//   pair p of
//          row g in bits 2p and 2p + 1, of row g + 8 in bits 8 + 2p and 9 + 2p of either half.
//          64 bytes: for each g and group of 16 columns the scales of row g and of row g + 8, plus 128, a
//          byte each. Head, 32 bytes: for each g d of row g and of row g + 8.
#pragma once

#include <cstdint>

#include "quant/format.h"

namespace snug::kernels::cuda {

inline constexpr int kTileRows = 16;

struct UnitShape {
  int cols = 0;        // columns of a unit
  int bytes = 0;       // of a unit, without a head
  int head_bytes = 0;  // before every fourth unit
};

// {} for formats that are not packed; bf16 stands here too, since what streams its rows thinks in units as
// well.
constexpr UnitShape unit_shape(quant::Format format) {
  using quant::Format;
  switch (format) {
    case Format::bf16:
      return {.cols = 32, .bytes = 1024};
    case Format::q4_0:
      return {.cols = 64, .bytes = 512 + 64};
    case Format::q8_0:
      return {.cols = 64, .bytes = 1024 + 64};
    case Format::q4_k:
      return {.cols = 64, .bytes = 512 + 64, .head_bytes = 64};
    case Format::q6_k:
      return {.cols = 64, .bytes = 512 + 256 + 64, .head_bytes = 32};
    default:
      return {};
  }
}

// Bytes of one row tile, packed or bf16.
constexpr std::int64_t tile_bytes(quant::Format format, std::int64_t cols) {
  const UnitShape unit = unit_shape(format);
  return cols / unit.cols * unit.bytes + cols / 256 * unit.head_bytes;
}

constexpr bool is_packable(quant::Format format, std::int64_t rows, std::int64_t cols) {
  using quant::Format;
  if (rows <= 0 || cols <= 0 || rows % kTileRows != 0) return false;
  if (format == Format::q4_0 || format == Format::q8_0) return cols % 64 == 0;
  if (format == Format::q4_k || format == Format::q6_k) return cols % 256 == 0;
  return false;
}

}  // namespace snug::kernels::cuda
