# The target `xformer_code_version`: a source with the commit that was compiled, marked dirty when the files that are
# compiled differ from it. Looked up at every build, rewritten (and so recompiled) only when it changed.
set(version_source ${CMAKE_BINARY_DIR}/generated/code_version.cpp)
set(version_command ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUTPUT=${version_source} -DVERSION=${PROJECT_VERSION}
                    -DCOMPILER=${CMAKE_CXX_COMPILER_ID}-${CMAKE_CXX_COMPILER_VERSION} -DBUILD=${CMAKE_BUILD_TYPE}
                    -P ${CMAKE_SOURCE_DIR}/cmake/write_code_version.cmake)
execute_process(COMMAND ${version_command})
add_custom_target(xformer_write_code_version COMMAND ${version_command} BYPRODUCTS ${version_source}
                  COMMENT "Looking up the code's version")
add_library(xformer_code_version STATIC ${version_source})
target_include_directories(xformer_code_version PRIVATE ${CMAKE_SOURCE_DIR}/src)
add_dependencies(xformer_code_version xformer_write_code_version)
