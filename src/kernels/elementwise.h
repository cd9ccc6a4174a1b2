// The small ops between the matrix products. All activations float32, row-major.
#pragma once

#include <cstdint>
#include <span>

#include "core/device.h"
#include "kv/paged_view.h"

namespace snug::kernels {

// y[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight
struct RmsNormParams {
  Stream stream;
  const float* x = nullptr;       // (tokens, hidden)
  const float* weight = nullptr;  // (hidden)
  float* y = nullptr;             // (tokens, hidden), may be x
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  float eps = 0;
};

// Rotates pairs of q and k in place and stores k and v into the pages.
// A row that belongs to no sequence is left alone. head_dim is a multiple of 8.
// Pairs are (i, i + head_dim/2), as Hugging Face lays them out ("neox"); interleaved: (2i, 2i+1), as GGUF's
// llama.
struct RopeStoreParams {
  Stream stream;
  float* q = nullptr;                       // (tokens, heads * head_dim)
  float* k = nullptr;                       // (tokens, kv_heads * head_dim)
  const float* v = nullptr;                 // (tokens, kv_heads * head_dim)
  const float* cos_sin = nullptr;           // (tokens, head_dim): head_dim/2 cosines, then head_dim/2 sines
  const std::int32_t* positions = nullptr;  // (tokens): where in its sequence a token stands (its KV slot)
  std::int64_t tokens = 0;
  int heads = 0;
  bool interleaved = false;
  kv::PagedLayer kv;  // f16 saturates at ±65504 instead of overflowing
  std::span<const kv::SequenceView> sequences;
};

// y = silu(gate) * up
struct SwigluParams {
  Stream stream;
  const float* gate = nullptr;  // (tokens, intermediate), row stride `stride`
  const float* up = nullptr;    // (tokens, intermediate), row stride `stride`
  float* y = nullptr;           // (tokens, intermediate), row stride `y_stride`; may be gate
  std::int64_t tokens = 0;
  std::int64_t intermediate = 0;
  std::int64_t stride = 0;
  std::int64_t y_stride = 0;
};

namespace ref {
void rms_norm(const RmsNormParams& p);
void rope_store(const RopeStoreParams& p);
void swiglu(const SwigluParams& p);
}  // namespace ref

namespace cpu {
void rms_norm(const RmsNormParams& p);
void rope_store(const RopeStoreParams& p);
void swiglu(const SwigluParams& p);
}  // namespace cpu

}  // namespace snug::kernels
