# Compiler settings and the two functions every folder uses.

option(SNUG_TESTS "Build the tests" ON)
option(SNUG_BENCH "Build the kernel benchmarks" ON)
option(SNUG_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
option(SNUG_WERROR "Treat warnings as errors" ON)
set(SNUG_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=: address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(SNUG_CCACHE ccache)
if(SNUG_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SNUG_CCACHE})
endif()

add_library(snug_flags INTERFACE)
# Of C++ only: nvcc, which compiles kernels/cuda alone, takes its flags from SnugCuda.
set(SNUG_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers
                  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)  # false alarms on std::string
if(SNUG_WERROR)
  list(APPEND SNUG_WARNINGS -Werror)
endif()
target_compile_options(snug_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${SNUG_WARNINGS}>)
if(SNUG_SANITIZE)
  target_compile_options(snug_flags INTERFACE -fsanitize=${SNUG_SANITIZE} -fno-omit-frame-pointer
                                              -fno-sanitize-recover=all
                                              -Wno-maybe-uninitialized)  # false alarms among the checks
  target_link_options(snug_flags INTERFACE -fsanitize=${SNUG_SANITIZE})
endif()
if(SNUG_SANITIZE OR SNUG_FUZZ)
  # Kernels grow many times under the checks: one instruction set beside the portable code is enough there.
  target_compile_definitions(snug_flags INTERFACE "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4|HWY_AVX3|HWY_AVX3_DL)")
endif()
if(SNUG_FUZZ)  # coverage and checks in every library; fuzz/ adds libFuzzer's main
  set(SNUG_FUZZ_FLAGS -fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  target_compile_options(snug_flags INTERFACE ${SNUG_FUZZ_FLAGS})
  target_link_options(snug_flags INTERFACE ${SNUG_FUZZ_FLAGS})
endif()

# snug_library(NAME DEPS a b LINK x y): one library per floor folder, made of every .cc in it.
function(snug_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;LINK;DIRS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  foreach(dir ${ARG_DIRS})
    file(GLOB more CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/${dir}/*.cc)
    list(APPEND sources ${more})
    if(dir STREQUAL "cuda")
      file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/cuda/*.cu)
      list(APPEND sources ${kernels})
    endif()
  endforeach()
  if(NOT sources)
    add_library(snug_${name} INTERFACE)
    set(scope INTERFACE)
  else()
    add_library(snug_${name} STATIC ${sources})
    set(scope PUBLIC)
  endif()
  target_include_directories(snug_${name} ${scope} ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(snug_${name} ${scope} snug_flags ${ARG_LINK})
  if("cuda" IN_LIST ARG_DIRS)
    target_compile_options(snug_${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${SNUG_CUDA_FLAGS}>)
    target_link_libraries(snug_${name} PUBLIC CUDA::cudart_static PRIVATE ${CMAKE_DL_LIBS})
  endif()
  foreach(dep ${ARG_DEPS})
    target_link_libraries(snug_${name} ${scope} snug_${dep})
  endforeach()
endfunction()

# snug_test(NAME DIR dir LABELS l DEPS a b): one GoogleTest program from every .cc in a folder.
function(snug_test name)
  cmake_parse_arguments(ARG "" "DIR;TIMEOUT" "DEPS;LABELS;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_DIR}/*.cc)
  if(NOT sources)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE snug_flags GTest::gtest GTest::gmock GTest::gtest_main ${ARG_LINK})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${name} PRIVATE snug_${dep})
  endforeach()
  target_compile_definitions(${name} PRIVATE
    SNUG_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    SNUG_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/../shared/golden"
    SNUG_SHARED_TOKENIZER_DIR="${PROJECT_SOURCE_DIR}/../shared/tokenizer")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
