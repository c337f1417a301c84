# One library for each box of the design, so that a wrong arrow does not link.
include(GoogleTest)

# penstock_library(NAME sources... [DEPS libraries...])
#
# Makes the static library penstock_NAME and its alias penstock::NAME. Includes are relative to the repository's root.
function(penstock_library name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  add_library(penstock_${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  add_library(penstock::${name} ALIAS penstock_${name})
  target_include_directories(penstock_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(penstock_${name} PUBLIC ${ARG_DEPS})
endfunction()

# penstock_headers(NAME [DEPS libraries...]): the same for a library of headers only.
function(penstock_headers name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  add_library(penstock_${name} INTERFACE)
  add_library(penstock::${name} ALIAS penstock_${name})
  target_include_directories(penstock_${name} INTERFACE ${CMAKE_SOURCE_DIR})
  target_link_libraries(penstock_${name} INTERFACE ${ARG_DEPS})
endfunction()

# penstock_precompile(TARGET headers... | REUSE_FROM other): a precompiled form of headers that many of its files include.
#
# With GNU's compiler only, whose precompiled headers ccache knows, and which is what builds what is run; clang, which only builds
# with sanitizers, parses them each time.
function(penstock_precompile target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    if(ARGV1 STREQUAL "REUSE_FROM")
      target_precompile_headers(${target} REUSE_FROM ${ARGV2})
    else()
      target_precompile_headers(${target} PRIVATE ${ARGN})
    endif()
  endif()
endfunction()

# penstock_test_headers(NAME source headers... [DEPS libraries...]): what tests share; see penstock_precompile.
function(penstock_test_headers name source)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock)
  penstock_compile_as_test(${name})
  penstock_precompile(${name} ${ARG_UNPARSED_ARGUMENTS})
endfunction()

# What takes time in a test is in libraries; its own files are compiled once for each time that they run. Under sanitizers their
# code generation is most of it, and -O0 halves that. -fPIC: a precompiled header fits only where all such options are the same,
# and libraries have it.
function(penstock_compile_as_test target)
  if(PENSTOCK_SANITIZER)
    target_compile_options(${target} PRIVATE -pthread -fPIC -O0)
  else()
    target_compile_options(${target} PRIVATE -pthread -fPIC $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()

# penstock_test(NAME sources... LABELS labels... [WHOLE] [TIMEOUT seconds] [ENVIRONMENT NAME=value...]
#               [HEADERS precompiled] [DEPS libraries...])
#
# LABELS: unit, integration or system; `core` where thread sanitizer can judge it; `torch` where LibTorch is linked;
# `gpu` where it needs a GPU. HEADERS: of penstock_test_headers, test_headers by default. Each test case is one CTest test
# with a time-out (default 60 s); with WHOLE all of them are one, where what they share takes long to start, a server.
function(penstock_test name)
  cmake_parse_arguments(ARG "WHOLE" "TIMEOUT;HEADERS" "LABELS;ENVIRONMENT;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(NOT ARG_HEADERS)
    set(ARG_HEADERS test_headers)
  endif()
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  if(PENSTOCK_SANITIZER STREQUAL "thread")
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support/thread_sanitizer.cc)
  endif()
  penstock_compile_as_test(${name})
  penstock_precompile(${name} REUSE_FROM ${ARG_HEADERS})
  if("core" IN_LIST ARG_LABELS)
    if(NOT TARGET core_tests)
      add_custom_target(core_tests)
    endif()
    add_dependencies(core_tests ${name})
  endif()
  if(ARG_WHOLE)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" ENVIRONMENT "${ARG_ENVIRONMENT}")
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
