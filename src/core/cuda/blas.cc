#include "core/cuda/blas.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace snug {
namespace {

void* open_library(std::string& tried) {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  for (const char* folder : {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/targets/x86_64-linux/lib/",
                             "/opt/cuda/lib64/", "/usr/lib/x86_64-linux-gnu/"}) {
    if (void* library = ::dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  tried = name;
  return nullptr;
}

}  // namespace

Result<Blas> open_blas() {
  std::string name;
  void* library = open_library(name);
  if (library == nullptr) {
    return Error{ErrorCode::usage, fmt::format("the GPU needs {}, which was not found", name),
                 "install CUDA's libcublas, or name its folder in LD_LIBRARY_PATH"};
  }
  Blas blas;
  bool complete = true;
  const auto load = [&]<class F>(F& function, const char* symbol) {
    function = reinterpret_cast<F>(::dlsym(library, symbol));
    complete = complete && function != nullptr;
  };
  load(blas.create, "cublasLtCreate");
  load(blas.destroy, "cublasLtDestroy");
  load(blas.matmul, "cublasLtMatmul");
  load(blas.desc_init, "cublasLtMatmulDescInit_internal");
  load(blas.desc_set, "cublasLtMatmulDescSetAttribute");
  load(blas.layout_init, "cublasLtMatrixLayoutInit_internal");
  load(blas.preference_init, "cublasLtMatmulPreferenceInit_internal");
  load(blas.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  load(blas.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  if (!complete || blas.create(&blas.handle) != CUBLAS_STATUS_SUCCESS) {
    return Error{ErrorCode::usage, "cuBLASLt does not start on this GPU", "reinstall CUDA's libcublas"};
  }
  return blas;
}

}  // namespace snug
