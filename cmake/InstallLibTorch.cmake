# penstock_install_with_libtorch(PROGRAM COMPONENT): the program, and in the component `libtorch` what it loads of LibTorch's folder.
#
# The libraries keep their places to each other, by which they find each other, below lib/penstock. With PENSTOCK_INSTALL_LIBTORCH=OFF
# the program looks for LibTorch where it was built with it; so does the CUDA worker, which loads many of CUDA's libraries by name.
include(CMakeDependentOption)
cmake_dependent_option(PENSTOCK_INSTALL_LIBTORCH "Install the libraries of LibTorch that the worker loads with it" ON
  "NOT PENSTOCK_CUDA" OFF)

function(penstock_install_with_libtorch program component)
  if(NOT PENSTOCK_INSTALL_LIBTORCH)
    set_target_properties(${program} PROPERTIES INSTALL_RPATH ${LIBTORCH_DIR}/lib)
    install(TARGETS ${program} RUNTIME COMPONENT ${component})
    return()
  endif()
  get_filename_component(libtorch ${LIBTORCH_DIR} ABSOLUTE)
  get_filename_component(name ${libtorch} NAME)
  get_filename_component(wheels ${libtorch} DIRECTORY)
  file(RELATIVE_PATH from_program ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/penstock/${name}/lib)
  set_target_properties(${program} PROPERTIES INSTALL_RPATH $ORIGIN/${from_program})
  install(TARGETS ${program} RUNTIME COMPONENT ${component})
  install(CODE "
    set(program \"$<TARGET_FILE:${program}>\")
    set(wheels \"${wheels}\")
    set(destination \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/penstock\")
    set(licences \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/doc/penstock-libtorch\")
    include(\"${CMAKE_SOURCE_DIR}/cmake/CopyLibTorch.cmake\")" COMPONENT libtorch)
endfunction()
