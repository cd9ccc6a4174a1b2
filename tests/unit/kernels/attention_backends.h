// The implementations that one test body runs on: ref, and cpu on every instruction set that this machine
// has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/targets.h"
//
#include "hwy/highway.h"
#include "hwy/targets.h"

namespace snug::kernels {

struct TestBackend {
  std::string name;
  std::int64_t target = 0;  // 0: ref
  bool is_ref() const { return target == 0; }
};

inline std::vector<TestBackend> cpu_backends() {
  std::vector<TestBackend> backends;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    backends.push_back({hwy::TargetName(target), target});
  }
  return backends;
}

inline std::vector<TestBackend> all_backends() {
  std::vector<TestBackend> backends = cpu_backends();
  backends.insert(backends.begin(), TestBackend{"ref", 0});
  return backends;
}

// While it lives, the kernels run on this instruction set.
class UseTarget {
 public:
  explicit UseTarget(const TestBackend& backend) { set(backend.target); }
  ~UseTarget() { set(0); }
  UseTarget(const UseTarget&) = delete;
  UseTarget& operator=(const UseTarget&) = delete;

 private:
  static void set(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
};

}  // namespace snug::kernels
