#include "kernels/ceiling.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/launch.cuh"

namespace snug::kernels::cuda {
namespace {

constexpr int kThreads = 512, kLoads = 8;

// Streams `count` 16-byte pieces once through the multiprocessors, several loads of a thread in flight.
__global__ void __launch_bounds__(kThreads)
    read_kernel(const uint4* data, std::int64_t count, unsigned* never) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  unsigned sum = 0;
  std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kLoads - 1) * stride < count; i += kLoads * stride) {
    uint4 v[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) v[j] = __ldcs(data + i + j * stride);
#pragma unroll
    for (int j = 0; j < kLoads; ++j) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  for (; i < count; i += stride) sum ^= __ldcs(data + i).x;
  if (never != nullptr) *never = sum;  // a use that the compiler cannot rule out, so the loads stay
}

}  // namespace

double measure_read_gbps(const Stream& stream, const std::byte* data, std::int64_t bytes) {
  cudaEvent_t start = nullptr, stop = nullptr;
  check(cudaEventCreate(&start), "event");
  check(cudaEventCreate(&stop), "event");
  std::vector<float> times;
  for (int round = 0; round < 8; ++round) {
    check(cudaEventRecord(start, stream_of(stream)), "event");
    read_kernel<<<static_cast<unsigned>(stream.gpu->multiprocessors * 2), kThreads, 0, stream_of(stream)>>>(
        reinterpret_cast<const uint4*>(data), bytes / 16, nullptr);
    check(cudaGetLastError(), "launch");
    check(cudaEventRecord(stop, stream_of(stream)), "event");
    check(cudaEventSynchronize(stop), "read");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop), "event");
    if (round > 0) times.push_back(ms);
  }
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  std::sort(times.begin(), times.end());
  return static_cast<double>(bytes) * 1e-6 / static_cast<double>(times[times.size() / 2]);
}

}  // namespace snug::kernels::cuda
