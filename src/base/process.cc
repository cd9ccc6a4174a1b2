#include "base/process.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace snug {
namespace {

// "NAME:   123 kB" in a file of /proc, in bytes; 0 if absent.
std::int64_t proc_field(const char* file, const char* name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(name, 0) != 0) continue;
    std::istringstream rest(line.substr(std::string(name).size()));
    std::int64_t kib = 0;
    rest >> kib;
    return kib * 1024;
  }
  return 0;
}

}  // namespace

std::int64_t resident_bytes() {
  return proc_field("/proc/self/status", "VmRSS:");
}
std::int64_t peak_resident_bytes() {
  return proc_field("/proc/self/status", "VmHWM:");
}

std::int64_t available_bytes() {
  std::int64_t available = proc_field("/proc/meminfo", "MemAvailable:");
  std::int64_t limit = 0, used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit &&
      std::ifstream("/sys/fs/cgroup/memory.current") >> used) {
    available = std::min(available, std::max<std::int64_t>(limit - used, 0));
  }
  return available;
}

}  // namespace snug
