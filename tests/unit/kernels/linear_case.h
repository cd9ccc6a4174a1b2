// Random products with their reference: weights of every format, awkward shapes, poisoned surroundings.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "core/arena.h"
#include "core/dtype.h"
#include "kernels/linear.h"

namespace snug::kernels {

// A block of bytes aligned to 64, filled with 0xFF (NaN as float32), with a guard behind it.
class PoisonedBytes {
 public:
  explicit PoisonedBytes(std::int64_t bytes)
      : bytes_(bytes), store_(static_cast<std::size_t>(bytes) + 192, std::byte{0xFF}) {
    const auto address = reinterpret_cast<std::uintptr_t>(store_.data());
    data_ = store_.data() + (64 - address % 64) % 64;
  }
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  bool guard_untouched() const {
    for (int i = 0; i < 64; ++i) {
      if (data_[bytes_ + i] != std::byte{0xFF}) return false;
    }
    return true;
  }

 private:
  std::int64_t bytes_;
  std::vector<std::byte> store_;
  std::byte* data_;
};

inline std::uint64_t fresh_seed() {
  return (static_cast<std::uint64_t>(std::random_device()()) << 32) ^ std::random_device()();
}

inline std::vector<float> random_floats(std::uint64_t seed, std::uint64_t stream, std::int64_t count,
                                        float scale) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = scale * random_normal(seed, stream, i);
  return values;
}

// Where a block of the format keeps binary16 values (d, then a minimum).
inline std::vector<int> half_offsets(quant::Format format) {
  using quant::Format;
  switch (format) {
    case Format::q4_1:
    case Format::q5_1:
    case Format::q4_k:
    case Format::q5_k:
      return {0, 2};
    case Format::q2_k:
      return {80, 82};
    case Format::q3_k:
      return {108};
    case Format::q6_k:
      return {208};
    default:
      return {0};
  }
}

// Random bits everywhere but in the binary16 values: every code and every scale turns up. Quantised formats
// only.
inline std::vector<std::byte> random_blocks(quant::Format format, std::int64_t elements, std::uint64_t seed) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(quant::bytes_of(format, elements)));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random_bits(seed, 1, i));
  const auto block = static_cast<std::size_t>(quant::info(format).block_bytes);
  for (std::size_t b = 0; b < bytes.size() / block; ++b) {
    for (const int offset : half_offsets(format)) {
      const std::uint16_t half =
          f16_from_f32(0.01f * random_normal(seed, 2, b * 256 + static_cast<std::size_t>(offset)));
      std::memcpy(bytes.data() + b * block + static_cast<std::size_t>(offset), &half, 2);
    }
  }
  return bytes;
}

// Weights at an odd address, as a mapped file may have them.
struct TestWeight {
  std::vector<std::byte> store;
  std::unique_ptr<PoisonedBytes> packed;
  WeightView rows_view;

  TestWeight(quant::Format format, std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
    std::vector<std::byte> blocks(static_cast<std::size_t>(quant::bytes_of(format, rows * cols)));
    if (quant::info(format).block_elems == 1) {
      const auto values = random_floats(seed, 3, rows * cols, 1);
      quant::info(format).encode(values.data(), blocks.data(), rows * cols);
    } else {
      blocks = random_blocks(format, rows * cols, seed);
    }
    store.resize(blocks.size() + 1);
    std::memcpy(store.data() + 1, blocks.data(), blocks.size());
    rows_view = {format, Layout::rows, rows, cols, store.data() + 1};
  }

  // The packed view; data is null where this CPU does not pack the format.
  WeightView pack(ThreadPool* pool) {
    const std::int64_t bytes = cpu::packed_bytes(rows_view.format, rows_view.rows, rows_view.cols);
    WeightView view = rows_view;
    view.layout = Layout::packed;
    view.data = nullptr;
    if (bytes == 0) return view;
    packed = std::make_unique<PoisonedBytes>(bytes);
    cpu::pack_rows({Backend::cpu, pool}, rows_view, packed->data());
    view.data = packed->data();
    return view;
  }
};

// Of one product: per (token, row), what float32 arithmetic and 8-bit activations may do to it.
struct Reference {
  std::vector<float> y;          // (tokens, rows)
  std::vector<double> norm;      // sqrt(Σ (w x)²) and |m| terms included: rounding errors scale with it
  std::vector<double> rounding;  // standard deviation that activations rounded to 8 bits cause
};

inline Reference reference(const WeightView& w, const std::vector<float>& x, std::int64_t x_stride,
                           std::int64_t tokens, const float* bias, const float* y0, bool add) {
  Reference ref;
  ref.y.assign(static_cast<std::size_t>(tokens * w.rows), 0);
  if (add) std::copy_n(y0, ref.y.size(), ref.y.data());
  const LinearOutput out{w, bias, ref.y.data(), w.rows, add};
  ref::linear({.x = x.data(), .x_stride = x_stride, .tokens = tokens, .outputs = {&out, 1}});
  std::vector<float> row(static_cast<std::size_t>(w.cols));
  ref.norm.resize(ref.y.size());
  ref.rounding.resize(ref.y.size());
  for (std::int64_t r = 0; r < w.rows; ++r) {
    quant::info(w.format).decode(w.data + r * quant::bytes_of(w.format, w.cols), row.data(), w.cols);
    for (std::int64_t t = 0; t < tokens; ++t) {
      double norm_x = 0, norm_w = 0, variance = 0;
      for (std::int64_t b = 0; b < w.cols; b += 32) {
        double amax = 0, square = 0;
        for (std::int64_t k = b; k < std::min(b + 32, w.cols); ++k) {
          const double v = x[static_cast<std::size_t>(t * x_stride + k)],
                       u = row[static_cast<std::size_t>(k)];
          amax = std::max(amax, std::abs(v));
          square += u * u;
          norm_x += v * v;
          norm_w += u * u;
        }
        variance += square * amax * amax / (127.0 * 127.0 * 12.0);
      }
      const auto i = static_cast<std::size_t>(t * w.rows + r);
      ref.norm[i] = std::sqrt(norm_x) * std::sqrt(norm_w) + std::abs(ref.y[i]);
      ref.rounding[i] = std::sqrt(variance);
    }
  }
  return ref;
}

}  // namespace snug::kernels
