# Writes a source with version and commit, when they are not those that it has.
#
# cmake -DSOURCE=FOLDER -DVERSION=0.1.0 -DTEMPLATE=FILE -DOUT=FILE -P WriteVersion.cmake
#
# PENSTOCK_COMMIT in the environment says the commit where there is no repository (container images, packages).
set(COMMIT "$ENV{PENSTOCK_COMMIT}")
if(COMMIT STREQUAL "")
  execute_process(COMMAND git describe --always --abbrev=12 --exclude=* --dirty WORKING_DIRECTORY ${SOURCE}
    OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(COMMIT STREQUAL "")
  set(COMMIT unknown)
endif()
configure_file(${TEMPLATE} ${OUT} @ONLY)
