# One library for each box of the design, so that a wrong arrow does not link.
include(GoogleTest)

# penstock_library(NAME sources... [RUNS_ONCE] [HEADERS precompiled|NONE] [DEPS libraries...])
#
# Makes the static library penstock_NAME and its alias penstock::NAME. Includes are relative to the repository's root, those of
# installed headers to common/include/. HEADERS: a target whose precompiled headers it shares, by default library_headers. A source must
# include what it uses all the same: clang-tidy looks at it without precompiled headers. Where a folder sets PENSTOCK_OPTIMISED, its
# libraries are optimised under sanitizers too; with RUNS_ONCE, or where it sets PENSTOCK_RUNS_ONCE, they are as penstock_runs_once says.
function(penstock_library name)
  cmake_parse_arguments(ARG "RUNS_ONCE" "HEADERS" "DEPS" ${ARGN})
  add_library(penstock_${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  add_library(penstock::${name} ALIAS penstock_${name})
  target_include_directories(penstock_${name} PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/common/include)
  target_link_libraries(penstock_${name} PUBLIC ${ARG_DEPS})
  if(ARG_HEADERS STREQUAL "NONE")
    return()
  elseif(ARG_HEADERS)
    target_precompile_headers(penstock_${name} REUSE_FROM ${ARG_HEADERS})
  elseif(PENSTOCK_OPTIMISED)
    penstock_optimise_lightly(penstock_${name} lightly_optimised_library_headers)
  elseif(ARG_RUNS_ONCE OR PENSTOCK_RUNS_ONCE)
    penstock_runs_once(penstock_${name})
  else()
    target_precompile_headers(penstock_${name} REUSE_FROM library_headers)
  endif()
endfunction()

# What parses a command line and puts together what it asks for runs once in a process, and is mostly templates of CLI11 and of JSON:
# g++ takes twice as long to optimise them to the last, and 6 s a source to read them. For programs, too.
function(penstock_runs_once target)
  # As libraries have it, whose precompiled headers a program shares.
  target_compile_options(${target} PRIVATE -fPIC)
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    penstock_optimise_lightly(${target} command_line_headers <CLI/CLI.hpp> <nlohmann/json.hpp> DEPS CLI11::CLI11 nlohmann_json::nlohmann_json)
  else()
    target_precompile_headers(${target} REUSE_FROM library_headers)
  endif()
endfunction()

# penstock_optimise_lightly(TARGET NAME headers... [DEPS libraries...]): less than Release, more than a build with sanitizers otherwise. Precompiled headers
# are for one level (g++ 13 takes no others): NAME are these, with what most libraries include.
function(penstock_optimise_lightly target headers)
  if(NOT TARGET ${headers})
    penstock_library_headers(${headers} ${ARGN})
    target_compile_options(${headers} PRIVATE -O1)
  endif()
  target_compile_options(${target} PRIVATE -O1)
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()

# penstock_headers(NAME [DEPS libraries...]): the same for a library of headers only.
function(penstock_headers name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  add_library(penstock_${name} INTERFACE)
  add_library(penstock::${name} ALIAS penstock_${name})
  target_include_directories(penstock_${name} INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/common/include)
  target_link_libraries(penstock_${name} INTERFACE ${ARG_DEPS})
endfunction()

# penstock_precompiled_headers(NAME headers... [DEPS libraries...]): a precompiled form of headers that many files include. Its
# users are compiled with the same options.
function(penstock_precompiled_headers name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  add_library(${name} OBJECT ${CMAKE_SOURCE_DIR}/cmake/precompiled.cc)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  target_precompile_headers(${name} PRIVATE ${ARG_UNPARSED_ARGUMENTS})
endfunction()

# penstock_library_headers(NAME headers... [DEPS libraries...]): the precompiled form of what most libraries include, and of these
# headers besides.
function(penstock_library_headers name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  penstock_precompiled_headers(${name} <algorithm> <cmath> <cstdint> <functional> <map> <memory> <optional> <string> <utility> <vector>
    <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h> <absl/strings/str_join.h>
    <absl/synchronization/mutex.h> <absl/time/time.h> <absl/types/span.h> <penstock/v1/planner_service.pb.h> ${ARG_UNPARSED_ARGUMENTS}
    DEPS penstock::proto absl::flat_hash_map absl::statusor absl::str_format absl::strings absl::synchronization absl::time absl::span ${ARG_DEPS})
endfunction()

# The same for tests.
function(penstock_test_headers name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  penstock_precompiled_headers(${name} ${ARG_UNPARSED_ARGUMENTS} DEPS ${ARG_DEPS} GTest::gmock)
  penstock_compile_as_test(${name})
endfunction()

# What takes time in a test is in libraries; its own files are compiled once for each time that they run, and optimising takes a third
# of that. For the same reason tests' own behaviour is not looked at for being undefined: addresses alone. -fPIC: libraries of tests,
# which share their precompiled headers, have it.
function(penstock_compile_as_test target)
  target_compile_options(${target} PRIVATE -fPIC $<$<CONFIG:Release>:-O0>)
  if(PENSTOCK_SANITIZER STREQUAL "address")
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()

# penstock_test(NAME sources... LABELS labels... [WHOLE] [SHARDS count] [TIMEOUT seconds] [ENVIRONMENT NAME=value...]
#               [HEADERS precompiled] [DEPS libraries...])
#
# LABELS: unit, integration or system; `threads` where several run and thread sanitizer can judge them (it cannot with gRPC);
# `torch` where LibTorch is linked; `gpu` where it needs a GPU. HEADERS: of penstock_test_headers, test_headers by default. Each
# test case is one CTest test with a time-out (default 60 s, 900 s under sanitizers); with WHOLE all of them are one, which begins early, where what they share
# takes long to start: a server, or LibTorch, which takes 0.3 s of each process; with SHARDS they are so many. Under sanitizers, which take 0.1 s to start, all are whole.
# tests/run counts their cases all the same.
function(penstock_test name)
  cmake_parse_arguments(ARG "WHOLE" "TIMEOUT;HEADERS;SHARDS" "LABELS;ENVIRONMENT;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  set(cost 10)
  if(PENSTOCK_SANITIZER)
    set(ARG_WHOLE ON)
    set(ARG_TIMEOUT 900)
    # Real processes, which take longest.
    if("integration" IN_LIST ARG_LABELS)
      set(cost 20)
    endif()
  endif()
  if(NOT ARG_HEADERS)
    set(ARG_HEADERS test_headers)
  endif()
  # Tensors of tests are small: OpenMP's threads would wait for each other, and take the cores that other tests run on. Real processes
  # say it themselves.
  if("torch" IN_LIST ARG_LABELS AND NOT "system" IN_LIST ARG_LABELS)
    list(APPEND ARG_ENVIRONMENT OMP_NUM_THREADS=1)
  endif()
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  if(PENSTOCK_SANITIZER STREQUAL "thread")
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support/thread_sanitizer.cc)
  endif()
  penstock_compile_as_test(${name})
  target_precompile_headers(${name} REUSE_FROM ${ARG_HEADERS})
  # What tests/run builds of a sanitizer.
  foreach(label unit threads)
    if(label IN_LIST ARG_LABELS)
      if(NOT TARGET ${label}_tests)
        add_custom_target(${label}_tests)
      endif()
      add_dependencies(${label}_tests ${name})
    endif()
  endforeach()
  if(ARG_SHARDS)
    math(EXPR last "${ARG_SHARDS} - 1")
    foreach(shard RANGE ${last})
      add_test(NAME ${name}.${shard} COMMAND ${name})
      set_tests_properties(${name}.${shard} PROPERTIES TIMEOUT ${ARG_TIMEOUT} COST ${cost} LABELS "${ARG_LABELS}"
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${shard};${ARG_ENVIRONMENT}")
    endforeach()
    return()
  endif()
  if(ARG_WHOLE)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} COST ${cost} LABELS "${ARG_LABELS}" ENVIRONMENT "${ARG_ENVIRONMENT}")
    return()
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 120 PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  # Lists are set afterwards: gtest_discover_tests takes them apart and would keep the first element alone.
  set(properties_file ${CMAKE_CURRENT_BINARY_DIR}/${name}_properties.cmake)
  file(CONFIGURE OUTPUT ${properties_file} CONTENT [[
if(@name@_TESTS)
  set_tests_properties(${@name@_TESTS} PROPERTIES LABELS "@ARG_LABELS@" ENVIRONMENT "@ARG_ENVIRONMENT@")
endif()
]] @ONLY)
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${properties_file})
endfunction()
