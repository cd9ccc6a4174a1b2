// The small ops between the matrix products. Activations are row-major; float32 on the CPU, float32 or
// bfloat16 (the arithmetic stays float32) on a GPU.
#pragma once

#include <cstdint>
#include <span>

#include "core/device.h"
#include "core/values.h"
#include "kernels/residual.h"
#include "kv/paged_view.h"

namespace snug::kernels {

// y[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight
struct RmsNormParams {
  Stream stream;
  const float* x = nullptr;       // (rows, hidden)
  const float* weight = nullptr;  // (hidden)
  Values y;                       // (tokens, hidden), may be x where rows is null
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  float eps = 0;
  const std::int32_t* rows = nullptr;  // (tokens): y[t] is of x[rows[t]]; null: of x[t]
};

// Rotates pairs of q and k in place and stores k and v into the pages.
// A row that belongs to no sequence is left alone. head_dim is a multiple of 8.
// Pairs are (i, i + head_dim/2), as Hugging Face lays them out ("neox"); interleaved: (2i, 2i+1), as GGUF's
// llama.
struct RopeStoreParams {
  Stream stream;
  Values q;                                 // (tokens, heads * head_dim), row stride q_stride
  Values k;                                 // (tokens, kv_heads * head_dim), row stride kv_stride
  ConstValues v;                            // (tokens, kv_heads * head_dim), row stride kv_stride
  const float* cos_sin = nullptr;           // (tokens, head_dim): head_dim/2 cosines, then head_dim/2 sines
  const std::int32_t* positions = nullptr;  // (tokens): where in its sequence a token stands (its KV slot)
  std::int64_t tokens = 0;
  int heads = 0;
  bool interleaved = false;
  std::int64_t q_stride = 0;                    // 0: heads * head_dim
  std::int64_t kv_stride = 0;                   // 0: kv_heads * head_dim
  kv::PagedLayer kv;                            // f16 saturates at ±65504 instead of overflowing
  std::span<const kv::SequenceView> sequences;  // host
  kv::DeviceSequences device;                   // cuda: the same sequences
  // cuda: what is still to be added to the products q, k and v, whose columns follow one another in it; with
  // parts, q, k and v themselves hold nothing yet. Rotated q goes to q; rotated k and v go to the pages
  // alone.
  Pending pending;

  std::int64_t q_row_stride() const { return q_stride > 0 ? q_stride : std::int64_t{heads} * kv.head_dim; }
  std::int64_t kv_row_stride() const {
    return kv_stride > 0 ? kv_stride : std::int64_t{kv.kv_heads} * kv.head_dim;
  }
};

// The cosines and sines of positions: cos(position * inverse_frequency) * factor. The angle is rounded to
// float32 as in the reference implementations, so long contexts agree.
struct RopeAnglesParams {
  Stream stream;
  std::span<const float> inverse_frequencies;  // (head_dim / 2), host, at most 128
  float factor = 1;
  const std::int32_t* positions = nullptr;  // (tokens)
  std::int64_t tokens = 0;
  float* cos_sin = nullptr;  // (tokens, head_dim): head_dim/2 cosines, then head_dim/2 sines
};

// y = silu(gate) * up
struct SwigluParams {
  Stream stream;
  ConstValues gate;  // (tokens, intermediate), row stride `stride`
  ConstValues up;    // (tokens, intermediate), row stride `stride`
  Values y;          // (tokens, intermediate), row stride `y_stride`; may be gate
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
void rope_angles(const RopeAnglesParams& p);
}  // namespace cpu

namespace cuda {
void rms_norm(const RmsNormParams& p);
void rope_store(const RopeStoreParams& p);
void rope_angles(const RopeAnglesParams& p);
void swiglu(const SwigluParams& p);
// Adds what is pending to the stream: x += parts; pending.count becomes 0. For readers that are no fused
// norm.
void settle(const SettleParams& p);
}  // namespace cuda

}  // namespace snug::kernels
