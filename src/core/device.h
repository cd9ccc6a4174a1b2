// Where bytes live and where work runs.
#pragma once

#include <cstdint>

namespace snug {

class ThreadPool;
struct GpuStream;  // core/gpu.h

enum class Device : std::uint8_t { host, pinned, disk, gpu0 };

constexpr const char* name_of(Device device) {
  switch (device) {
    case Device::host:
      return "host";
    case Device::pinned:
      return "pinned";
    case Device::disk:
      return "disk";
    case Device::gpu0:
      return "gpu0";
  }
  return "?";
}

// Which implementation of an op runs. `ref` is the scalar oracle.
enum class Backend : std::uint8_t { ref, cpu, cuda };

// What a kernel runs on; passed inside each params struct. Owns nothing. On cuda every pointer of a params
// struct is device memory unless it says otherwise, and work is enqueued, not finished, on return.
struct Stream {
  Backend backend = Backend::cpu;
  ThreadPool* pool = nullptr;
  GpuStream* gpu = nullptr;  // set where backend is cuda
};

}  // namespace snug
