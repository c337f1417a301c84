# penstock::parquet_libraries: libarrow and libparquet out of pyarrow's wheel; an optional part of a build (PENSTOCK_PARQUET says
# whether it is there).
#
# PARQUET_DIR, a CMake or environment variable, names the folder with include/ and lib/; by default it is what `deploy/setup parquet`
# unpacked. The wheel's libraries use the new ABI of libstdc++, as Debian's compilers do.
set(PARQUET_DIR "$ENV{PARQUET_DIR}" CACHE PATH "Arrow's libraries: the folder with include/ and lib/")
set(parquet_dir ${PARQUET_DIR})
if(NOT parquet_dir)
  if(DEFINED ENV{PENSTOCK_CACHE})
    set(parquet_dir "$ENV{PENSTOCK_CACHE}/parquet-1")
  else()
    set(parquet_dir "$ENV{HOME}/.cache/penstock/parquet-1")
  endif()
endif()
set(PENSTOCK_PARQUET OFF)
if(EXISTS ${parquet_dir}/lib/libparquet.so)
  set(PENSTOCK_PARQUET ON)
elseif(PARQUET_DIR)
  message(FATAL_ERROR "No lib/libparquet.so in '${PARQUET_DIR}': run deploy/setup parquet, or set PARQUET_DIR to a folder with include/ and lib/")
else()
  message(STATUS "Without Parquet: run deploy/setup parquet where `penstock dataset import` shall read it")
  return()
endif()
set(PENSTOCK_PARQUET_DIR ${parquet_dir})
add_library(penstock_parquet_libraries INTERFACE)
add_library(penstock::parquet_libraries ALIAS penstock_parquet_libraries)
target_include_directories(penstock_parquet_libraries SYSTEM INTERFACE ${parquet_dir}/include)
target_link_libraries(penstock_parquet_libraries INTERFACE ${parquet_dir}/lib/libparquet.so ${parquet_dir}/lib/libarrow.so)
