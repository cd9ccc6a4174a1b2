// The few calls of NVIDIA's management library that Snug makes, found at run time.
// Source: NVML API reference (nvmlInit_v2, nvmlDeviceGetHandleByPciBusId_v2, nvmlDeviceGetMemoryInfo).
#pragma once

#include <cstdint>
#include <string>

namespace snug {

class Nvml {
 public:
  Nvml() = default;
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // False where the library or the device is not there; bytes_in_use() then says -1.
  bool open(const std::string& pci_bus_id);
  // Of the whole device, the driver's own included.
  std::int64_t bytes_in_use() const;

 private:
  void* library_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace snug
