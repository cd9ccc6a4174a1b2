// The packed layout of quantised weights, as data: every kernel and the packer read it from here.
//
// A panel is `panel_rows` (two SIMD vectors of 32-bit lanes) consecutive rows of W. It is a sequence of units
// along k: 32 columns, or 256 for the formats with super-blocks. A unit holds, for all rows of the panel:
//   header   d as binary16 (panel_rows), then for some formats the minimum (panel_rows)
//   subs     1 or 8 times 32 columns:
//     scales   (scales_per_sub, panel_rows) bytes, then (mins_per_sub, panel_rows) bytes
//     planes   (plane_words, panel_rows) 32-bit words with the codes of 32 columns
// A step is 4 columns, so a sub has 8 steps. Planes by kind of code:
//   nibbles  4 words; byte b of word j: column 4j + b in the low half, column 16 + 4j + b in the high half
//   fifth    1 word;  byte b, bit s: bit 4 of column 4s + b
//   pairs    2 words; word h, byte b, bits 2s and 2s + 1: two bits of column 16h + 4s + b
//   bytes    8 words; the codes themselves
// A weight is d·q + m, where m comes from the format's minimum or from its constant offset.
#pragma once

#include <cstdint>

#include "quant/format.h"

namespace snug::kernels::cpu {

enum class Codes : std::uint8_t {
  none,
  u2,   // pairs
  u3,   // pairs, and bit 2 as a "fifth" word
  u4,   // nibbles
  u5,   // nibbles, fifth
  u6,   // nibbles, pairs
  s8,   // bytes, signed
  iq4,  // nibbles that index a table of signed bytes
};

struct PackedFormat {
  Codes codes = Codes::none;
  int subs = 1;            // subs in a unit
  int headers = 1;         // binary16 values in the header: d, or d and a minimum
  int scales_per_sub = 0;  // 0: d alone; 2: one for each 16 columns
  int mins_per_sub = 0;    // 0, or as many as scales; then m = -minimum · min
  bool signed_scales = false;
  int offset = 0;  // m = -d·offset

  constexpr int unit_columns() const { return 32 * subs; }
  constexpr int plane_words() const {
    switch (codes) {
      case Codes::none:
        return 0;
      case Codes::u2:
        return 2;
      case Codes::u3:
        return 3;
      case Codes::u4:
        return 4;
      case Codes::u5:
        return 5;
      case Codes::u6:
        return 6;
      case Codes::s8:
        return 8;
      case Codes::iq4:
        return 4;
    }
    return 0;
  }
  constexpr int header_bytes(int panel_rows) const { return 2 * headers * panel_rows; }
  constexpr int sub_bytes(int panel_rows) const {
    return panel_rows * (scales_per_sub + mins_per_sub + 4 * plane_words());
  }
  constexpr int unit_bytes(int panel_rows) const {
    return header_bytes(panel_rows) + subs * sub_bytes(panel_rows);
  }
  constexpr std::int64_t panel_bytes(std::int64_t cols, int panel_rows) const {
    return cols / unit_columns() * unit_bytes(panel_rows);
  }
  // Columns that share one scale.
  constexpr int block() const { return scales_per_sub == 2 ? 16 : 32; }
};

constexpr PackedFormat packed_format(quant::Format format) {
  using quant::Format;
  switch (format) {
    case Format::q4_0:
      return {.codes = Codes::u4, .offset = 8};
    case Format::q4_1:
      return {.codes = Codes::u4, .headers = 2};
    case Format::q5_0:
      return {.codes = Codes::u5, .offset = 16};
    case Format::q5_1:
      return {.codes = Codes::u5, .headers = 2};
    case Format::q8_0:
      return {.codes = Codes::s8};
    case Format::q2_k:
      return {.codes = Codes::u2, .subs = 8, .headers = 2, .scales_per_sub = 2, .mins_per_sub = 2};
    case Format::q3_k:
      return {.codes = Codes::u3, .subs = 8, .scales_per_sub = 2, .signed_scales = true, .offset = 4};
    case Format::q4_k:
      return {.codes = Codes::u4, .subs = 8, .headers = 2, .scales_per_sub = 1, .mins_per_sub = 1};
    case Format::q5_k:
      return {.codes = Codes::u5, .subs = 8, .headers = 2, .scales_per_sub = 1, .mins_per_sub = 1};
    case Format::q6_k:
      return {.codes = Codes::u6, .subs = 8, .scales_per_sub = 2, .signed_scales = true, .offset = 32};
    case Format::iq4_nl:
      return {.codes = Codes::iq4};
    case Format::iq4_xs:
      return {.codes = Codes::iq4, .subs = 8, .scales_per_sub = 1, .signed_scales = true};
    case Format::f32:
    case Format::f16:
    case Format::bf16:
      break;
  }
  return {};
}

// The signed values that the 4-bit codes of iq4_nl and iq4_xs stand for.
inline constexpr std::int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

// One row's unit in file order, taken apart.
struct UnpackedUnit {
  alignas(64) std::uint8_t q[256];  // codes in order of columns
  std::uint16_t d = 0, m = 0;       // binary16
  std::uint8_t scales[16] = {}, mins[16] = {};
};

// Takes apart one unit of a row as files hold it (block structs of the GGUF specification).
void unpack_unit(quant::Format format, const std::uint8_t* source, UnpackedUnit& unit);
// Puts it into row `row` of a packed unit.
void write_unit(const PackedFormat& format, const UnpackedUnit& unit, int panel_rows, int row,
                std::uint8_t* packed);

}  // namespace snug::kernels::cpu
