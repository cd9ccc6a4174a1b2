// The SIMD pieces of linear(), one table per instruction set. linear.cc holds the loops around them.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "quant/format.h"

namespace snug::kernels::cpu {

// A chunk of columns is what one unpacked panel holds; a multiple of every unit.
inline constexpr std::int64_t kQuantChunkBytes = 16384;  // codes of one panel: stays in L1
inline constexpr int kMaxPanelRows = 32;                 // of any instruction set
inline constexpr std::int64_t kFloatChunk = 1024;        // columns of one float32 panel

// Activations rounded to 8 bits, `group` tokens interleaved. Group g begins at g times the group's size.
struct QuantizedTokens {
  std::int64_t cols = 0;
  int group = 1;
  std::int8_t* q = nullptr;  // (cols / 4, group, 4)
  float* scale = nullptr;    // (cols / 32, group)
  float* sum32 = nullptr;    // (cols / 32, group): scale · Σq over 32 columns
  float* sum16 = nullptr;    // (cols / 16, group): the same over 16 columns

  // Bytes for `tokens` (a multiple of group) tokens, and the pointers into them.
  static std::int64_t bytes(std::int64_t tokens, std::int64_t cols) {
    return tokens * (cols + cols / 32 * 8 + cols / 16 * 4);
  }
  static QuantizedTokens at(std::byte* data, std::int64_t tokens, std::int64_t cols, int group) {
    auto* q = reinterpret_cast<std::int8_t*>(data);
    auto* scale = reinterpret_cast<float*>(q + tokens * cols);
    float* sum32 = scale + tokens * (cols / 32);
    return {cols, group, q, scale, sum32, sum32 + tokens * (cols / 32)};
  }
};

// Where a product goes: y[t * stride + r], r < rows (at most the panel's).
struct PanelOut {
  float* y = nullptr;
  std::int64_t stride = 0;
  int rows = 0;
};

// Of one quantised format. All add to what y holds. `columns` are multiples of the format's unit.
struct QuantKernels {
  int panel_rows = 0;  // 0: this CPU does not use the packed layout
  int group = 1;       // tokens that multiply() takes at once
  // One token (group 1) times a packed panel.
  void (*multiply_one)(const std::uint8_t* panel, const QuantizedTokens& x, PanelOut out) = nullptr;
  // Packed units → codes (columns / 4, panel_rows, 4), and per block: d (panel_rows), m (panel_rows).
  void (*unpack)(const std::uint8_t* units, std::int64_t columns, std::uint8_t* codes,
                 float* scales) = nullptr;
  // Tokens [begin, end), begin a multiple of group, times columns [first, first + columns) unpacked.
  void (*multiply)(const std::uint8_t* codes, const float* scales, const QuantizedTokens& x,
                   std::int64_t first, std::int64_t columns, std::int64_t begin, std::int64_t end,
                   PanelOut out) = nullptr;
  // Packed units → float32 (columns, panel_rows).
  void (*decode)(const std::uint8_t* units, std::int64_t columns, float* panel) = nullptr;
};

QuantKernels quant_kernels(quant::Format format);

// Rounds tokens [begin, begin + count) of x into group `begin / group`; missing tokens of the group become
// zero. `rest`, where given, gets what that rounding left, rounded likewise.
void quantize_group(const float* x, std::int64_t x_stride, std::int64_t begin, std::int64_t count,
                    const QuantizedTokens& out, const QuantizedTokens* rest);

struct FloatKernels {
  const char* target = "";  // the instruction set's name
  int panel_rows = 0;
  // y[t, r] += Σ_k w[r, k] x[t, k] for few tokens; w is row-major of `dtype`, any alignment.
  void (*dot)(DType dtype, const std::byte* w, std::int64_t w_stride_bytes, std::int64_t columns,
              const float* x, std::int64_t x_stride, std::int64_t tokens, PanelOut out) = nullptr;
  // Row-major rows of `dtype`, any alignment → float32 panel (columns, panel_rows), whose other rows stay.
  void (*transpose)(DType dtype, const std::byte* w, std::int64_t w_stride_bytes, int rows,
                    std::int64_t columns, float* panel) = nullptr;
  // y[t, r] += Σ_k panel[k, r] x[t, k].
  void (*multiply)(const float* panel, std::int64_t columns, const float* x, std::int64_t x_stride,
                   std::int64_t tokens, PanelOut out) = nullptr;
};

FloatKernels float_kernels();

}  // namespace snug::kernels::cpu
