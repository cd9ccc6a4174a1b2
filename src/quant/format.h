// Number formats of weights. A format is its block size plus a scalar codec: the oracle for every kernel.
//
// Block layouts follow the GGUF specification (ggml/docs/gguf.md and the block structs it refers to).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace snug::quant {

enum class Format : std::uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
};
inline constexpr int kFormatCount = 15;

struct FormatInfo {
  Format format;
  const char* name;         // "q4_k", as on the command line
  std::uint32_t gguf_type;  // the type id in GGUF files
  int block_elems;          // elements in a block (1 for f32, f16, bf16)
  int block_bytes;
  // `n` elements, a multiple of block_elems. `blocks` needs no alignment. encode rounds to nearest.
  void (*decode)(const void* blocks, float* out, std::int64_t n);
  void (*encode)(const float* in, void* blocks, std::int64_t n);
};

const FormatInfo& info(Format format);
std::span<const FormatInfo> all_formats();
std::optional<Format> format_from_name(std::string_view name);
std::optional<Format> format_from_gguf_type(std::uint32_t type);

// Bytes of `n` elements; n must be a multiple of block_elems.
inline std::int64_t bytes_of(Format format, std::int64_t n) {
  const auto& f = info(format);
  return n / f.block_elems * f.block_bytes;
}

}  // namespace snug::quant
