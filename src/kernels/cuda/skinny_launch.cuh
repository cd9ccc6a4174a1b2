// Lays out shared memory and launches the kernel of one format; each skinny_<format>.cu instantiates it.
#pragma once

#include <algorithm>
#include <stdexcept>

#include "kernels/cuda/skinny_linear.cuh"

namespace snug::kernels::cuda {

template <quant::Format F, bool Staged>
void launch_skinny_kernel(const Stream& stream, const SkinnyArgs& a, int grid, int shared_bytes) {
  allow_shared(skinny_kernel<F, Staged>, shared_bytes);
  launch(stream, skinny_kernel<F, Staged>, dim3(static_cast<unsigned>(grid)), dim3(StreamShape<F>::kThreads),
         shared_bytes, a);
}

template <quant::Format F>
void launch_skinny(const Stream& stream, SkinnyArgs a, int grid) {
  a.tile_bytes = tile_bytes(F, a.cols);
  a.tile_units = a.cols / unit_shape(F).cols;
  constexpr int kWarps = StreamShape<F>::kWarps, kGroup = kWarps * StreamShape<F>::kGroupBytes;
  constexpr int kStatic = 1024 + 1024;  // what the kernel has besides, and what the system takes of a block
  const auto limit = static_cast<int>(stream.gpu->shared_bytes_per_block) - kStatic;
  int bytes = kWarps * 2 * (a.output == SkinnyOutput::gated ? 2 : 1) * kTileRows * a.tokens * 4;
  bytes = (bytes + 127) / 128 * 128;
  // Rows lie so that a warp's reads of a block of 32 columns meet no bank twice.
  a.staged_row = (a.cols * 2 + 127) / 128 * 128 + (F == quant::Format::q6_k ? 32 : 64);
  const int staged = (a.tokens * a.staged_row + 127) / 128 * 128, least_ring = 2 * kGroup;
  // Every tile reads x again, so it is worth a copy where there is room.
  if (a.input == SkinnyInput::direct && bytes + staged + least_ring <= limit) a.input = SkinnyInput::copied;
  if (a.input != SkinnyInput::direct) {
    a.staged = bytes;
    bytes += staged;
  }
  a.ring = bytes;
  // As long as leaves room for a second block, or else for a little.
  a.depth = std::clamp((limit / 2 + (8 << 10) - bytes) / kGroup, 2, StreamShape<F>::kDepth);
  bytes += a.depth * kGroup;
  if (bytes <= limit) {
    if (a.input == SkinnyInput::direct) return launch_skinny_kernel<F, false>(stream, a, grid, bytes);
    return launch_skinny_kernel<F, true>(stream, a, grid, bytes);
  }
  if (a.tokens == 1) throw std::runtime_error("skinny_linear: too many columns for this GPU's shared memory");
  // Tokens are independent of each other: halves give the same bits.
  SkinnyArgs rest = a;
  a.tokens /= 2;
  rest.tokens -= a.tokens;
  rest.x += a.tokens * a.x_stride;
  const int size = a.output == SkinnyOutput::f32 || a.output == SkinnyOutput::parts ? 4 : 2;
  rest.y = static_cast<std::byte*>(rest.y) + a.tokens * a.y_stride * size;
  launch_skinny<F>(stream, a, grid);
  launch_skinny<F>(stream, rest, grid);
}

}  // namespace snug::kernels::cuda
