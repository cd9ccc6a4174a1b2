// Where bytes live and where work runs.
#pragma once

#include <cstdint>

namespace snug {

class ThreadPool;

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
enum class Backend : std::uint8_t { ref, cpu };

// What a kernel runs on; passed inside each params struct. Does not own the pool.
struct Stream {
  Backend backend = Backend::cpu;
  ThreadPool* pool = nullptr;
};

}  // namespace snug
