// Launching a kernel on a Stream, and the two instructions of programmatic dependent launch.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "core/device.h"
#include "core/gpu.h"

namespace snug::kernels::cuda {

inline cudaStream_t stream_of(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.gpu->stream);
}

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

// Raises a kernel's limit of dynamic shared memory to `bytes`; cheap when it is already there.
template <class Kernel>
void allow_shared(Kernel* kernel, int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "shared memory");
}

// Launches so that the kernel may start before the one ahead of it in the stream has ended (Hopper and
// newer). It must call wait_for_previous() before it reads or writes anything that another kernel touches, in
// every thread and on every path (also where it has nothing to do: the kernel behind it relies on the chain).
template <class... Params, class... Args>
void launch(const Stream& stream, void (*kernel)(Params...), dim3 grid, dim3 block, int shared_bytes,
            Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream_of(stream);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = stream.gpu->arch >= 90 ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), "launch");
}

#ifdef __CUDACC__
// Waits until every kernel ahead in the stream has ended and its writes are visible.
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel's blocks start where there is room.
__device__ __forceinline__ void allow_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#endif

}  // namespace snug::kernels::cuda
