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

bool Nvml::open() {
  library_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) return false;
  const auto init = symbol<int (*)()>(library_, "nvmlInit_v2");
  const auto count_devices = symbol<int (*)(unsigned*)>(library_, "nvmlDeviceGetCount_v2");
  const auto by_index = symbol<int (*)(unsigned, void**)>(library_, "nvmlDeviceGetHandleByIndex_v2");
  if (init == nullptr || count_devices == nullptr || by_index == nullptr || init() != 0) return false;
  unsigned count = 0;
  if (count_devices(&count) != 0) return false;
  for (unsigned i = 0; i < count; ++i) {
    if (by_index(i, &device_) == 0) noted_[device_] = bytes_in_use();
  }
  device_ = nullptr;
  return true;
}

void Nvml::select(const std::string& pci_bus_id) {
  device_ = nullptr;
  if (library_ == nullptr) return;
  const auto find = symbol<int (*)(const char*, void**)>(library_, "nvmlDeviceGetHandleByPciBusId_v2");
  if (find == nullptr || find(pci_bus_id.c_str(), &device_) != 0) {
    device_ = nullptr;
    return;
  }
  const auto noted = noted_.find(device_);
  if (noted != noted_.end()) bytes_at_open_ = noted->second;
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
