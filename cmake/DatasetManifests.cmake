# The target `xformer_dataset_manifests`: a source with datasets/*/manifest.json, without what they say of their samples.
file(GLOB manifests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/datasets/*/manifest.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${manifests})
set(rows "")
foreach(manifest IN LISTS manifests)
  file(READ ${manifest} text)
  string(JSON text REMOVE "${text}" sample)
  string(APPEND rows "    R\"json(${text})json\",\n")
endforeach()
set(manifests_source ${CMAKE_BINARY_DIR}/generated/dataset_manifests.cpp)
file(CONFIGURE OUTPUT ${manifests_source} @ONLY CONTENT "// Generated from datasets/*/manifest.json.
#include \"data/manifests.h\"

namespace xformer::data {

const std::vector<const char*>& manifest_texts() {
  static const std::vector<const char*> kTexts{
@rows@  };
  return kTexts;
}

}  // namespace xformer::data
")
add_library(xformer_dataset_manifests STATIC ${manifests_source})
target_include_directories(xformer_dataset_manifests PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(xformer_dataset_manifests PRIVATE xformer_core)
