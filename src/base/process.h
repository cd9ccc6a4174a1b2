// What the operating system says this process holds.
#pragma once

#include <cstdint>

namespace snug {

// Resident bytes now, and the most so far (VmRSS and VmHWM of /proc/self/status); 0 where not known.
std::int64_t resident_bytes();
std::int64_t peak_resident_bytes();

// Bytes that more allocations may take: MemAvailable, or less under a cgroup's limit.
std::int64_t available_bytes();

}  // namespace snug
