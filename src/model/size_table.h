// The bytes that a model needs, row by row. The same rows predict the peak, make the allocations and print
// the report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "model/config.h"
#include "model/weight_specs.h"

namespace snug::model {

enum class Lifetime : std::uint8_t { load, run };  // needed only while loading, or until the end

struct SizeRow {
  std::string tag;
  std::string shape;  // for people: "(512, 896) float32"
  std::int64_t bytes = 0;
  Device device = Device::host;
  Lifetime lifetime = Lifetime::run;
};

// How a weight lies in host memory.
enum class Placement : std::uint8_t {
  vector,    // a norm or bias, as float32
  packed,    // rows interleaved for the kernels, made at load
  in_place,  // as the file has it: mapped, or (random weights) allocated
  uploaded,  // on the GPU, in the form that kernels::cuda::target_of names
};

struct PlacedWeight {
  BoundWeight weight;
  Placement placement = Placement::in_place;
  std::int64_t bytes = 0;
  Device device = Device::host;
};

// What the kernels prefer for each weight. exact: on a GPU every weight is decoded to float32.
std::vector<PlacedWeight> place_weights(std::vector<BoundWeight> weights, Backend backend = Backend::cpu,
                                        bool exact = false);

// Bytes of a mapped tensor that are read at a time while packing it.
inline constexpr std::int64_t kPackSlice = 16ll << 20;
// For a GPU: bytes uploaded at a time to be packed there, and elements decoded at a time.
inline constexpr std::int64_t kUploadSlice = 32ll << 20;
inline constexpr std::int64_t kDecodeSlice = 8ll << 20;

// One row per placement. `mapped`: weights that stay in place are a file's pages, not an allocation.
std::vector<SizeRow> weight_rows(const std::vector<PlacedWeight>& weights, bool mapped);

// How a forward pass is bounded.
struct ForwardLimits {
  std::int64_t tokens = 512;    // rows of one batch: the prefill chunk
  std::int64_t sequences = 1;   // sequences of one batch
  std::int64_t logit_rows = 1;  // rows projected to the vocabulary at a time
  int threads = 1;
  Backend backend = Backend::cpu;
  DType activations = DType::f32;  // inside a layer; the residual stream and logits are float32
  Device device() const { return backend == Backend::cuda ? Device::gpu0 : Device::host; }
};

// Activations and kernel scratch of a forward pass: rows of one allocation each.
std::vector<SizeRow> activation_rows(const Config& config, const ForwardLimits& limits);

// A batch's arrays on the GPU and their pinned twin (engine/device_batch.h), with what comes back of each
// row.
std::int64_t device_batch_ints(std::int64_t tokens, std::int64_t sequences, std::int64_t pages);
std::vector<SizeRow> device_batch_rows(const ForwardLimits& limits, std::int64_t max_model_len,
                                       int block_size, std::int64_t vocab);

// The KV cache of `blocks` blocks.
SizeRow kv_row(const Config& config, std::int64_t blocks, int block_size, DType dtype,
               Device device = Device::host);

std::int64_t total_bytes(const std::vector<SizeRow>& rows, Device device, Lifetime lifetime);

}  // namespace snug::model
