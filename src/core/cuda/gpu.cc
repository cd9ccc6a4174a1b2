#include "core/gpu.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "core/cuda/blas.h"
#include "core/cuda/nvml.h"

namespace snug {
namespace {

constexpr int kOldestArch = 80;

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw std::runtime_error(fmt::format("GPU: {}: {}", what, cudaGetErrorString(status)));
  }
}

cudaStream_t native(const GpuStream& stream) {
  return static_cast<cudaStream_t>(stream.stream);
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Why no GPU can be used, in words; ok when one can.
Status usable() {
  int driver = 0, count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return Error{ErrorCode::usage, "no NVIDIA driver is installed",
                 "install a driver for CUDA 13 (580 or newer)"};
  }
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    return Error{ErrorCode::usage,
                 fmt::format("the NVIDIA driver is too old: it knows CUDA {}, this build needs {}",
                             version_text(driver), version_text(CUDART_VERSION)),
                 "install driver 580 or newer"};
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) {
    return Error{ErrorCode::usage, "this machine has no NVIDIA GPU that may be used",
                 "look at nvidia-smi and at CUDA_VISIBLE_DEVICES"};
  }
  if (status != cudaSuccess) {
    return Error{ErrorCode::usage, fmt::format("the GPU does not start: {}", cudaGetErrorString(status)),
                 "look at nvidia-smi"};
  }
  return {};
}

}  // namespace

bool gpu_was_built() {
  return true;
}

struct Gpu::Impl {
  Blas blas;
  Nvml nvml;
};

Result<std::unique_ptr<Gpu>> Gpu::open() {
  std::unique_ptr<Gpu> gpu(new Gpu);
  gpu->impl_ = std::make_unique<Impl>();
  gpu->impl_->nvml.open();
  SNUG_TRY(usable());
  char bus[32] = {};
  cudaDeviceGetPCIBusId(bus, sizeof(bus), 0);
  gpu->impl_->nvml.select(bus);

  cudaDeviceProp properties = {};
  cudaStream_t stream = nullptr;
  for (const cudaError_t status :
       {cudaGetDeviceProperties(&properties, 0), cudaSetDevice(0), cudaFree(nullptr),
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)}) {
    if (status == cudaSuccess) continue;
    return Error{ErrorCode::usage, fmt::format("the GPU does not start: {}", cudaGetErrorString(status)),
                 "look at nvidia-smi: another process may hold the memory"};
  }
  GpuInfo& info = gpu->info_;
  info.name = properties.name;
  info.arch = properties.major * 10 + properties.minor;
  info.total_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  cudaDriverGetVersion(&info.driver);
  cudaRuntimeGetVersion(&info.runtime);
  if (info.arch < kOldestArch) {
    return Error{ErrorCode::usage,
                 fmt::format("{} has compute capability {}.{}, the kernels need 8.0 or newer", info.name,
                             properties.major, properties.minor),
                 "use an Ampere or newer GPU"};
  }
  SNUG_ASSIGN(gpu->impl_->blas, open_blas());
  gpu->stream_ = {.stream = stream,
                  .arch = info.arch,
                  .multiprocessors = properties.multiProcessorCount,
                  .shared_bytes_per_block = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin),
                  .blas = &gpu->impl_->blas};
  gpu->context_bytes_ = std::max<std::int64_t>(gpu->bytes_taken(), 0);
  return gpu;
}

Gpu::~Gpu() {
  if (impl_ == nullptr) return;
  if (impl_->blas.handle != nullptr) impl_->blas.destroy(impl_->blas.handle);
  if (stream_.stream != nullptr) cudaStreamDestroy(native(stream_));
}

void Gpu::set_blas_workspace(std::byte* workspace) {
  impl_->blas.workspace = workspace;
  impl_->blas.chosen.clear();  // with another workspace the choice is another
}

std::int64_t Gpu::blas_workspace_bytes() {
  return kBlasWorkspace;
}

std::int64_t Gpu::bytes_taken() const {
  const std::int64_t before = impl_->nvml.bytes_at_open(), now = impl_->nvml.bytes_in_use();
  return before < 0 || now < 0 ? -1 : now - before;
}

std::int64_t Gpu::free_bytes() const {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "free memory");
  return static_cast<std::int64_t>(free);
}

void Gpu::upload(void* device, const void* host, std::int64_t bytes) {
  check(
      cudaMemcpyAsync(device, host, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, native(stream_)),
      "upload");
}

void Gpu::download(void* host, const void* device, std::int64_t bytes) {
  check(
      cudaMemcpyAsync(host, device, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, native(stream_)),
      "download");
}

void Gpu::fill(void* device, int byte, std::int64_t bytes) {
  check(cudaMemsetAsync(device, byte, static_cast<std::size_t>(bytes), native(stream_)), "fill");
}

void Gpu::synchronize() {
  check(cudaStreamSynchronize(native(stream_)), "the work before");
}

GpuEvent Gpu::make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
  return {event, [](void* e) { cudaEventDestroy(static_cast<cudaEvent_t>(e)); }};
}

void Gpu::record(const GpuEvent& event) {
  check(cudaEventRecord(static_cast<cudaEvent_t>(event.get()), native(stream_)), "event");
}

void Gpu::wait(const GpuEvent& event) {
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(event.get())), "the work before");
}

void Gpu::begin_capture() {
  check(cudaStreamBeginCapture(native(stream_), cudaStreamCaptureModeThreadLocal), "begin of a graph");
}

GpuGraph Gpu::end_capture() {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(native(stream_), &graph), "end of a graph");
  cudaGraphExec_t exec = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "graph");
  check(cudaGraphUpload(exec, native(stream_)), "graph");
  return {exec, [](void* e) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(e)); }};
}

void Gpu::drop_capture() {
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(native(stream_), &graph) == cudaSuccess && graph != nullptr)
    cudaGraphDestroy(graph);
  cudaGetLastError();
}

void Gpu::launch(const GpuGraph& graph) {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.get()), native(stream_)), "graph launch");
}

std::byte* gpu_allocate(std::int64_t bytes) {
  void* data = nullptr;
  if (cudaMalloc(&data, static_cast<std::size_t>(bytes)) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return static_cast<std::byte*>(data);
}

void gpu_free(std::byte* data) {
  cudaFree(data);
}

std::byte* pinned_allocate(std::int64_t bytes) {
  void* data = nullptr;
  if (cudaMallocHost(&data, static_cast<std::size_t>(bytes)) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return static_cast<std::byte*>(data);
}

void pinned_free(std::byte* data) {
  cudaFreeHost(data);
}

}  // namespace snug
