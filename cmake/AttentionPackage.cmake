# find_package(xformer), with which an attention of one's own is compiled outside this tree (docs/own-attention.md): the
# headers of `attention` and the layers below, here as they stand in the tree, in an installed program beside it.
set(package_layers core readers tensor kernels attention)

# A hash of these headers, which program and library must agree on (src/attention/plugin.h).
set(interface ${CMAKE_BINARY_DIR}/generated/attention/interface.inc)
set(package_headers "")
foreach(layer IN LISTS package_layers)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/${layer}/*.h)
  list(APPEND package_headers ${headers})
endforeach()
# Without what CUDA's compiler alone reads: device programs and what is built on them.
set(of_devices "(device/|[a-z_/]*(device|cuda|stages|programs?)\\.h)")
list(FILTER package_headers EXCLUDE REGEX "^kernels/${of_devices}")
foreach(header IN LISTS package_headers)
  file(STRINGS src/${header} found REGEX "^#include \"kernels/${of_devices}" LIMIT_COUNT 1)
  if(found)
    list(REMOVE_ITEM package_headers ${header})
  endif()
endforeach()
list(TRANSFORM package_headers PREPEND ${CMAKE_SOURCE_DIR}/src/ OUTPUT_VARIABLE header_files)
add_custom_command(OUTPUT ${interface}
                   COMMAND ${CMAKE_COMMAND} "-DHEADERS=${package_headers}" -DSOURCE=${CMAKE_SOURCE_DIR}/src -DOUTPUT=${interface}
                           -P ${CMAKE_SOURCE_DIR}/cmake/write_interface.cmake
                   DEPENDS ${header_files} ${CMAKE_SOURCE_DIR}/cmake/write_interface.cmake VERBATIM)
target_sources(xformer_attention PRIVATE ${interface})

# Libraries are linked with nothing of the program: they find it in the process.
set(exported ${CMAKE_SOURCE_DIR}/cmake/exported_symbols.list)
target_link_options(xformer-engine PRIVATE "LINKER:--dynamic-list=${exported}")
set_target_properties(xformer-engine PROPERTIES LINK_DEPENDS ${exported})

# Once for the build, once for what is installed from it.
string(REGEX MATCH "^[0-9]+\\.[0-9]+" package_torch ${XFORMER_LIBTORCH_VERSION})
set(package_include "${CMAKE_SOURCE_DIR}/src;${CMAKE_BINARY_DIR}/generated")
set(package_libtorch "${XFORMER_LIBTORCH}")
configure_file(cmake/xformer-config.cmake.in ${CMAKE_BINARY_DIR}/xformer-config.cmake @ONLY)
configure_file(cmake/attention_plugin.cpp.in ${CMAKE_BINARY_DIR}/attention_plugin.cpp.in COPYONLY)
set(package_include "\${CMAKE_CURRENT_LIST_DIR}/../../../include/xformer")
set(package_libtorch "\${CMAKE_CURRENT_LIST_DIR}/../../../.libtorch")
configure_file(cmake/xformer-config.cmake.in ${CMAKE_BINARY_DIR}/installed/xformer-config.cmake @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/installed/xformer-config.cmake cmake/attention_plugin.cpp.in DESTINATION share/cmake/xformer)
foreach(header IN LISTS package_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES src/${header} DESTINATION include/xformer/${folder})
endforeach()
install(FILES ${interface} DESTINATION include/xformer/attention)
# Others' headers in the versions that the program was compiled with; of fmt what these headers include.
find_path(fmt_folder fmt/format.h REQUIRED)
find_path(json_folder nlohmann/json.hpp REQUIRED)
install(FILES ${fmt_folder}/fmt/core.h ${fmt_folder}/fmt/format.h ${fmt_folder}/fmt/format-inl.h DESTINATION include/xformer/fmt)
install(DIRECTORY ${json_folder}/nlohmann DESTINATION include/xformer)
file(GLOB skeletons CONFIGURE_DEPENDS src/attention/skeletons/*.in)
install(FILES ${skeletons} DESTINATION share/xformer/skeletons)
