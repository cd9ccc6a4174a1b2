// A build without CUDA: no GPU is ever found, so nothing but open() can be called.
#include "core/gpu.h"

#include <stdexcept>

namespace snug {
namespace {

[[noreturn]] void absent() {
  throw std::logic_error("this build of snug has no CUDA back end");
}

}  // namespace

bool gpu_was_built() {
  return false;
}

struct Gpu::Impl {};

Result<std::unique_ptr<Gpu>> Gpu::open() {
  return Error{ErrorCode::usage, "this build of snug has no CUDA back end",
               "build the preset cuda, or use --device cpu"};
}

Gpu::~Gpu() = default;
std::int64_t Gpu::blas_workspace_bytes() {
  return 0;
}
void Gpu::set_blas_workspace(std::byte*) {
  absent();
}
std::int64_t Gpu::bytes_taken() const {
  return -1;
}
std::int64_t Gpu::free_bytes() const {
  return 0;
}
void Gpu::upload(void*, const void*, std::int64_t) {
  absent();
}
void Gpu::download(void*, const void*, std::int64_t) {
  absent();
}
void Gpu::fill(void*, int, std::int64_t) {
  absent();
}
void Gpu::synchronize() {
  absent();
}
GpuEvent Gpu::make_event() {
  absent();
}
void Gpu::record(const GpuEvent&) {
  absent();
}
void Gpu::wait(const GpuEvent&) {
  absent();
}
void Gpu::begin_capture() {
  absent();
}
GpuGraph Gpu::end_capture() {
  absent();
}
void Gpu::drop_capture() {
  absent();
}
void Gpu::launch(const GpuGraph&) {
  absent();
}

std::byte* gpu_allocate(std::int64_t) {
  return nullptr;
}
void gpu_free(std::byte*) {}
std::byte* pinned_allocate(std::int64_t) {
  return nullptr;
}
void pinned_free(std::byte*) {}

}  // namespace snug
