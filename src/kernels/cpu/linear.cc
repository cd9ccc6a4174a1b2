// The loops around the SIMD kernels: which product goes which way, who computes what, in which order.
//
// The work of a call is the row panels of all its outputs, cut further into blocks of tokens when there are
// few panels. Threads take pieces as they get free; who computes a piece never changes its result.

#include "kernels/linear.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>

#include "base/thread_pool.h"
#include "core/arena.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/linear_layout.h"

namespace snug::kernels::cpu {
namespace {

constexpr std::int64_t kMaxPanelRows = 32;
constexpr std::int64_t kMaxGroup = 8;
constexpr std::int64_t kFewTokens = 12;        // up to here a float panel costs more than it saves
constexpr std::int64_t kDecodeColumns = 1024;  // columns of rows decoded at once
constexpr std::int64_t kDecodeRows = 4;

// Of one thread. The parts of one way share the space with those of the others.
constexpr std::int64_t kScratchBytes =
    std::max({kQuantChunkBytes + kQuantChunkBytes / 16 * 8, kFloatChunk* kMaxPanelRows * 4 + kFloatChunk * 4,
              kDecodeColumns* kDecodeRows * 4});

std::int64_t one_token_bytes(std::int64_t cols) {
  return align_up(QuantizedTokens::bytes(1, align_up(cols, 32)));
}

// Calls fn(worker) on every worker of the pool, which may be absent.
template <class Fn>
void run(ThreadPool* pool, Fn&& fn) {
  if (pool == nullptr) {
    fn(0);
  } else {
    pool->run(fn);
  }
}

int threads_of(const ThreadPool* pool) {
  return pool == nullptr ? 1 : pool->size();
}

bool is_number(quant::Format format) {
  return packed_format(format).codes == Codes::none;
}

DType dtype_of(quant::Format format) {
  return format == quant::Format::f32 ? DType::f32 : format == quant::Format::f16 ? DType::f16 : DType::bf16;
}

bool uses_integers(const LinearOutput& out, Precision precision) {
  return out.weight.layout == Layout::packed && precision == Precision::fast;
}

// What a piece of work needs to know.
struct Job {
  const LinearParams& p;
  FloatKernels floats;
};

// One panel of one output and a range of tokens.
struct Piece {
  const LinearOutput& out;
  std::int64_t panel = 0, begin = 0, end = 0;
};

const std::uint8_t* packed_panel(const WeightView& w, std::int64_t panel, int panel_rows) {
  const PackedFormat packed = packed_format(w.format);
  const std::int64_t bytes = w.cols / packed.unit_columns() * packed.unit_bytes(panel_rows);
  return reinterpret_cast<const std::uint8_t*>(w.data) + panel * bytes;
}

PanelOut panel_out(const Piece& piece, int panel_rows) {
  const std::int64_t row = piece.panel * panel_rows;
  return {piece.out.y + row, piece.out.y_stride,
          static_cast<int>(std::min<std::int64_t>(panel_rows, piece.out.weight.rows - row))};
}

void start_sums(const Piece& piece, int panel_rows) {
  const PanelOut to = panel_out(piece, panel_rows);
  const float* bias = piece.out.bias == nullptr ? nullptr : piece.out.bias + piece.panel * panel_rows;
  for (std::int64_t t = piece.begin; t < piece.end; ++t) {
    float* y = to.y + t * to.stride;
    if (!piece.out.add) std::fill_n(y, to.rows, 0.0f);
    if (bias != nullptr) {
      for (int r = 0; r < to.rows; ++r) y[r] += bias[r];
    }
  }
}

void multiply_integers(const Piece& piece, const QuantKernels& k, const QuantizedTokens& x,
                       std::byte* scratch) {
  const WeightView& w = piece.out.weight;
  const PackedFormat packed = packed_format(w.format);
  const std::uint8_t* panel = packed_panel(w, piece.panel, k.panel_rows);
  const std::int64_t chunk = kQuantChunkBytes / k.panel_rows;
  auto* codes = reinterpret_cast<std::uint8_t*>(scratch);
  auto* scales = reinterpret_cast<float*>(scratch + kQuantChunkBytes);
  for (std::int64_t first = 0; first < w.cols; first += chunk) {
    const std::int64_t columns = std::min(chunk, w.cols - first);
    k.unpack(panel + first / packed.unit_columns() * packed.unit_bytes(k.panel_rows), columns, codes, scales);
    k.multiply(codes, scales, x, first, columns, piece.begin, piece.end, panel_out(piece, k.panel_rows));
  }
}

// Packed weights, decoded.
void multiply_decoded(const Job& job, const Piece& piece, const QuantKernels& k, std::byte* scratch) {
  const WeightView& w = piece.out.weight;
  const PackedFormat packed = packed_format(w.format);
  const std::uint8_t* data = packed_panel(w, piece.panel, k.panel_rows);
  auto* panel = reinterpret_cast<float*>(scratch);
  PanelOut to = panel_out(piece, k.panel_rows);
  to.y += piece.begin * to.stride;
  for (std::int64_t first = 0; first < w.cols; first += kFloatChunk) {
    const std::int64_t columns = std::min(kFloatChunk, w.cols - first);
    k.decode(data + first / packed.unit_columns() * packed.unit_bytes(k.panel_rows), columns, panel);
    job.floats.multiply(panel, columns, job.p.x + piece.begin * job.p.x_stride + first, job.p.x_stride,
                        piece.end - piece.begin, to);
  }
}

// Rows as files have them, by dot products.
void multiply_few(const Job& job, const Piece& piece, std::byte* scratch) {
  const WeightView& w = piece.out.weight;
  const quant::FormatInfo& info = quant::info(w.format);
  const std::int64_t row_bytes = quant::bytes_of(w.format, w.cols);
  const PanelOut to = panel_out(piece, job.floats.panel_rows);
  const std::byte* rows = w.data + piece.panel * job.floats.panel_rows * row_bytes;
  const float* x = job.p.x + piece.begin * job.p.x_stride;
  float* y = to.y + piece.begin * to.stride;
  const std::int64_t tokens = piece.end - piece.begin;
  if (is_number(w.format)) {
    job.floats.dot(dtype_of(w.format), rows, row_bytes, w.cols, x, job.p.x_stride, tokens,
                   {y, to.stride, to.rows});
    return;
  }
  auto* decoded = reinterpret_cast<float*>(scratch);
  for (int r = 0; r < to.rows; r += static_cast<int>(kDecodeRows)) {
    const int count = std::min(static_cast<int>(kDecodeRows), to.rows - r);
    for (std::int64_t first = 0; first < w.cols; first += kDecodeColumns) {
      const std::int64_t columns = std::min(kDecodeColumns, w.cols - first);
      for (int i = 0; i < count; ++i) {
        info.decode(rows + (r + i) * row_bytes + quant::bytes_of(w.format, first),
                    decoded + i * kDecodeColumns, columns);
      }
      job.floats.dot(DType::f32, scratch, kDecodeColumns * 4, columns, x + first, job.p.x_stride, tokens,
                     {y + r, to.stride, count});
    }
  }
}

// Rows as files have them, turned into a panel.
void multiply_rows(const Job& job, const Piece& piece, std::byte* scratch) {
  const WeightView& w = piece.out.weight;
  const quant::FormatInfo& info = quant::info(w.format);
  const std::int64_t row_bytes = quant::bytes_of(w.format, w.cols);
  PanelOut to = panel_out(piece, job.floats.panel_rows);
  to.y += piece.begin * to.stride;
  const std::byte* rows = w.data + piece.panel * job.floats.panel_rows * row_bytes;
  auto* panel = reinterpret_cast<float*>(scratch);
  std::byte* decoded = scratch + kFloatChunk * kMaxPanelRows * 4;
  if (to.rows < job.floats.panel_rows) std::memset(panel, 0, kFloatChunk * kMaxPanelRows * 4);
  for (std::int64_t first = 0; first < w.cols; first += kFloatChunk) {
    const std::int64_t columns = std::min(kFloatChunk, w.cols - first);
    for (int r = 0; r < to.rows; ++r) {
      const std::byte* row = rows + r * row_bytes + quant::bytes_of(w.format, first);
      if (is_number(w.format)) {
        job.floats.transpose_row(dtype_of(w.format), row, columns, panel + r);
      } else {
        info.decode(row, reinterpret_cast<float*>(decoded), columns);
        job.floats.transpose_row(DType::f32, decoded, columns, panel + r);
      }
    }
    job.floats.multiply(panel, columns, job.p.x + piece.begin * job.p.x_stride + first, job.p.x_stride,
                        piece.end - piece.begin, to);
  }
}

void compute(const Job& job, const Piece& piece, const QuantKernels& k, const QuantizedTokens& x,
             std::byte* scratch) {
  start_sums(piece, job.floats.panel_rows);
  const bool packed = piece.out.weight.layout == Layout::packed;
  if (uses_integers(piece.out, job.p.precision)) {
    if (job.p.tokens == 1) {
      k.multiply_one(packed_panel(piece.out.weight, piece.panel, k.panel_rows), x,
                     panel_out(piece, k.panel_rows));
    } else {
      multiply_integers(piece, k, x, scratch);
    }
  } else if (packed) {
    multiply_decoded(job, piece, k, scratch);
  } else if (job.p.tokens <= kFewTokens) {
    multiply_few(job, piece, scratch);
  } else {
    multiply_rows(job, piece, scratch);
  }
}

std::int64_t panels_of(const LinearOutput& out, int panel_rows) {
  return (out.weight.rows + panel_rows - 1) / panel_rows;
}

// Pieces [begin, end) of all; an output's pieces go block of tokens by block of tokens.
void compute_range(const Job& job, std::int64_t begin, std::int64_t end, std::int64_t block,
                   const QuantizedTokens& x, std::byte* scratch) {
  const std::int64_t blocks = (job.p.tokens + block - 1) / block;
  std::int64_t offset = 0;
  for (const LinearOutput& out : job.p.outputs) {
    const std::int64_t panels = panels_of(out, job.floats.panel_rows);
    const QuantKernels k = quant_kernels(out.weight.format);
    for (std::int64_t i = std::max(begin, offset); i < std::min(end, offset + panels * blocks); ++i) {
      const std::int64_t first = (i - offset) / panels * block;
      compute(job, {out, (i - offset) % panels, first, std::min(job.p.tokens, first + block)}, k, x, scratch);
    }
    offset += panels * blocks;
  }
}

}  // namespace

std::int64_t packed_bytes(quant::Format format, std::int64_t rows, std::int64_t cols) {
  const int panel_rows = quant_kernels(format).panel_rows;
  const PackedFormat packed = packed_format(format);
  if (panel_rows == 0 || packed.codes == Codes::none || cols % packed.unit_columns() != 0) return 0;
  return (rows + panel_rows - 1) / panel_rows * (cols / packed.unit_columns()) *
         packed.unit_bytes(panel_rows);
}

void pack_rows(const Stream& stream, const WeightView& source, std::byte* packed_data) {
  const PackedFormat packed = packed_format(source.format);
  const int panel_rows = quant_kernels(source.format).panel_rows;
  const std::int64_t units = source.cols / packed.unit_columns();
  const std::int64_t unit_bytes = quant::bytes_of(source.format, packed.unit_columns());
  const std::int64_t panels = (source.rows + panel_rows - 1) / panel_rows;
  std::atomic<std::int64_t> next{0};
  run(stream.pool, [&](int) {
    UnpackedUnit unit;
    for (std::int64_t panel = next.fetch_add(1); panel < panels; panel = next.fetch_add(1)) {
      const std::int64_t first = panel * panel_rows;
      const int rows = static_cast<int>(std::min<std::int64_t>(panel_rows, source.rows - first));
      const auto* in = reinterpret_cast<const std::uint8_t*>(source.data) + first * units * unit_bytes;
      auto* out =
          reinterpret_cast<std::uint8_t*>(packed_data) + panel * units * packed.unit_bytes(panel_rows);
      if (rows < panel_rows)
        std::memset(out, 0, static_cast<std::size_t>(units * packed.unit_bytes(panel_rows)));
      for (std::int64_t u = 0; u < units; ++u, out += packed.unit_bytes(panel_rows)) {
        for (int r = 0; r < rows; ++r) {
          unpack_unit(source.format, in + (r * units + u) * unit_bytes, unit);
          write_unit(packed, unit, panel_rows, r, out);
        }
      }
    }
  });
}

std::int64_t linear_workspace_bytes(std::int64_t max_tokens, std::int64_t max_cols, int threads) {
  const std::int64_t cols = align_up(max_cols, 32);
  const std::int64_t shared = align_up(QuantizedTokens::bytes(align_up(max_tokens, kMaxGroup), cols));
  return shared + threads * (align_up(kScratchBytes) + one_token_bytes(cols));
}

void linear(const LinearParams& p) {
  if (p.tokens <= 0 || p.outputs.empty()) return;
  const int threads = threads_of(p.stream.pool);
  const std::int64_t cols = p.outputs.front().weight.cols;
  assert(p.workspace_bytes >= linear_workspace_bytes(p.tokens, cols, threads));
  const FloatKernels floats = float_kernels();
  const QuantKernels any = quant_kernels(quant::Format::q4_0);
  bool integers = false;
  std::int64_t panels = 0;
  for (const LinearOutput& out : p.outputs) {
    integers = integers || uses_integers(out, p.precision);
    panels += panels_of(out, floats.panel_rows);
  }

  Arena arena(p.workspace, p.workspace_bytes);
  std::byte* scratch = arena.take<std::byte>(threads * align_up(kScratchBytes));
  QuantizedTokens shared;
  std::byte* own = nullptr;
  if (integers && p.tokens == 1) {
    own = arena.take<std::byte>(threads * one_token_bytes(cols));
  } else if (integers) {
    const std::int64_t padded = align_up(p.tokens, any.group);
    shared = QuantizedTokens::at(arena.take<std::byte>(QuantizedTokens::bytes(padded, cols)), padded, cols,
                                 any.group);
    const auto quantize = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t g = begin; g < end; ++g) {
        quantize_group(p.x, p.x_stride, g * any.group,
                       std::min<std::int64_t>(any.group, p.tokens - g * any.group), shared);
      }
    };
    if (p.stream.pool == nullptr) {
      quantize(0, padded / any.group);
    } else {
      p.stream.pool->parallel_for(padded / any.group, 4,
                                  [&](std::int64_t b, std::int64_t e, int) { quantize(b, e); });
    }
  }

  // Blocks of tokens where panels alone would not feed the threads; a multiple of every group.
  std::int64_t block = p.tokens;
  if (p.tokens > kFewTokens && panels < 4 * threads) {
    block = std::max<std::int64_t>(32, align_up((p.tokens * panels + 4 * threads - 1) / (4 * threads), 32));
  }
  const std::int64_t pieces = panels * ((p.tokens + block - 1) / block);
  const std::int64_t grain = p.tokens > 1 ? 1 : std::max<std::int64_t>(1, pieces / (8 * threads));
  const Job job{p, floats};
  std::atomic<std::int64_t> next{0};
  run(p.stream.pool, [&](int worker) {
    QuantizedTokens x = shared;
    if (own != nullptr) {
      x = QuantizedTokens::at(own + worker * one_token_bytes(cols), 1, cols, 1);
      quantize_group(p.x, p.x_stride, 0, 1, x);
    }
    for (;;) {
      const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= pieces) return;
      compute_range(job, begin, std::min(pieces, begin + grain), block, x,
                    scratch + worker * align_up(kScratchBytes));
    }
  });
}

