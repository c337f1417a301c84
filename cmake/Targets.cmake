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

# penstock_test(NAME sources... LABELS labels... [TIMEOUT seconds] [ENVIRONMENT NAME=value...] [DEPS libraries...])
#
# LABELS: unit, integration or system; `core` where thread sanitizer can judge it; `torch` where LibTorch is linked;
# `gpu` where it needs a GPU. Each test case is one CTest test with a time-out (default 60 s).
function(penstock_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABELS;ENVIRONMENT;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  if("core" IN_LIST ARG_LABELS)
    if(NOT TARGET core_tests)
      add_custom_target(core_tests)
    endif()
    add_dependencies(core_tests ${name})
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
