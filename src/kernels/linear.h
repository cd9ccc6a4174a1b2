// y = x · Wᵀ (+ bias): weights in any number format. Activations and results are float32 on the CPU; on a GPU
// either may be bfloat16.
//
// A weight is used in place (row-major blocks, as files have it) or in a packed layout made once at load, in
// which rows are interleaved so that one activation load feeds many accumulators. Packing never changes a
// value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/device.h"
#include "core/values.h"
#include "quant/format.h"

namespace snug::kernels {

enum class Layout : std::uint8_t {
  rows,    // (rows, cols) row-major, as in files
  packed,  // made by cpu:: or cuda::pack_rows; what exactly is the kernel's business
};

// A view; does not own the bytes.
struct WeightView {
  quant::Format format = quant::Format::f32;
  Layout layout = Layout::rows;
  std::int64_t rows = 0;  // outputs
  std::int64_t cols = 0;  // inputs; a multiple of the format's block
  const std::byte* data = nullptr;
};

// exact: activations stay float32 and weights are decoded to float32 (what --dtype float32 asks for).
// fine:  for packed quantised weights, activations are rounded to 8 bits per 32-block and the rest of that
//        rounding to 8 bits once more: 16 bits in all, for products that later steps magnify (queries and
//        keys).
// fast:  the first 8 bits alone, as is usual.
// Weights that are not quantised are multiplied in float32, but for one case: fast rounds activations to
// bfloat16 (to nearest even) for BF16 weights in place with an even number of columns, where the CPU
// multiplies pairs of bfloat16 (AVX512-BF16).
enum class Precision : std::uint8_t { exact, fine, fast };

// One product among several that share x (q, k, v; gate, up).
struct LinearOutput {
  WeightView weight;
  const float* bias = nullptr;  // (rows) or null
  Values y;                     // (tokens, rows), row stride y_stride
  std::int64_t y_stride = 0;
  bool add = false;  // y += instead of y =
};

struct LinearParams {
  Stream stream;
  ConstValues x;  // (tokens, cols), row stride x_stride; cols is the weights' common cols
  std::int64_t x_stride = 0;
  std::int64_t tokens = 0;
  std::span<const LinearOutput> outputs;
  Precision precision = Precision::fast;
  std::byte* workspace = nullptr;  // linear_workspace_bytes(max tokens, max cols, threads), 64-byte aligned
  std::int64_t workspace_bytes = 0;
};

struct EmbeddingParams {
  Stream stream;
  WeightView table;                   // (vocab, hidden), either layout
  const std::int32_t* ids = nullptr;  // (tokens), each < table.rows
  std::int64_t tokens = 0;
  float* y = nullptr;  // (tokens, hidden)
};

namespace ref {
void linear(const LinearParams& p);        // Layout::rows only, through quant's scalar decode
void embedding(const EmbeddingParams& p);  // Layout::rows only
}  // namespace ref

namespace cpu {
// Bytes of the packed layout of a (rows, cols) weight, or 0 where the kernel prefers it in place on this CPU.
std::int64_t packed_bytes(quant::Format format, std::int64_t rows, std::int64_t cols);
// Packs all rows from row-major `source` into `packed` (packed_bytes), in parallel on the stream's pool.
// `source` needs no alignment, so it may lie in a mapped file.
void pack_rows(const Stream& stream, const WeightView& source, std::byte* packed);

std::int64_t linear_workspace_bytes(std::int64_t max_tokens, std::int64_t max_cols, int threads);
// A result depends on no thread count; with packed weights and Precision::fast on no other token of the call
// either.
void linear(const LinearParams& p);
void embedding(const EmbeddingParams& p);
// The instruction set in use: "AVX2", "AVX3_DL" …
const char* target_name();
}  // namespace cpu

namespace cuda {
// What a weight becomes on the GPU: bf16 and f32 stay row-major, Q4_0, Q8_0, Q4_K and Q6_K are repacked for
// the tensor cores where cols is a multiple of 64 (of 256 for the K types) and rows of 16. Everything else is
// decoded at load, to bf16, or to f32 for exact arithmetic, as is every weight there.
struct Target {
  quant::Format format = quant::Format::bf16;
  Layout layout = Layout::rows;
  std::int64_t bytes = 0;
};
Target target_of(quant::Format format, std::int64_t rows, std::int64_t cols, bool exact);
// Whether b's rows lie behind a's, so that both are one weight.
bool is_behind(const WeightView& a, const WeightView& b);
// As few weights: rows that lie one behind the other are one.
std::vector<WeightView> merged(std::span<const WeightView> weights);
// Packs rows [first_row, first_row + source.rows) of a weight of target.rows rows. `source` and `target` are
// device memory, `source` row-major; first_row is a multiple of 16.
void pack_rows(const Stream& stream, const WeightView& source, const WeightView& target,
               std::int64_t first_row);
// The other way: rows [begin, end), a multiple of 16, of a packed weight as bf16, row-major.
void unpack_rows(const Stream& stream, const WeightView& packed, std::int64_t begin, std::int64_t end,
                 void* bf16);

// Scratch for unpacked rows (none is needed where no weight is packed).
std::int64_t linear_workspace_bytes(std::int64_t max_cols);
// bf16 weights: x bf16 and y bf16 or f32, through cuBLASLt. Packed weights: the same, a slice of rows after
// the other. f32 weights: x and y f32, `simple_linear`. Outputs whose weights and results lie one behind the
// other are one product.
void linear(const LinearParams& p);
// The numbers of tokens, up to `most`, after which linear() has met every kernel it may use for the same
// weights and fewer tokens: the driver loads a kernel, into memory that is nobody's yet, when it is first
// met.
std::vector<std::int64_t> linear_token_counts(std::int64_t most);
// Any weight, any dtype of x and y, in a fixed order of additions: what exact arithmetic runs, and the twin
// that tests the others.
void simple_linear(const LinearParams& p);
void embedding(const EmbeddingParams& p);
}  // namespace cuda

}  // namespace snug::kernels
