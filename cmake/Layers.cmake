# xformer_layer(NAME LINK targets... [TORCH] [OWN_HEADER] [REGISTRY folder]...)
#
# The library xformer_NAME from src/NAME/**.cpp. It shares a precompiled header: LibTorch's with TORCH, core's without.
# OWN_HEADER: made anew, for a layer that is optimised otherwise; with the shared one g++ 12 compiles batches
# of files by the options that the header was made with, and says nothing.
# REGISTRY folder: every .cpp directly in src/NAME/folder defines `describe()` in the namespace of its stem
# (xformer::NAME::folder::stem); a generated header lists them all, so a new file is found by the next build
# and a plain static library keeps every one of them.
function(xformer_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 layer "TORCH;OWN_HEADER" "" "LINK;REGISTRY")
  set(folder ${CMAKE_SOURCE_DIR}/src/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  # Parts of libraries of their own (cmake/CudaPlugin.cmake, cmake/Pieces.cmake).
  list(FILTER sources EXCLUDE REGEX "/(cuda|sentencepiece_library)\\.cpp$")
  add_library(xformer_${name} STATIC ${sources})
  target_include_directories(xformer_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(xformer_${name} PUBLIC ${layer_LINK})
  foreach(registry IN LISTS layer_REGISTRY)
    xformer_registry_header(${name} ${registry})
  endforeach()
  # Whose precompiled header is used; without XFORMER_UNITY it is LibTorch's alone.
  set(owner core)
  if(layer_TORCH)
    set(owner tensor)
  endif()
  if((layer_OWN_HEADER OR name STREQUAL owner) AND (layer_TORCH OR XFORMER_UNITY))
    target_precompile_headers(xformer_${name} PRIVATE ${CMAKE_SOURCE_DIR}/src/${owner}/pch.h)
  elseif(layer_TORCH OR XFORMER_UNITY)
    target_precompile_headers(xformer_${name} REUSE_FROM xformer_${owner})
  endif()
  if(XFORMER_UNITY)
    # Headers and their templates cost most files more than what is written there; a few batches keep two cores busy.
    set_target_properties(xformer_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
  endif()
endfunction()

function(xformer_registry_header name registry)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/${registry}/*.cpp)
  set(declarations "")
  set(calls "")
  foreach(file IN LISTS files)
    get_filename_component(stem ${file} NAME_WE)
    string(APPEND declarations "namespace xformer::${name}::${registry}::${stem} { XFORMER_DESCRIBE_TYPE describe(); }\n")
    string(APPEND calls "  append(xformer::${name}::${registry}::${stem}::describe());\n")
  endforeach()
  set(content "// Generated from src/${name}/${registry}/*.cpp. XFORMER_DESCRIBE_TYPE is what describe() returns there.\n\
${declarations}\nnamespace xformer::${name}::${registry} {\ntemplate <class Append>\nvoid for_each_family(const Append& append) {\n${calls}}\n}\n\
#undef XFORMER_DESCRIBE_TYPE\n")
  set(header ${CMAKE_BINARY_DIR}/generated/${name}/${registry}.inc)
  file(CONFIGURE OUTPUT ${header} CONTENT "${content}" @ONLY)
  target_include_directories(xformer_${name} PRIVATE ${CMAKE_BINARY_DIR}/generated)
endfunction()
