# Language, warnings and sanitizers, the same for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

find_program(PENSTOCK_CCACHE ccache)
if(PENSTOCK_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/cached-compiler ${CMAKE_SOURCE_DIR})
endif()

# No contraction into fused multiply-add: the same plan on every machine, bit for bit. -pthread, which gRPC's and protobuf's users
# are compiled with, is for all, because a precompiled header fits only where all such options are the same.
add_compile_options(-Wall -Wextra -Werror -ffp-contract=off -pthread)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-Wthread-safety)
elseif(CMAKE_UNITY_BUILD)
  # A source's own types look like a header's to g++ where several sources are compiled at once.
  add_compile_options(-Wno-subobject-linkage)
endif()

# Who builds all tests has the memory (a quarter more) for a g++ that collects its garbage late or never, which takes a tenth off its
# time, and mold for many programs; what is built to be used needs neither.
if(PENSTOCK_TESTS)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options("SHELL:--param ggc-min-heapsize=1048576")
  endif()
  find_program(PENSTOCK_MOLD mold)
  if(PENSTOCK_MOLD)
    add_link_options(-fuse-ld=mold)
  endif()
endif()

# Lines are what a report names; all of DWARF takes a quarter of the time of such a build, and optimising half of the rest: only
# what computes for long is optimised there (PENSTOCK_OPTIMISED in Targets.cmake).
if(PENSTOCK_SANITIZER STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined
    -fsanitize-ignorelist=${CMAKE_CURRENT_LIST_DIR}/sanitizer_ignorelist.txt -fno-omit-frame-pointer -O0 -gline-tables-only)
  add_link_options(-fsanitize=address,undefined)
elseif(PENSTOCK_SANITIZER STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -O0 -gline-tables-only)
  add_link_options(-fsanitize=thread)
elseif(NOT PENSTOCK_SANITIZER STREQUAL "")
  message(FATAL_ERROR "PENSTOCK_SANITIZER is '${PENSTOCK_SANITIZER}': use 'address', 'thread' or nothing")
endif()
