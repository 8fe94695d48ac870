# The CUDA Toolkit, where there is one. After this file LOCKSTEP_CUDA_FOUND says whether .cu files
# are built, LOCKSTEP_WHY_NO_CUDA why not, and lockstep_cuda_sources adds some to a target.
#
# LOCKSTEP_CUDA is
#   AUTO  the toolkit is used where it works. Not by sanitizer builds, fuzz targets, cross builds
#         and host compilers other than g++: they look at the host's code, nvcc gives them nothing
#         to look at, and each would compile every kernel three times over.
#   ON    it is an error when it does not work
#   OFF   host executor alone

# One program, compiled and linked: a toolkit without its runtime or with too new a g++ is none.
function(lockstep_try_nvcc result)
  set(file "${CMAKE_BINARY_DIR}/CMakeFiles/lockstep_nvcc.cu")
  file(WRITE "${file}" "#include <cuda_runtime.h>\n"
    "int main() { return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1; }\n")
  execute_process(
    COMMAND "${LOCKSTEP_NVCC}" ${ARGN} -std=c++20 "${file}" -o "${file}.out"
    RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    set(${result} "${LOCKSTEP_NVCC} builds no C++20 program: ${text}" PARENT_SCOPE)
  endif()
endfunction()

set(LOCKSTEP_WHY_NO_CUDA "")
if(LOCKSTEP_CUDA STREQUAL "OFF")
  set(LOCKSTEP_WHY_NO_CUDA "LOCKSTEP_CUDA is OFF")
elseif(LOCKSTEP_CUDA STREQUAL "AUTO" AND (CMAKE_CROSSCOMPILING OR LOCKSTEP_SANITIZE OR
       LOCKSTEP_FUZZERS OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU"))
  set(LOCKSTEP_WHY_NO_CUDA "LOCKSTEP_CUDA is AUTO, and this build is about the host's code")
else()
  find_program(LOCKSTEP_NVCC nvcc HINTS ENV CUDA_PATH PATHS "/usr/local" PATH_SUFFIXES bin cuda/bin)
  # nvcc's host compiler is the one of the rest, unless it is clang: nvcc's own g++ then.
  set(host_compiler "")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(host_compiler -ccbin "${CMAKE_CXX_COMPILER}")
  endif()
  if(NOT LOCKSTEP_NVCC)
    set(LOCKSTEP_WHY_NO_CUDA "no nvcc in PATH or CUDA_PATH")
  elseif(NOT LOCKSTEP_NVCC STREQUAL nvcc_that_works)
    lockstep_try_nvcc(LOCKSTEP_WHY_NO_CUDA ${host_compiler})
    if(NOT LOCKSTEP_WHY_NO_CUDA)
      set(nvcc_that_works "${LOCKSTEP_NVCC}" CACHE INTERNAL "nvcc that built a program")
    endif()
  endif()
endif()

set(LOCKSTEP_CUDA_FOUND ON)
if(LOCKSTEP_WHY_NO_CUDA)
  set(LOCKSTEP_CUDA_FOUND OFF)
  if(LOCKSTEP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LOCKSTEP_CUDA is ON: ${LOCKSTEP_WHY_NO_CUDA}. Install the CUDA Toolkit "
      "(12.0 or later) and put nvcc into PATH, or configure with -DLOCKSTEP_CUDA=OFF.")
  endif()
  message(STATUS "CUDA: not used, ${LOCKSTEP_WHY_NO_CUDA}")
else()
  set(CMAKE_CUDA_COMPILER "${LOCKSTEP_NVCC}")
  if(NOT CMAKE_CUDA_HOST_COMPILER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
  endif()
  if(NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER AND DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
  # Turing, Ampere, Hopper; later ones run the last one's PTX.
  set(CMAKE_CUDA_ARCHITECTURES "75-real;80-real;90" CACHE STRING "GPUs that kernels are built for")
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)
  # nvcc has C++20 since 12.0, which CMake 3.25 does not know.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  find_package(CUDAToolkit REQUIRED)
  message(STATUS "CUDA: ${LOCKSTEP_NVCC} for ${CMAKE_CUDA_ARCHITECTURES}")

  # What every .cu file is compiled with. Optimised in debug builds as well: the bits are the same,
  # and the four flags are nvcc's spelling of engine/ARITHMETIC.md's rules.
  set(cuda_options
    -fmad=false -ftz=false -prec-div=true -prec-sqrt=true
    -Xcompiler=-ffp-contract=off,-Wall,-Wextra)
  if(LOCKSTEP_WERROR)
    list(APPEND cuda_options -Werror=all-warnings -Xcompiler=-Werror)
  endif()
  add_library(lockstep_cuda_options INTERFACE)
  target_compile_options(lockstep_cuda_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_options}>")
  target_link_libraries(lockstep_cuda_options INTERFACE CUDA::cudart_static)
endif()

# lockstep_cuda_sources(target a.cu ...): sources that are there with CUDA alone. Every kernel of
# the target and of those that link to it then needs its LOCKSTEP_CUDA_KERNEL, or does not link.
function(lockstep_cuda_sources target)
  if(LOCKSTEP_CUDA_FOUND)
    target_sources(${target} PRIVATE ${ARGN})
    target_link_libraries(${target} PRIVATE lockstep_cuda_options)
    target_compile_definitions(${target} PUBLIC LOCKSTEP_CUDA)
  endif()
endfunction()
