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
#include "hwy/cache_control.h"
#include "kernels/cpu/linear_bf16.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/linear_layout.h"

namespace snug::kernels::cpu {
namespace {

constexpr std::int64_t kMaxGroup = 8;
constexpr std::int64_t kFewTokens = 12;        // up to here a float panel costs more than it saves
constexpr std::int64_t kDecodeColumns = 1024;  // columns of rows decoded at once
constexpr std::int64_t kDecodeRows = 4;
constexpr std::int64_t kFewBytes = 160 << 10;  // weights of one piece where tokens are few
// Many tokens: activations of a few tokens (in L1) pass by this many unpacked panels (in L2) before the next
// few.
constexpr std::int64_t kPanelsAtOnce = 4;
constexpr std::int64_t kFloatPanelsAtOnce = 4;
constexpr std::int64_t kTokensAtOnce = 8;  // a multiple of every group
constexpr std::int64_t kFloatTokensAtOnce = 12;

// Of one thread. The parts of one way share the space with those of the others.
constexpr std::int64_t kQuantScratch = kQuantChunkBytes + kQuantChunkBytes / 16 * 8;
std::int64_t scratch_bytes(std::int64_t panel_rows) {
  return std::max({kPanelsAtOnce * kQuantScratch, (kFloatPanelsAtOnce + 1) * kFloatChunk * panel_rows * 4,
                   kDecodeColumns * kDecodeRows * 4});
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

// Calls fn(begin, end) over parts of [0, count).
template <class Fn>
void for_range(ThreadPool* pool, std::int64_t count, Fn&& fn) {
  if (pool == nullptr) {
    fn(std::int64_t{0}, count);
  } else {
    pool->parallel_for(count, 4, [&](std::int64_t begin, std::int64_t end, int) { fn(begin, end); });
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
  return out.weight.layout == Layout::packed && precision != Precision::exact;
}

// What a piece of work needs to know.
struct Job {
  const LinearParams& p;
  FloatKernels floats;
  Bf16Kernels bf16;  // where available and wanted

  bool uses_bf16(const WeightView& w) const {
    return bf16.available() && w.format == quant::Format::bf16 && w.layout == Layout::rows && w.cols % 2 == 0;
  }
};

Bf16Kernels usable_bf16(const FloatKernels& floats) {
  const Bf16Kernels bf16 = bf16_kernels();
  return bf16.panel_rows == floats.panel_rows ? bf16 : Bf16Kernels();  // float32 transposes its panels
}

// Some panels of one output and a range of tokens.
struct Piece {
  const LinearOutput& out;
  std::int64_t panel = 0, panels = 1;
  std::int64_t begin = 0, end = 0;
};

// Column `first` of a packed panel; `first` begins a unit.
const std::uint8_t* packed_panel(const WeightView& w, std::int64_t panel, int panel_rows,
                                 std::int64_t first = 0) {
  const PackedFormat packed = packed_format(w.format);
  return reinterpret_cast<const std::uint8_t*>(w.data) + panel * packed.panel_bytes(w.cols, panel_rows) +
         packed.panel_bytes(first, panel_rows);
}

PanelOut panel_out(const Piece& piece, std::int64_t i, int panel_rows) {
  const std::int64_t row = (piece.panel + i) * panel_rows;
  return {piece.out.y.f32() + row, piece.out.y_stride,
          static_cast<int>(std::min<std::int64_t>(panel_rows, piece.out.weight.rows - row))};
}

void start_sums(const Piece& piece, int panel_rows) {
  const std::int64_t row = piece.panel * panel_rows;
  const std::int64_t rows = std::min(piece.panels * panel_rows, piece.out.weight.rows - row);
  for (std::int64_t t = piece.begin; t < piece.end; ++t) {
    float* y = piece.out.y.f32() + t * piece.out.y_stride + row;
    if (!piece.out.add) std::fill_n(y, rows, 0.0f);
    if (piece.out.bias != nullptr) {
      for (std::int64_t r = 0; r < rows; ++r) y[r] += piece.out.bias[row + r];
    }
  }
}

void multiply_integers(const Piece& piece, const QuantKernels& k, const QuantizedTokens& x,
                       std::byte* scratch) {
  const WeightView& w = piece.out.weight;
  const std::int64_t chunk = kQuantChunkBytes / k.panel_rows;
  const auto codes = [&](std::int64_t i) {
    return reinterpret_cast<std::uint8_t*>(scratch + i * kQuantScratch);
  };
  const auto scales = [&](std::int64_t i) { return reinterpret_cast<float*>(codes(i) + kQuantChunkBytes); };
  for (std::int64_t first = 0; first < w.cols; first += chunk) {
    const std::int64_t columns = std::min(chunk, w.cols - first);
    for (std::int64_t i = 0; i < piece.panels; ++i) {
      k.unpack(packed_panel(w, piece.panel + i, k.panel_rows, first), columns, codes(i), scales(i));
    }
    for (std::int64_t t = piece.begin; t < piece.end; t += kTokensAtOnce) {
      for (std::int64_t i = 0; i < piece.panels; ++i) {
        k.multiply(codes(i), scales(i), x, first, columns, t, std::min(t + kTokensAtOnce, piece.end),
                   panel_out(piece, i, k.panel_rows));
      }
    }
  }
}

float* float_panel(std::byte* scratch, std::int64_t i, int panel_rows) {
  return reinterpret_cast<float*>(scratch) + i * kFloatChunk * panel_rows;
}

// While panel i is multiplied, its share of the next tokens' activations: they come from L3 or farther, row
// by row.
void prefetch_part(const LinearParams& p, std::int64_t token, const Piece& piece, std::int64_t i,
                   std::int64_t first, std::int64_t columns) {
  const std::int64_t share = (kFloatTokensAtOnce + piece.panels - 1) / piece.panels;
  const std::int64_t end = std::min({token + (i + 1) * share, token + kFloatTokensAtOnce, piece.end});
  for (std::int64_t t = token + i * share; t < end; ++t) {
    const float* x = p.x.f32() + t * p.x_stride + first;
    for (std::int64_t k = 0; k < columns; k += 16) hwy::Prefetch(x + k);
  }
}

// Columns [first, first + columns) of all tokens times the float panels in scratch.
void multiply_floats(const Job& job, const Piece& piece, std::int64_t first, std::int64_t columns,
                     std::byte* scratch) {
  const int panel_rows = job.floats.panel_rows;
  for (std::int64_t t = piece.begin; t < piece.end; t += kFloatTokensAtOnce) {
    for (std::int64_t i = 0; i < piece.panels; ++i) {
      PanelOut to = panel_out(piece, i, panel_rows);
      to.y += t * to.stride;
      prefetch_part(job.p, t + kFloatTokensAtOnce, piece, i, first, columns);
      job.floats.multiply(float_panel(scratch, i, panel_rows), columns,
                          job.p.x.f32() + t * job.p.x_stride + first, job.p.x_stride,
                          std::min(kFloatTokensAtOnce, piece.end - t), to);
    }
  }
}

// Packed weights, decoded.
void multiply_decoded(const Job& job, const Piece& piece, const QuantKernels& k, std::byte* scratch) {
  const WeightView& w = piece.out.weight;
  for (std::int64_t first = 0; first < w.cols; first += kFloatChunk) {
    const std::int64_t columns = std::min(kFloatChunk, w.cols - first);
    for (std::int64_t i = 0; i < piece.panels; ++i) {
      k.decode(packed_panel(w, piece.panel + i, k.panel_rows, first), columns,
               float_panel(scratch, i, k.panel_rows));
    }
    multiply_floats(job, piece, first, columns, scratch);
  }
}

// Rows as files have them, by dot products.
void multiply_few(const Job& job, const Piece& piece, const Bf16Tokens& halves, std::byte* scratch) {
  const WeightView& w = piece.out.weight;
  const quant::FormatInfo& info = quant::info(w.format);
  const std::int64_t row_bytes = quant::bytes_of(w.format, w.cols);
  const int panel_rows = job.floats.panel_rows;
  PanelOut to = panel_out(piece, 0, panel_rows);
  to.rows = static_cast<int>(std::min(piece.panels * panel_rows, w.rows - piece.panel * panel_rows));
  const std::byte* rows = w.data + piece.panel * panel_rows * row_bytes;
  const float* x = job.p.x.f32() + piece.begin * job.p.x_stride;
  float* y = to.y + piece.begin * to.stride;
  const std::int64_t tokens = piece.end - piece.begin;
  if (job.uses_bf16(w)) {
    job.bf16.dot(rows, row_bytes, w.cols, halves.data + piece.begin * halves.stride, halves.stride, tokens,
                 {y, to.stride, to.rows});
    return;
  }
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

// Rows as files have them, turned into panels.
void multiply_rows(const Job& job, const Piece& piece, std::byte* scratch) {
  const WeightView& w = piece.out.weight;
  const quant::FormatInfo& info = quant::info(w.format);
  const std::int64_t row_bytes = quant::bytes_of(w.format, w.cols);
  const int panel_rows = job.floats.panel_rows;
  float* decoded = float_panel(scratch, kFloatPanelsAtOnce, panel_rows);
  for (std::int64_t first = 0; first < w.cols; first += kFloatChunk) {
    const std::int64_t columns = std::min(kFloatChunk, w.cols - first);
    for (std::int64_t i = 0; i < piece.panels; ++i) {
      float* panel = float_panel(scratch, i, panel_rows);
      const int rows = panel_out(piece, i, panel_rows).rows;
      const std::byte* source =
          w.data + (piece.panel + i) * panel_rows * row_bytes + quant::bytes_of(w.format, first);
      if (rows < panel_rows) std::fill_n(panel, kFloatChunk * panel_rows, 0.0f);
      if (is_number(w.format)) {
        job.floats.transpose(dtype_of(w.format), source, row_bytes, rows, columns, panel);
      } else {
        for (int r = 0; r < rows; ++r) {
          info.decode(source + r * row_bytes, decoded + r * kFloatChunk, columns);
        }
        job.floats.transpose(DType::f32, reinterpret_cast<const std::byte*>(decoded), kFloatChunk * 4, rows,
                             columns, panel);
      }
    }
    multiply_floats(job, piece, first, columns, scratch);
  }
}

// The same with bf16 activations: a pair of bf16 takes the place of a float32.
void multiply_bf16(const Job& job, const Piece& piece, const Bf16Tokens& x, std::byte* scratch) {
  const WeightView& w = piece.out.weight;
  const int panel_rows = job.floats.panel_rows;
  const auto panel = [&](std::int64_t i) {
    return reinterpret_cast<std::byte*>(float_panel(scratch, i, panel_rows));
  };
  for (std::int64_t first = 0; first < w.cols; first += 2 * kFloatChunk) {
    const std::int64_t pairs = std::min(2 * kFloatChunk, w.cols - first) / 2;
    for (std::int64_t i = 0; i < piece.panels; ++i) {
      const int rows = panel_out(piece, i, panel_rows).rows;
      if (rows < panel_rows) std::memset(panel(i), 0, static_cast<std::size_t>(kFloatChunk * panel_rows * 4));
      job.floats.transpose(DType::f32, w.data + ((piece.panel + i) * panel_rows * w.cols + first) * 2,
                           w.cols * 2, rows, pairs, float_panel(scratch, i, panel_rows));
    }
    for (std::int64_t t = piece.begin; t < piece.end; t += kFloatTokensAtOnce) {
      for (std::int64_t i = 0; i < piece.panels; ++i) {
        PanelOut to = panel_out(piece, i, panel_rows);
        to.y += t * to.stride;
        job.bf16.multiply(panel(i), pairs, x.data + t * x.stride + first, x.stride,
                          std::min(kFloatTokensAtOnce, piece.end - t), to);
      }
    }
  }
}

// Activations as bytes: once, or (fine) with what the first rounding left.
struct Rounded {
  QuantizedTokens first, rest;
  bool has_rest = false;

  static std::int64_t bytes(std::int64_t tokens, std::int64_t cols, bool with_rest) {
    return align_up(QuantizedTokens::bytes(tokens, cols)) * (with_rest ? 2 : 1);
  }
  static Rounded at(std::byte* data, std::int64_t tokens, std::int64_t cols, int group, bool with_rest) {
    Rounded x{QuantizedTokens::at(data, tokens, cols, group), {}, with_rest};
    const std::int64_t size = align_up(QuantizedTokens::bytes(tokens, cols));
    if (with_rest) x.rest = QuantizedTokens::at(data + size, tokens, cols, group);
    return x;
  }
  void quantize(const LinearParams& p, std::int64_t begin, std::int64_t count) const {
    quantize_group(p.x.f32(), p.x_stride, begin, count, first, has_rest ? &rest : nullptr);
  }
};

void compute(const Job& job, const Piece& piece, const QuantKernels& k, const Rounded& x,
             const Bf16Tokens& halves, std::byte* scratch) {
  start_sums(piece, job.floats.panel_rows);
  const bool packed = piece.out.weight.layout == Layout::packed;
  if (uses_integers(piece.out, job.p.precision)) {
    if (job.p.tokens == 1) {
      for (std::int64_t i = 0; i < piece.panels; ++i) {
        const std::uint8_t* panel = packed_panel(piece.out.weight, piece.panel + i, k.panel_rows);
        const PanelOut to = panel_out(piece, i, k.panel_rows);
        k.multiply_one(panel, x.first, to);
        if (x.has_rest) k.multiply_one(panel, x.rest, to);
      }
    } else {
      multiply_integers(piece, k, x.first, scratch);
      if (x.has_rest) multiply_integers(piece, k, x.rest, scratch);
    }
  } else if (packed) {
    multiply_decoded(job, piece, k, scratch);
  } else if (job.p.tokens <= kFewTokens) {
    multiply_few(job, piece, halves, scratch);
  } else if (job.uses_bf16(piece.out.weight)) {
    multiply_bf16(job, piece, halves, scratch);
  } else {
    multiply_rows(job, piece, scratch);
  }
}

// How a call's work is cut.
struct Cut {
  std::int64_t panels_at_once = 1, tokens_at_once = 1;

  std::int64_t pieces(const LinearOutput& out, int panel_rows, std::int64_t tokens) const {
    const std::int64_t rows = panels_at_once * panel_rows;
    return (out.weight.rows + rows - 1) / rows * ((tokens + tokens_at_once - 1) / tokens_at_once);
  }
};

// Of a piece of the output with the longest rows.
std::int64_t bytes_at_once(const LinearParams& p, const Cut& cut, int panel_rows) {
  std::int64_t bytes = 0;
  for (const LinearOutput& out : p.outputs) {
    bytes = std::max(bytes,
                     cut.panels_at_once * panel_rows * quant::bytes_of(out.weight.format, out.weight.cols));
  }
  return bytes;
}

Cut choose_cut(const LinearParams& p, bool integers, int panel_rows, int threads) {
  if (integers && p.tokens <= kFewTokens) return {1, p.tokens};
  Cut cut{integers ? kPanelsAtOnce : kFloatPanelsAtOnce, p.tokens};
  const auto count = [&] {
    std::int64_t pieces = 0;
    for (const LinearOutput& out : p.outputs) pieces += cut.pieces(out, panel_rows, p.tokens);
    return pieces;
  };
  if (p.tokens <= kFewTokens) {
    // Long runs of rows are read fastest, but every thread needs its pieces.
    while (cut.panels_at_once > 1 &&
           (bytes_at_once(p, cut, panel_rows) > kFewBytes || count() < 4 * threads)) {
      cut.panels_at_once /= 2;
    }
    return cut;
  }
  const std::int64_t pieces = count();
  // Blocks of tokens where panels alone would not feed the threads.
  if (threads > 1 && pieces < 4 * threads) {
    cut.tokens_at_once = std::max<std::int64_t>(24, align_up(p.tokens * pieces / (4 * threads), 24));
  }
  return cut;
}

// Pieces [begin, end) of all; an output's pieces go block of tokens by block of tokens.
void compute_range(const Job& job, const Cut& cut, std::int64_t begin, std::int64_t end, const Rounded& x,
                   const Bf16Tokens& halves, std::byte* scratch) {
  const int panel_rows = job.floats.panel_rows;
  std::int64_t offset = 0;
  for (const LinearOutput& out : job.p.outputs) {
    const std::int64_t pieces = cut.pieces(out, panel_rows, job.p.tokens);
    const std::int64_t panels = (out.weight.rows + panel_rows - 1) / panel_rows;
    const std::int64_t across = (panels + cut.panels_at_once - 1) / cut.panels_at_once;
    const QuantKernels k = quant_kernels(out.weight.format);
    for (std::int64_t i = std::max(begin, offset); i < std::min(end, offset + pieces); ++i) {
      const std::int64_t panel = (i - offset) % across * cut.panels_at_once;
      const std::int64_t token = (i - offset) / across * cut.tokens_at_once;
      compute(job,
              {out, panel, std::min(cut.panels_at_once, panels - panel), token,
               std::min(job.p.tokens, token + cut.tokens_at_once)},
              k, x, halves, scratch);
    }
    offset += pieces;
  }
}

}  // namespace

std::int64_t linear_workspace_bytes(std::int64_t max_tokens, std::int64_t max_cols, int threads) {
  const std::int64_t cols = align_up(max_cols, 32);
  const bool bf16 = usable_bf16(float_kernels()).available();
  // fine needs two roundings to bytes; fast needs one, and bf16 where outputs of both kinds share a call.
  const auto rounded = [&](std::int64_t bytes_tokens, std::int64_t tokens) {
    return std::max(Rounded::bytes(bytes_tokens, cols, true),
                    Rounded::bytes(bytes_tokens, cols, false) + (bf16 ? Bf16Tokens::bytes(tokens, cols) : 0));
  };
  return rounded(align_up(max_tokens, kMaxGroup), max_tokens) +
         threads * (align_up(scratch_bytes(kMaxPanelRows)) + rounded(1, 1));
}

void linear(const LinearParams& p) {
  if (p.tokens <= 0 || p.outputs.empty()) return;
  const int threads = threads_of(p.stream.pool);
  const std::int64_t cols = p.outputs.front().weight.cols;
  assert(p.workspace_bytes >= linear_workspace_bytes(p.tokens, cols, threads));
  const FloatKernels floats = float_kernels();
  const QuantKernels any = quant_kernels(quant::Format::q4_0);
  const Job job{p, floats, p.precision == Precision::fast ? usable_bf16(floats) : Bf16Kernels()};
  bool integers = false, bf16 = false;
  std::int64_t pieces = 0;
  for (const LinearOutput& out : p.outputs) {
    integers = integers || uses_integers(out, p.precision);
    bf16 = bf16 || job.uses_bf16(out.weight);
  }
  const Cut cut = choose_cut(p, integers, floats.panel_rows, threads);
  for (const LinearOutput& out : p.outputs) pieces += cut.pieces(out, floats.panel_rows, p.tokens);

  const std::int64_t thread_scratch = align_up(scratch_bytes(floats.panel_rows));
  Arena arena(p.workspace, p.workspace_bytes);
  std::byte* scratch = arena.take<std::byte>(threads * thread_scratch);
  const bool fine = p.precision == Precision::fine;
  const std::int64_t one_token = Rounded::bytes(1, cols, fine);
  Rounded shared;
  std::byte* own = nullptr;
  if (integers && p.tokens == 1) {
    own = arena.take<std::byte>(threads * one_token);
  } else if (integers) {
    const std::int64_t padded = align_up(p.tokens, any.group);
    shared =
        Rounded::at(arena.take<std::byte>(Rounded::bytes(padded, cols, fine)), padded, cols, any.group, fine);
    const auto quantize = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin * any.group; t < end * any.group; t += any.group) {
        shared.quantize(p, t, std::min<std::int64_t>(any.group, p.tokens - t));
      }
    };
    for_range(p.stream.pool, padded / any.group, quantize);
  }
  // One token: every thread rounds for itself, which is sooner done than waiting for another.
  Bf16Tokens shared_halves;
  std::byte* own_halves = nullptr;
  const std::int64_t one_halves = Bf16Tokens::bytes(1, cols);
  if (bf16 && p.tokens == 1) {
    own_halves = arena.take<std::byte>(threads * one_halves);
  } else if (bf16) {
    shared_halves = Bf16Tokens::at(arena.take<std::byte>(Bf16Tokens::bytes(p.tokens, cols)), cols);
    for_range(p.stream.pool, p.tokens, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t token = begin; token < end; ++token)
        shared_halves.round(job.bf16, token, p.x.f32() + token * p.x_stride, cols);
    });
  }

  // Small steps even out the threads' loads; one token's are tiny, so that several go together.
  const std::int64_t grain = p.tokens > 1 ? 1 : std::max<std::int64_t>(1, pieces / (8 * threads));
  std::atomic<std::int64_t> next{0};
  run(p.stream.pool, [&](int worker) {
    Rounded x = shared;
    if (own != nullptr) {
      x = Rounded::at(own + worker * one_token, 1, cols, 1, fine);
      x.quantize(p, 0, 1);
    }
    Bf16Tokens halves = shared_halves;
    if (own_halves != nullptr) {
      halves = Bf16Tokens::at(own_halves + worker * one_halves, cols);
      halves.round(job.bf16, 0, p.x.f32(), cols);
    }
    for (;;) {
      const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= pieces) return;
      compute_range(job, cut, begin, std::min(pieces, begin + grain), x, halves,
                    scratch + worker * thread_scratch);
    }
  });
}

const char* target_name() {
  return float_kernels().target;
}

}  // namespace snug::kernels::cpu
