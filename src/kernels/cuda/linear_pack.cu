// Packing quantised weights and unpacking them to bfloat16: a warp a unit, a lane what it will multiply.
#include <cuda_bf16.h>

#include <stdexcept>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_layout.cuh"
#include "kernels/linear.h"
#include "quant/q4_0.h"
#include "quant/q4_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

namespace snug::kernels::cuda {
namespace {

using quant::Format;

constexpr int kWarps = 8;

__device__ std::uint32_t byte_of(const std::uint8_t* bytes, int i) {
  return bytes[i];
}
// Source blocks need no alignment, so bytes it is.
__device__ std::uint32_t half_of(const std::uint8_t* bytes, int i) {
  return bytes[i] | bytes[i + 1] << 8;
}

// Level (as stored) of element `k` of the block that holds it.
template <Format F>
__device__ std::uint32_t level(const std::uint8_t* block, int k) {
  if constexpr (F == Format::q4_0) return (byte_of(block, 2 + k % 16) >> (k / 16 * 4)) & 15u;
  if constexpr (F == Format::q8_0) return byte_of(block, 2 + k);
  if constexpr (F == Format::q4_k)
    return (byte_of(block, 16 + k / 64 * 32 + k % 32) >> (k / 32 % 2 * 4)) & 15u;
  if constexpr (F == Format::q6_k) {
    const int h = k / 128, g = k % 128 / 32, l = k % 32;
    const std::uint32_t low = byte_of(block, 64 * h + 32 * (g % 2) + l) >> (g / 2 * 4);
    const std::uint32_t high = byte_of(block, 128 + 32 * h + l) >> (2 * g);
    return (low & 15u) | (high & 3u) << 4;
  }
}

template <Format F>
struct SourceBlock;
template <>
struct SourceBlock<Format::q4_0> : quant::BlockQ4_0 {};
template <>
struct SourceBlock<Format::q8_0> : quant::BlockQ8_0 {};
template <>
struct SourceBlock<Format::q4_k> : quant::BlockQ4K {};
template <>
struct SourceBlock<Format::q6_k> : quant::BlockQ6K {};

// grid (units of a tile, tiles), each divided among warps along x.
template <Format F>
__global__ void __launch_bounds__(kWarps * 32)
    pack_kernel(const std::uint8_t* source, std::byte* packed, int cols) {
  wait_for_previous();
  constexpr UnitShape kUnit = unit_shape(F);
  constexpr int kElems = SourceBlock<F>::kElems, kBytes = sizeof(SourceBlock<F>);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int unit = blockIdx.x * kWarps + threadIdx.x / 32, units = cols / kUnit.cols;
  if (unit >= units) return;
  const std::int64_t row_bytes = cols / kElems * static_cast<std::int64_t>(kBytes);
  const std::int64_t tile = blockIdx.y;
  std::byte* to = packed + tile * tile_bytes(F, cols) + unit_offset<F>(unit);
  std::byte* head = packed + tile * tile_bytes(F, cols) + head_offset<F>(unit);
  // The source block of a 32-block of this unit.
  const auto block_at = [&](int row, int block) {
    return source + (tile * kTileRows + row) * row_bytes + (unit * 64 + block * 32) / kElems * kBytes;
  };
  for (int block = 0; block < 2; ++block) {
    const int first = (unit * 64 + block * 32) % kElems;
    std::uint32_t high = 0;
    for (int half = 0; half < 2; ++half) {
      const std::uint8_t* from = block_at(g + 8 * half, block);
      std::uint32_t words[2] = {0, 0};
      for (int e = 0; e < 8; ++e) {
        const std::uint32_t q = level<F>(from, first + column_of<F>(t, e));
        if constexpr (F == Format::q8_0) {
          words[e / 4] |= q << (e % 4 / 2 * 8 + e % 2 * 16);
        } else {
          words[0] |= (q & 15u) << (e / 2 * 4 + e % 2 * 16);
          high |= (q >> 4) << (half * 8 + e / 2 * 2 + e % 2 * 16);
        }
      }
      if constexpr (F == Format::q8_0) {
        auto* at = reinterpret_cast<std::uint32_t*>(to + block * 512 + lane * 16 + half * 8);
        at[0] = words[0];
        at[1] = words[1];
      } else {
        *reinterpret_cast<std::uint32_t*>(to + lane * 16 + block * 8 + half * 4) = words[0];
      }
    }
    if constexpr (F == Format::q6_k)
      *reinterpret_cast<std::uint32_t*>(to + 512 + lane * 8 + block * 4) = high;
  }
  // Scales: lane (g, t) does block t / 2 of row g + 8 (t % 2).
  const int block = t / 2, half = t % 2;
  const std::uint8_t* from = block_at(g + 8 * half, block);
  if constexpr (F == Format::q4_0 || F == Format::q8_0) {
    auto* at = reinterpret_cast<std::uint16_t*>(to + kUnit.bytes - 64 + g * 8 + block * 4 + half * 2);
    *at = static_cast<std::uint16_t>(half_of(from, 0));
  } else if constexpr (F == Format::q4_k) {
    const int s = (unit * 64 + block * 32) % kElems / 32;
    const std::uint8_t* scales = from + 4;
    std::uint32_t sc, m;
    if (s < 4) {
      sc = scales[s] & 63u;
      m = scales[s + 4] & 63u;
    } else {
      sc = (scales[s + 4] & 15u) | (scales[s - 4] >> 6u) << 4;
      m = (scales[s + 4] >> 4u) | (scales[s] >> 6u) << 4;
    }
    std::byte* at = to + 512 + g * 8 + block * 4 + half * 2;
    at[0] = static_cast<std::byte>(sc);
    at[1] = static_cast<std::byte>(m);
    if (unit % 4 == 0 && block == 0) {
      auto* halves = reinterpret_cast<std::uint16_t*>(head + g * 8 + half * 4);
      halves[0] = static_cast<std::uint16_t>(half_of(from, 0));
      halves[1] = static_cast<std::uint16_t>(half_of(from, 2));
    }
  } else {
    const int s = (unit * 64 + block * 32) % kElems / 16;
    std::byte* at = to + 768 + g * 8 + block * 4 + half;
    at[0] = static_cast<std::byte>(from[192 + s] ^ 128u);  // plus 128 of a signed byte
    at[2] = static_cast<std::byte>(from[192 + s + 1] ^ 128u);
    if (unit % 4 == 0 && block == 0) {
      *reinterpret_cast<std::uint16_t*>(head + g * 4 + half * 2) =
          static_cast<std::uint16_t>(half_of(from, 208));
    }
  }
}

template <Format F>
__global__ void __launch_bounds__(kWarps * 32)
    unpack_kernel(const std::byte* packed, __nv_bfloat16* rows, int cols) {
  wait_for_previous();
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int unit = blockIdx.x * kWarps + threadIdx.x / 32;
  if (unit >= cols / unit_shape(F).cols) return;
  const std::byte* tile = packed + blockIdx.y * tile_bytes(F, cols);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    __nv_bfloat16* row =
        rows + (static_cast<std::int64_t>(blockIdx.y) * kTileRows + g + 8 * half) * cols + unit * 64;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      float v[8];
      decode_lane<F>(tile + unit_offset<F>(unit), tile + head_offset<F>(unit), lane, block, half, v);
      __nv_bfloat162 pairs[4];
#pragma unroll
      for (int p = 0; p < 4; ++p) pairs[p] = __floats2bfloat162_rn(v[2 * p], v[2 * p + 1]);
      const auto* words = reinterpret_cast<const uint2*>(pairs);
      *reinterpret_cast<uint2*>(row + block * 32 + column_of<F>(t, 0)) = words[0];
      *reinterpret_cast<uint2*>(row + block * 32 + column_of<F>(t, 4)) = words[1];
    }
  }
}

