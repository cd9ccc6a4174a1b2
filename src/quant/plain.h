// f32, f16, bf16: one little-endian number per element, no blocks.
#pragma once

#include <cstdint>

namespace snug::quant {

void decode_f32(const void* blocks, float* out, std::int64_t n);
void encode_f32(const float* in, void* blocks, std::int64_t n);
void decode_f16(const void* blocks, float* out, std::int64_t n);
void encode_f16(const float* in, void* blocks, std::int64_t n);
void decode_bf16(const void* blocks, float* out, std::int64_t n);
void encode_bf16(const float* in, void* blocks, std::int64_t n);

}  // namespace snug::quant
