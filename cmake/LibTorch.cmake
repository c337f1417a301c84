# LibTorch as imported targets of our own: the find module of a CUDA wheel fails where no CUDA toolkit is.
#
#   penstock::libtorch      tensors, autograd and c10d on CPU; with PENSTOCK_CUDA also CUDA and c10d over NCCL
#   penstock_cuda_options   how a source is compiled that knows CUDA or NCCL
#
# LIBTORCH_DIR, a CMake or environment variable, names a folder with include/ and lib/; by default it is what deploy/setup unpacked.
set(LIBTORCH_DIR "$ENV{LIBTORCH_DIR}" CACHE PATH "LibTorch 2.11: the folder with include/ and lib/")
if(NOT LIBTORCH_DIR)
  if(DEFINED ENV{PENSTOCK_CACHE})
    set(penstock_cache "$ENV{PENSTOCK_CACHE}")
  else()
    set(penstock_cache "$ENV{HOME}/.cache/penstock")
  endif()
  set_property(CACHE LIBTORCH_DIR PROPERTY VALUE "${penstock_cache}/libtorch-2.11.0/torch")
endif()
if(NOT EXISTS ${LIBTORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "No LibTorch in '${LIBTORCH_DIR}': run deploy/setup, or set LIBTORCH_DIR to a folder with include/ and lib/")
endif()

add_library(penstock_libtorch INTERFACE)
add_library(penstock::libtorch ALIAS penstock_libtorch)
target_include_directories(penstock_libtorch SYSTEM INTERFACE
  ${LIBTORCH_DIR}/include ${LIBTORCH_DIR}/include/torch/csrc/api/include)
# libcudart and libcupti, which libtorch_cpu.so needs even without a GPU, are found through its own run path.
target_link_libraries(penstock_libtorch INTERFACE ${LIBTORCH_DIR}/lib/libtorch_cpu.so ${LIBTORCH_DIR}/lib/libc10.so Threads::Threads)
# Programs look for LibTorch where it is given by its path; an RPATH, unlike a RUNPATH, is for what LibTorch itself loads, too.
target_link_options(penstock_libtorch INTERFACE -Wl,--disable-new-dtags -Wl,--allow-shlib-undefined)
target_compile_definitions(penstock_libtorch INTERFACE USE_C10D_GLOO)

# A machine without a GPU, and without the libraries that libtorch_cuda.so needs, can compile and link the CUDA parts.
if(PENSTOCK_CUDA)
  # Headers alone, of a toolkit or of the wheels that `deploy/setup worker-cuda` unpacked beside LibTorch: nothing is compiled by nvcc.
  set(cuda_wheels ${LIBTORCH_DIR}/../nvidia)
  find_path(CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include ${cuda_wheels}/cu13/include REQUIRED)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDA_INCLUDE_DIR} ${cuda_wheels}/nccl/include REQUIRED)
  set(penstock_cuda_options -isystem ${CUDA_INCLUDE_DIR} -isystem ${NCCL_INCLUDE_DIR} -DUSE_C10D_NCCL)
  # --no-as-needed: kernels register themselves when libtorch_cuda.so is loaded; no symbol of it need be used.
  target_link_libraries(penstock_libtorch INTERFACE -Wl,--no-as-needed ${LIBTORCH_DIR}/lib/libtorch_cuda.so
    ${LIBTORCH_DIR}/lib/libc10_cuda.so -Wl,--as-needed)
endif()

# penstock_cuda_sources(sources...): those of this folder that know CUDA or NCCL. All others are compiled as without a GPU, and taken
# from the compiler's cache where they have been.
function(penstock_cuda_sources)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS "${penstock_cuda_options}")
endfunction()
