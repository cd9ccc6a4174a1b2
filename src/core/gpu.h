// The GPU as the other floors see it: plain functions and no CUDA header. core/cuda implements them;
// core/nocuda is what a build without CUDA has in its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "core/device.h"

namespace snug {

// Whether this build has the CUDA back end.
bool gpu_was_built();

// What kernels need to know of where they run. Plain data; Gpu owns what it points to.
struct GpuStream {
  void* stream = nullptr;  // cudaStream_t
  int arch = 0;            // compute capability, 90 for 9.0
  int multiprocessors = 0;
  std::int64_t shared_bytes_per_block = 0;  // the most a block may ask for
  void* blas = nullptr;                     // core/cuda/blas.h: cuBLASLt, its handle and its workspace
};

struct GpuInfo {
  std::string name;             // "NVIDIA H200"
  int arch = 0;                 // 90 for 9.0
  int driver = 0, runtime = 0;  // CUDA versions, 13000 for 13.0
  std::int64_t total_bytes = 0;
};

// Graphs and events are opaque; null is none.
using GpuGraph = std::shared_ptr<void>;
using GpuEvent = std::shared_ptr<void>;

// One device, one stream. Used from one thread.
class Gpu {
 public:
  // usage error with what is missing and the remedy: no CUDA in this build, no driver, a driver that is too
  // old, no GPU, an architecture that no kernel was built for, cuBLASLt not found. Creates the context.
  static Result<std::unique_ptr<Gpu>> open();
  ~Gpu();

  const GpuInfo& info() const { return info_; }
  GpuStream* stream() { return &stream_; }

  // What this process has taken of the device by now: NVML's bytes in use less those before the first CUDA
  // call, so what other processes took or gave back since then counts too. -1 where NVML cannot say.
  std::int64_t bytes_taken() const;
  // Of it the context and the library handles: bytes_taken() at the end of open(), or 0.
  std::int64_t context_bytes() const { return context_bytes_; }
  // cuBLASLt's scratch: a ledger row like any other, given here before the first product.
  static std::int64_t blas_workspace_bytes();
  void set_blas_workspace(std::byte* workspace);
  // Free bytes of the device now.
  std::int64_t free_bytes() const;

  // Copies are in stream order; host memory that is not pinned makes them wait.
  void upload(void* device, const void* host, std::int64_t bytes);
  void download(void* host, const void* device, std::int64_t bytes);
  void fill(void* device, int byte, std::int64_t bytes);
  void synchronize();

  GpuEvent make_event();
  void record(const GpuEvent& event);  // the event is now this point of the stream
  void wait(const GpuEvent& event);    // the host waits until the stream has passed it

  // Between the two, work is recorded instead of run. drop_capture() gives up, after a fault in between.
  void begin_capture();
  GpuGraph end_capture();
  void drop_capture();
  void launch(const GpuGraph& graph);

 private:
  Gpu() = default;
  GpuInfo info_;
  GpuStream stream_;
  std::int64_t context_bytes_ = 0;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Device and pinned host memory; only the ledger and tests call these. Null where refused.
std::byte* gpu_allocate(std::int64_t bytes);
void gpu_free(std::byte* data);
std::byte* pinned_allocate(std::int64_t bytes);
void pinned_free(std::byte* data);

}  // namespace snug
