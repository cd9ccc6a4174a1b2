#include "core/cuda/nvml.h"

#include <dlfcn.h>

namespace snug {
namespace {

struct Memory {  // nvmlMemory_t
  unsigned long long total, free, used;
};

template <class F>
F symbol(void* library, const char* name) {
  return reinterpret_cast<F>(::dlsym(library, name));
}

}  // namespace

bool Nvml::open(const std::string& pci_bus_id) {
  library_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) return false;
  const auto init = symbol<int (*)()>(library_, "nvmlInit_v2");
  const auto find = symbol<int (*)(const char*, void**)>(library_, "nvmlDeviceGetHandleByPciBusId_v2");
  if (init == nullptr || find == nullptr || init() != 0) return false;
  if (find(pci_bus_id.c_str(), &device_) != 0) device_ = nullptr;
  return device_ != nullptr;
}

Nvml::~Nvml() {
  if (library_ == nullptr) return;
  if (const auto shutdown = symbol<int (*)()>(library_, "nvmlShutdown")) shutdown();
  ::dlclose(library_);
}

std::int64_t Nvml::bytes_in_use() const {
  if (device_ == nullptr) return -1;
  const auto read = symbol<int (*)(void*, Memory*)>(library_, "nvmlDeviceGetMemoryInfo");
  Memory memory = {};
  if (read == nullptr || read(device_, &memory) != 0) return -1;
  return static_cast<std::int64_t>(memory.used);
}

}  // namespace snug
