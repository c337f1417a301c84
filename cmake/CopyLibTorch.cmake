# Run by `cmake --install`: copies the libraries below `wheels` that `program` loads, directly or not, to the same places below
# `destination`, and the licences of the wheels, where deploy/setup has kept them, to `licences`.
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${program} RESOLVED_DEPENDENCIES_VAR libraries UNRESOLVED_DEPENDENCIES_VAR missing
  POST_INCLUDE_REGEXES "^${wheels}/" POST_EXCLUDE_REGEXES ".")
if(missing)
  message(FATAL_ERROR "${program} needs ${missing}, which this machine does not have: run deploy/setup")
endif()
foreach(library IN LISTS libraries)
  get_filename_component(library ${library} ABSOLUTE)
  file(RELATIVE_PATH place ${wheels} ${library})
  get_filename_component(folder ${place} DIRECTORY)
  file(INSTALL DESTINATION ${destination}/${folder} TYPE SHARED_LIBRARY FOLLOW_SYMLINK_CHAIN FILES ${library})
endforeach()

file(GLOB records ${wheels}/torch-*.dist-info ${wheels}/nvidia_cuda_runtime*.dist-info ${wheels}/nvidia_cuda_cupti*.dist-info)
foreach(record IN LISTS records)
  get_filename_component(wheel ${record} NAME_WE)
  file(GLOB_RECURSE texts ${record}/LICENSE* ${record}/License* ${record}/NOTICE*)
  file(INSTALL DESTINATION ${licences}/${wheel} TYPE FILE FILES ${texts})
endforeach()
