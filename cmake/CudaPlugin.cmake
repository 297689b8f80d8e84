# The plugin libxformer_cuda.so, beside the program: what runs on CUDA devices. Built wherever a CUDA 13 compiler is, GPU or
# not, and skipped with a line elsewhere. XFORMER_CUDA=ON makes its absence an error.
#
# Device code knows nothing of LibTorch and is compiled by nvcc for sm_80 and sm_90, with PTX for what comes after. What the
# assembler says of a kernel's registers, stack and spills lies beside its object (.ptxas; tests/repo/ptxas_test.sh).
set(XFORMER_CUDA AUTO CACHE STRING "Build the CUDA plugin: AUTO (where nvcc 13 is), ON or OFF")
# Off: they make the plugin twice as large, and a package may have 40 MB.
option(XFORMER_CUDA_LINES "Tables of source lines in the CUDA plugin, for a profiler (ncu)" OFF)
if(XFORMER_CUDA STREQUAL "OFF")
  return()
endif()

# The first of CUDA 13: an older toolkit on PATH must not hide the compiler that scripts/setup fetched because of it.
function(xformer_check_nvcc fits candidate)
  execute_process(COMMAND ${candidate} --version OUTPUT_VARIABLE version RESULT_VARIABLE failed ERROR_QUIET)
  if(failed OR NOT version MATCHES "release 13\\.")
    set(${fits} FALSE PARENT_SCOPE)
  endif()
endfunction()
if(XFORMER_NVCC) # of an earlier configuration; it may be another one by now
  set(nvcc_fits TRUE)
  xformer_check_nvcc(nvcc_fits ${XFORMER_NVCC})
  if(NOT nvcc_fits)
    unset(XFORMER_NVCC CACHE)
  endif()
endif()
cmake_path(SET named_compiler "$ENV{CUDACXX}")
cmake_path(GET named_compiler PARENT_PATH named_folder)
find_program(XFORMER_NVCC nvcc HINTS "${named_folder}" PATHS /usr/local/cuda/bin "${XFORMER_LIBTORCH}/cuda/bin"
             VALIDATOR xformer_check_nvcc)
set(nvcc_version "")
if(XFORMER_NVCC)
  execute_process(COMMAND ${XFORMER_NVCC} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
endif()
set(missing "")
if(NOT XFORMER_NVCC)
  set(missing "no CUDA 13 compiler was found (scripts/setup --cuda brings one)")
elseif(NOT EXISTS "${XFORMER_LIBTORCH}/lib/libtorch_cuda.so")
  set(missing "${XFORMER_LIBTORCH} is a LibTorch without CUDA")
endif()
if(missing)
  if(XFORMER_CUDA STREQUAL "ON")
    message(FATAL_ERROR "The CUDA plugin cannot be built: ${missing}")
  endif()
  message(STATUS "Without the CUDA plugin: ${missing}")
  return()
endif()
message(STATUS "CUDA plugin: compiled with ${XFORMER_NVCC}")

get_filename_component(nvcc_folder ${XFORMER_NVCC} REALPATH)
get_filename_component(nvcc_folder ${nvcc_folder} DIRECTORY)
get_filename_component(cuda_include ${nvcc_folder}/../include ABSOLUTE)

file(GLOB_RECURSE device_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*.cu)
set(line_tables "")
if(XFORMER_CUDA_LINES)
  set(line_tables -lineinfo)
endif()
set(device_objects "")
foreach(source IN LISTS device_sources)
  file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/src ${source})
  set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
  get_filename_component(object_folder ${object} DIRECTORY)
  file(MAKE_DIRECTORY ${object_folder})
  add_custom_command(
    OUTPUT ${object}
    COMMAND sh -c [["$@" 2>"$0" || { cat "$0" >&2; exit 1; }]] ${object}.ptxas
            ${XFORMER_NVCC} -c ${source} -o ${object} -MD -MF ${object}.d -std=c++20 -O3 --expt-relaxed-constexpr
            ${line_tables} --compress-mode=size -Werror all-warnings -Xptxas -v -ccbin ${CMAKE_CXX_COMPILER} -Xcompiler -fPIC -I ${CMAKE_SOURCE_DIR}/src
            -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]
    DEPENDS ${source} DEPFILE ${object}.d VERBATIM COMMENT "Compiling ${name} for CUDA")
  list(APPEND device_objects ${object})
endforeach()

file(GLOB_RECURSE host_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/*.cpp)
file(GLOB_RECURSE operator_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/*/cuda.cpp)
add_library(xformer_cuda SHARED ${host_sources} ${operator_sources} ${device_objects}
            ${CMAKE_SOURCE_DIR}/src/tensor/cuda_build_id.cpp)
target_include_directories(xformer_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src)
# The toolkit's headers come last: LibTorch's folder may hold another minor version of some.
target_compile_options(xformer_cuda PRIVATE "SHELL:-idirafter \"${cuda_include}\"" -fvisibility=hidden)
target_link_libraries(xformer_cuda PRIVATE libtorch xformer_code_version fmt::fmt nlohmann_json::nlohmann_json
                      "${XFORMER_LIBTORCH}/lib/libtorch_cuda.so" "${XFORMER_LIBTORCH}/lib/libc10_cuda.so"
                      "${XFORMER_LIBTORCH}/lib/libcudart.so.13")
set_target_properties(xformer_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} DEFINE_SYMBOL "")
if(XFORMER_UNITY)
  # No precompiled header: the one there is was made without -fvisibility=hidden, and its templates would be exported.
  set_target_properties(xformer_cuda PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 9)
endif()
# Who builds the program gets its plugin.
add_dependencies(xformer xformer_cuda)
