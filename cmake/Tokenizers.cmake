# penstock::tokenizer_libraries: pytorch-tokenizers, with the libpython that extension modules of Python need to be loaded (nothing of
# Python runs), and utf8proc. onnxruntime-extensions, beside the former, is opened at run time by its name.
#
# TOKENIZERS_DIR, a CMake or environment variable, names the folder with include/ and lib/; by default it is what deploy/setup unpacked.
set(TOKENIZERS_DIR "$ENV{TOKENIZERS_DIR}" CACHE PATH "Libraries of tokenizers: the folder with include/ and lib/")
if(NOT TOKENIZERS_DIR)
  if(DEFINED ENV{PENSTOCK_CACHE})
    set(penstock_cache "$ENV{PENSTOCK_CACHE}")
  else()
    set(penstock_cache "$ENV{HOME}/.cache/penstock")
  endif()
  set_property(CACHE TOKENIZERS_DIR PROPERTY VALUE "${penstock_cache}/tokenizers-1")
endif()
if(NOT EXISTS ${TOKENIZERS_DIR}/lib/libpytorch_tokenizers.so)
  message(FATAL_ERROR "No tokenizers in '${TOKENIZERS_DIR}': run deploy/setup, or set TOKENIZERS_DIR to a folder with include/ and lib/")
endif()
# The version of Python that the libraries are for.
file(READ ${TOKENIZERS_DIR}/python penstock_python)
string(STRIP "${penstock_python}" penstock_python)
find_library(PENSTOCK_LIBPYTHON NAMES python${penstock_python} libpython${penstock_python}.so.1.0 REQUIRED)
find_library(PENSTOCK_UTF8PROC utf8proc REQUIRED)

add_library(penstock_tokenizer_libraries INTERFACE)
add_library(penstock::tokenizer_libraries ALIAS penstock_tokenizer_libraries)
target_include_directories(penstock_tokenizer_libraries SYSTEM INTERFACE ${TOKENIZERS_DIR}/include)
# The library has no SONAME: by a path it would be looked for at that path for ever. libpython is needed by what is opened later, too.
target_link_directories(penstock_tokenizer_libraries INTERFACE ${TOKENIZERS_DIR}/lib)
target_link_options(penstock_tokenizer_libraries INTERFACE -Wl,--no-as-needed -Wl,--disable-new-dtags)
target_link_libraries(penstock_tokenizer_libraries INTERFACE pytorch_tokenizers ${PENSTOCK_LIBPYTHON} ${PENSTOCK_UTF8PROC} ${CMAKE_DL_LIBS})
