// The few calls of NVIDIA's management library that Snug makes, found at run time.
// Source: NVML API reference (nvmlInit_v2, nvmlDeviceGetHandleByPciBusId_v2, nvmlDeviceGetMemoryInfo).
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace snug {

class Nvml {
 public:
  Nvml() = default;
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Before the first CUDA call, which may already create a context: notes what every device has in use. False
  // where the library is not there; the readings are then -1.
  bool open();
  // The device that the following are about.
  void select(const std::string& pci_bus_id);
  std::int64_t bytes_at_open() const { return bytes_at_open_; }
  // Of the whole device, the driver's own included.
  std::int64_t bytes_in_use() const;

 private:
  void* library_ = nullptr;
  void* device_ = nullptr;
  std::int64_t bytes_at_open_ = -1;
  std::map<void*, std::int64_t> noted_;  // by device
};

}  // namespace snug
