#include "quant/plain.h"

#include <cstring>

#include "quant/codec.h"

namespace snug::quant {
namespace {

struct Half {
  static constexpr int kElems = 1;
  std::uint16_t bits;
};

}  // namespace

void decode_f32(const void* blocks, float* out, std::int64_t n) {
  if (n > 0) std::memcpy(out, blocks, static_cast<std::size_t>(n) * sizeof(float));
}

void encode_f32(const float* in, void* blocks, std::int64_t n) {
  if (n > 0) std::memcpy(blocks, in, static_cast<std::size_t>(n) * sizeof(float));
}

void decode_f16(const void* blocks, float* out, std::int64_t n) {
  decode_blocks<Half>(blocks, out, n, [](const Half& h, float* y) { *y = f32_from_f16(h.bits); });
}

void encode_f16(const float* in, void* blocks, std::int64_t n) {
  encode_blocks<Half>(in, blocks, n, [](const float* x, Half& h) { h.bits = f16_from_f32(*x); });
}

void decode_bf16(const void* blocks, float* out, std::int64_t n) {
  decode_blocks<Half>(blocks, out, n, [](const Half& h, float* y) { *y = f32_from_bf16(h.bits); });
}

void encode_bf16(const float* in, void* blocks, std::int64_t n) {
  encode_blocks<Half>(in, blocks, n, [](const float* x, Half& h) { h.bits = bf16_from_f32(*x); });
}

}  // namespace snug::quant