// Calls fn.template operator()<F>() for a packed format.
template <class Fn>
void with_format(Format format, Fn fn) {
  switch (format) {
    case Format::q4_0:
      return fn.template operator()<Format::q4_0>();
    case Format::q8_0:
      return fn.template operator()<Format::q8_0>();
    case Format::q4_k:
      return fn.template operator()<Format::q4_k>();
    case Format::q6_k:
      return fn.template operator()<Format::q6_k>();
    default:
      throw std::runtime_error(std::string("no packed layout on the GPU for ") + quant::info(format).name);
  }
}

}  // namespace

void pack_rows(const Stream& stream, const WeightView& source, const WeightView& target,
               std::int64_t first_row) {
  if (first_row % kTileRows != 0 || source.layout != Layout::rows || target.layout != Layout::packed ||
      source.format != target.format || source.cols != target.cols ||
      !is_packable(source.format, source.rows, source.cols)) {
    throw std::runtime_error("pack_rows: not a run of whole tiles of this weight");
  }
  with_format(source.format, [&]<Format F>() {
    constexpr int kMaxTiles = 65535;  // of a grid's second dimension
    const std::int64_t bytes = tile_bytes(F, source.cols);
    const auto blocks = static_cast<unsigned>((source.cols / unit_shape(F).cols + kWarps - 1) / kWarps);
    for (std::int64_t tile = 0; tile < source.rows / kTileRows; tile += kMaxTiles) {
      const auto tiles =
          static_cast<unsigned>(std::min<std::int64_t>(kMaxTiles, source.rows / kTileRows - tile));
      const auto* from = reinterpret_cast<const std::uint8_t*>(source.data) +
                         tile * kTileRows * (source.cols / SourceBlock<F>::kElems) *
                             static_cast<std::int64_t>(sizeof(SourceBlock<F>));
      auto* to = const_cast<std::byte*>(target.data) + (first_row / kTileRows + tile) * bytes;
      launch(stream, pack_kernel<F>, dim3(blocks, tiles), dim3(kWarps * 32), 0, from, to,
             static_cast<int>(source.cols));
    }
  });
}

void unpack_rows(const Stream& stream, const WeightView& packed, std::int64_t begin, std::int64_t end,
                 void* bf16) {
  if (packed.layout != Layout::packed || begin % kTileRows != 0 || end % kTileRows != 0) {
    throw std::runtime_error("unpack_rows: not a run of whole tiles of a packed weight");
  }
  with_format(packed.format, [&]<Format F>() {
    constexpr int kMaxTiles = 65535;
    const std::int64_t bytes = tile_bytes(F, packed.cols);
    const auto blocks = static_cast<unsigned>((packed.cols / unit_shape(F).cols + kWarps - 1) / kWarps);
    for (std::int64_t tile = begin / kTileRows; tile < end / kTileRows; tile += kMaxTiles) {
      const auto tiles = static_cast<unsigned>(std::min<std::int64_t>(kMaxTiles, end / kTileRows - tile));
      auto* to = static_cast<__nv_bfloat16*>(bf16) + (tile * kTileRows - begin) * packed.cols;
      launch(stream, unpack_kernel<F>, dim3(blocks, tiles), dim3(kWarps * 32), 0, packed.data + tile * bytes,
             to, static_cast<int>(packed.cols));
    }
  });
}

}  // namespace snug::kernels::cuda
