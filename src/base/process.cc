#include "base/process.h"

#include <fstream>
#include <sstream>
#include <string>

namespace snug {
namespace {

std::int64_t status_field(const char* name) {
  std::ifstream in("/proc/self/status");
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

std::int64_t resident_bytes() { return status_field("VmRSS:"); }
std::int64_t peak_resident_bytes() { return status_field("VmHWM:"); }

}  // namespace snug