void embedding(const EmbeddingParams& p) {
  const WeightView& w = p.table;
  const QuantKernels k = quant_kernels(w.format);
  const PackedFormat packed = packed_format(w.format);
  const quant::FormatInfo& info = quant::info(w.format);
  const auto gather = [&](std::int64_t token) {
    const std::int64_t row = p.ids[token];
    float* y = p.y + token * w.cols;
    if (w.layout == Layout::rows) {
      info.decode(w.data + row * quant::bytes_of(w.format, w.cols), y, w.cols);
      return;
    }
    alignas(64) float panel[256 * kMaxPanelRows];
    const std::uint8_t* unit = packed_panel(w, row / k.panel_rows, k.panel_rows);
    const int columns = packed.unit_columns();
    for (std::int64_t first = 0; first < w.cols; first += columns, unit += packed.unit_bytes(k.panel_rows)) {
      k.decode(unit, columns, panel);
      for (int i = 0; i < columns; ++i) y[first + i] = panel[i * k.panel_rows + row % k.panel_rows];
    }
  };
  if (p.stream.pool == nullptr) {
    for (std::int64_t t = 0; t < p.tokens; ++t) gather(t);
  } else {
    p.stream.pool->parallel_for(p.tokens, 8, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t t = begin; t < end; ++t) gather(t);
    });
  }
}

const char* target_name() {
  return float_kernels().target;
}

}  // namespace snug::kernels::cpu
