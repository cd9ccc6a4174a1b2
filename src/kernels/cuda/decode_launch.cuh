// Launches the decode kernel with a ring of one kind; decode_packed.cu and decode_rows.cu instantiate it.
#pragma once

#include "kernels/cuda/decode_kernel.cuh"

namespace snug::kernels::cuda {

template <class Ring, int kHeadDim>
void launch_decode(const Stream& stream, const DecodeArgs& a, int shared_bytes) {
  allow_shared(decode_kernel<Ring, kHeadDim>, shared_bytes);
  launch(stream, decode_kernel<Ring, kHeadDim>, dim3(static_cast<unsigned>(stream.gpu->multiprocessors)),
         dim3(kDecodeThreads), shared_bytes, a);
}

}  // namespace snug::kernels::cuda
