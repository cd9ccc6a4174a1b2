// cuBLASLt, found at run time: a machine without it still starts the program. For kernels/cuda only.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "base/error.h"

namespace snug {

struct Blas {
  decltype(&::cublasLtCreate) create = nullptr;
  decltype(&::cublasLtDestroy) destroy = nullptr;
  decltype(&::cublasLtMatmul) matmul = nullptr;
  decltype(&::cublasLtMatmulDescInit_internal) desc_init = nullptr;
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&::cublasLtMatrixLayoutInit_internal) layout_init = nullptr;
  decltype(&::cublasLtMatmulPreferenceInit_internal) preference_init = nullptr;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;

  cublasLtHandle_t handle = nullptr;
  // The kernels chosen so far, by product (kernels/cuda/linear.cc). Used from the stream's thread.
  std::map<std::array<std::int64_t, 5>, cublasLtMatmulAlgo_t> chosen;
  void* workspace = nullptr;  // kBlasWorkspace bytes of device memory, a ledger row; set by its owner
};

inline constexpr std::int64_t kBlasWorkspace = 32ll << 20;  // what NVIDIA advises for Hopper

// Loads the library and creates the handle.
Result<Blas> open_blas();

}  // namespace snug
