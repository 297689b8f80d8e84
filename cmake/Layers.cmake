# xformer_layer(NAME LINK targets... [TORCH] [REGISTRY folder]...)
#
# The library xformer_NAME from src/NAME/**.cpp. With TORCH it shares the precompiled LibTorch header.
# REGISTRY folder: every .cpp directly in src/NAME/folder defines `describe()` in the namespace of its stem
# (xformer::NAME::folder::stem); a generated header lists them all, so a new file is found by the next build
# and a plain static library keeps every one of them.
function(xformer_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 layer "TORCH" "" "LINK;REGISTRY")
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
  if(layer_TORCH)
    if(name STREQUAL "tensor")
      target_precompile_headers(xformer_tensor PRIVATE ${CMAKE_SOURCE_DIR}/src/tensor/pch.h)
    else()
      target_precompile_headers(xformer_${name} REUSE_FROM xformer_tensor)
    endif()
    if(XFORMER_UNITY)
      # A LibTorch file costs seconds of headers alone; a few batches keep two cores busy.
      set_target_properties(xformer_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
    endif()
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
