# penstock_install_with_tokenizers(PROGRAM COMPONENT): the program, its libraries of tokenizers below lib/penstock, and their licences.
function(penstock_install_with_tokenizers program component)
  file(RELATIVE_PATH from_program ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/penstock/tokenizers)
  set_target_properties(${program} PROPERTIES INSTALL_RPATH $ORIGIN/${from_program})
  install(TARGETS ${program} RUNTIME COMPONENT ${component})
  install(FILES ${TOKENIZERS_DIR}/lib/libpytorch_tokenizers.so ${TOKENIZERS_DIR}/lib/libonnxruntime_extensions.so
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/penstock/tokenizers COMPONENT ${component})
  file(GLOB records ${TOKENIZERS_DIR}/*.dist-info)
  foreach(record IN LISTS records)
    get_filename_component(wheel ${record} NAME_WE)
    file(GLOB_RECURSE texts ${record}/LICENSE* ${record}/NOTICE* ${record}/ThirdParty*)
    install(FILES ${texts} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/penstock-${component}/${wheel} COMPONENT ${component})
  endforeach()
endfunction()
