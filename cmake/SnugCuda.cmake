# The CUDA back end: SNUG_CUDA builds kernels/cuda and core/cuda, otherwise kernels/nocuda and core/nocuda stand in.
# Needs nvcc, no GPU and no driver.

option(SNUG_CUDA "Build the CUDA back end (needs nvcc; no GPU)" OFF)
# Machine code for each, and PTX of the last plain one for newer GPUs. 90a has Hopper's own instructions.
set(SNUG_CUDA_ARCHS "80;86;89;90a" CACHE STRING "Compute capabilities to build kernels for")

set(SNUG_CUDA_DIR nocuda)
if(SNUG_CUDA)
  set(SNUG_CUDA_DIR cuda)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)
  # CMake 3.25 does not know how CUDA 13 is asked for C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  find_package(CUDAToolkit 13.0 REQUIRED)
  if(SNUG_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${SNUG_CCACHE})
  endif()
  set(SNUG_CUDA_FLAGS --expt-relaxed-constexpr -Xcudafe --diag_suppress=177)
  foreach(arch ${SNUG_CUDA_ARCHS})
    list(APPEND SNUG_CUDA_FLAGS "SHELL:-gencode arch=compute_${arch},code=sm_${arch}")
  endforeach()
  list(LENGTH SNUG_CUDA_ARCHS count)
  if(count GREATER 1)
    list(APPEND SNUG_CUDA_FLAGS "SHELL:-gencode arch=compute_90,code=compute_90")
  endif()
endif()
