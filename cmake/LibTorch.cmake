# The target `libtorch`: headers and libraries of a LibTorch folder (XFORMER_LIBTORCH), as scripts/setup lays it out.
#
# The wheel's own CMake package is not used: it demands a CUDA toolkit. Only torch_cpu and c10 are linked; what
# needs CUDA is loaded at run time.
set(XFORMER_LIBTORCH "${CMAKE_SOURCE_DIR}/.libtorch" CACHE PATH "LibTorch 2.11: a folder with include/ and lib/")
if(NOT EXISTS "${XFORMER_LIBTORCH}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "No LibTorch in ${XFORMER_LIBTORCH}: lib/libtorch_cpu.so is missing. "
                      "Run scripts/setup, or set XFORMER_LIBTORCH to a folder with include/ and lib/.")
endif()

file(STRINGS "${XFORMER_LIBTORCH}/include/torch/headeronly/version.h" version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" XFORMER_LIBTORCH_VERSION "${version_lines}")
if(NOT XFORMER_LIBTORCH_VERSION MATCHES "^2\\.11\\.")
  message(WARNING "LibTorch ${XFORMER_LIBTORCH_VERSION} found; xformer is written and tested against 2.11")
endif()

add_library(libtorch INTERFACE)
# After the system's own folders: LibTorch ships headers of other libraries (fmt) in versions that are not linked here.
# In quotes, because SHELL: parts words at blanks, which a folder's name may have.
target_compile_options(libtorch INTERFACE "SHELL:-idirafter \"${XFORMER_LIBTORCH}/include\""
                       "SHELL:-idirafter \"${XFORMER_LIBTORCH}/include/torch/csrc/api/include\"")
target_link_libraries(libtorch INTERFACE "${XFORMER_LIBTORCH}/lib/libtorch_cpu.so" "${XFORMER_LIBTORCH}/lib/libc10.so")
# at::parallel_for is a template of LibTorch's headers: without OpenMP in our files it silently runs on one thread.
# Its library is LibTorch's own copy where there is one, so that both share one set of threads.
find_package(OpenMP REQUIRED COMPONENTS CXX)
target_compile_options(libtorch INTERFACE ${OpenMP_CXX_FLAGS})
if(EXISTS "${XFORMER_LIBTORCH}/lib/libgomp.so.1")
  target_link_libraries(libtorch INTERFACE "${XFORMER_LIBTORCH}/lib/libgomp.so.1")
else()
  target_link_libraries(libtorch INTERFACE ${OpenMP_CXX_LIBRARIES})
endif()
# Symbols of CUDA libraries that libtorch_cpu itself would load are not ours to resolve.
target_link_options(libtorch INTERFACE -Wl,--unresolved-symbols=ignore-in-shared-libs)
set(CMAKE_BUILD_RPATH "${XFORMER_LIBTORCH}/lib")
