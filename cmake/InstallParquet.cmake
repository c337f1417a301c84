# penstock_install_with_parquet(PROGRAM COMPONENT): the program, Arrow's libraries below lib/penstock, and their licences.
function(penstock_install_with_parquet program component)
  file(RELATIVE_PATH from_program ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/penstock/parquet)
  set_target_properties(${program} PROPERTIES INSTALL_RPATH $ORIGIN/${from_program})
  install(TARGETS ${program} RUNTIME COMPONENT ${component})
  # By the names that a loader looks for; a linker's are links to them.
  file(GLOB libraries ${PENSTOCK_PARQUET_DIR}/lib/libarrow.so.* ${PENSTOCK_PARQUET_DIR}/lib/libparquet.so.*)
  install(FILES ${libraries} DESTINATION ${CMAKE_INSTALL_LIBDIR}/penstock/parquet COMPONENT ${component})
  file(GLOB_RECURSE texts ${PENSTOCK_PARQUET_DIR}/*.dist-info/licenses/*)
  install(FILES ${texts} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/penstock-${component} COMPONENT ${component})
endfunction()
