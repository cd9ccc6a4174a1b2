// One decode step of one sequence on a GPU as a single kernel: all layers, the final norm and the logits. Its
// blocks stay on their multiprocessors and stream the weights without a pause, whatever the arithmetic waits
// for. Only GPUs have this; more sequences, and models that it does not take, go op by op.
//
// Results depend on nothing but the arguments, bit for bit.
#pragma once

#include <cstdint>
#include <span>

#include "core/device.h"
#include "kernels/linear.h"
#include "kv/paged_view.h"

namespace snug::kernels {

struct DecodeLayer {
  const float* input_norm = nullptr;  // (hidden)
  WeightView q, k, v;                 // (heads * head_dim, hidden), (kv_heads * head_dim, hidden) twice
  const float* qkv_bias = nullptr;    // (heads + 2 kv_heads) * head_dim, or null
  WeightView o;                       // (hidden, heads * head_dim)
  const float* post_norm = nullptr;   // (hidden)
  WeightView gate, up;                // (intermediate, hidden), up's bytes behind gate's
  WeightView down;                    // (hidden, intermediate)
  kv::PagedLayer kv;                  // bf16
  std::int64_t window = 0;            // 0: none
};

struct DecodeModel {
  std::span<const DecodeLayer> layers;
  const float* final_norm = nullptr;  // (hidden)
  WeightView lm_head;                 // (vocab, hidden)
  float eps = 0;
  int heads = 0;
  float scale = 0;  // of scores
};

struct DecodeLayersParams {
  Stream stream;
  DecodeModel model;
  kv::DeviceSequences sequences;   // of which only the first is read; its q_len is 1
  const float* cos_sin = nullptr;  // (head_dim): cosines, then sines, of its position
  float* x = nullptr;              // (hidden): the embedded token; overwritten
  // Scratch.
  float* next = nullptr;           // (hidden)
  float* hidden_parts = nullptr;   // (2, hidden)
  float* qkv_parts = nullptr;      // (2, (heads + 2 kv_heads) * head_dim)
  void* attended = nullptr;        // (heads * head_dim) bf16
  void* gated = nullptr;           // (intermediate) bf16
  std::byte* attention = nullptr;  // attention_workspace_bytes() of one sequence
  std::uint32_t* sync = nullptr;   // (kDecodeSyncWords), 8-byte aligned, zero before the first call
  float* logits = nullptr;         // (vocab)
};

namespace cuda {
inline constexpr int kDecodeSyncWords = 64;
// Whether the kernel takes this model on this GPU.
bool decode_layers_supports(const Stream& stream, const DecodeModel& model);
void decode_layers(const DecodeLayersParams& p);
}  // namespace cuda

}  // namespace snug::kernels
