// BF16 weights times activations rounded to BF16, summed in float32 (AVX512-BF16: Cooper Lake, Sapphire
// Rapids, Zen 4 and later). Twice the products of float32 from each instruction, and no conversion of the
// weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/arena.h"
#include "kernels/cpu/linear_kernels.h"

namespace snug::kernels::cpu {

inline constexpr std::int64_t kBf16Step = 32;  // rounded activations are padded with zeros to multiples of it

struct Bf16Kernels {
  int panel_rows = 0;
  // One token's activations, to the nearest, ties to even; writes up to the next multiple of kBf16Step.
  void (*round)(const float* x, std::int64_t count, std::uint16_t* rounded) = nullptr;
  // y[t, r] += Σ_k w[r, k] x[t, k] for few tokens; w is row-major, any alignment, any number of columns.
  void (*dot)(const std::byte* w, std::int64_t w_stride_bytes, std::int64_t columns, const std::uint16_t* x,
              std::int64_t x_stride, std::int64_t tokens, PanelOut out) = nullptr;
  // y[t, r] += Σ_k panel[k, r, 0] x[t, 2k] + panel[k, r, 1] x[t, 2k + 1]; panel is (pairs, panel_rows, 2).
  void (*multiply)(const std::byte* panel, std::int64_t pairs, const std::uint16_t* x, std::int64_t x_stride,
                   std::int64_t tokens, PanelOut out) = nullptr;

  bool available() const { return dot != nullptr; }
};

// Activations as bf16, (tokens, stride), padded with zeros. Does not own them.
struct Bf16Tokens {
  std::uint16_t* data = nullptr;
  std::int64_t stride = 0;

  static std::int64_t bytes(std::int64_t tokens, std::int64_t cols) {
    return tokens * align_up(cols, kBf16Step) * 2;
  }
  static Bf16Tokens at(std::byte* data, std::int64_t cols) {
    return {reinterpret_cast<std::uint16_t*>(data), align_up(cols, kBf16Step)};
  }
  void round(const Bf16Kernels& kernels, std::int64_t token, const float* x, std::int64_t cols) const {
    kernels.round(x, cols, data + token * stride);
  }
};

// Not available where this CPU has no such instructions.
Bf16Kernels bf16_kernels();

}  // namespace snug::kernels::cpu
