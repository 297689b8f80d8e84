# libxsmm: the generator of LIBXSMM 1.17, which makes machine code for small products (src/kernels/cpu/tile_product.h).
#
# Only libxsmmgen, and statically: the whole library would bring stand-ins for BLAS's symbols, and work before main().
find_path(XFORMER_LIBXSMM_INCLUDE libxsmm_generator.h)
find_library(XFORMER_LIBXSMM NAMES libxsmmgen.a xsmmgen)
if(NOT XFORMER_LIBXSMM_INCLUDE OR NOT XFORMER_LIBXSMM)
  message(FATAL_ERROR "No LIBXSMM found: libxsmm_generator.h and libxsmmgen.a are missing. Run scripts/setup, or install "
                      "what Debian's package libxsmm-dev holds.")
endif()
add_library(libxsmm INTERFACE)
target_include_directories(libxsmm SYSTEM INTERFACE ${XFORMER_LIBXSMM_INCLUDE})
target_link_libraries(libxsmm INTERFACE ${XFORMER_LIBXSMM})
