# xformer_embed_texts(TARGET HEADER FUNCTION GLOB [key])
#
# The library TARGET with the function that src/HEADER declares in the namespace of its layer: the texts of the files GLOB,
# each, where it is JSON, without `key`.
function(xformer_embed_texts target header function pattern)
  get_filename_component(layer ${header} DIRECTORY)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${pattern})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  set(rows "")
  foreach(file IN LISTS files)
    file(READ ${file} text)
    if(ARGC GREATER 4)
      string(JSON text REMOVE "${text}" ${ARGV4})
    endif()
    string(APPEND rows "    R\"text(${text})text\",\n")
  endforeach()
  set(source ${CMAKE_BINARY_DIR}/generated/${function}.cpp)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT "// Generated from ${pattern}.
#include \"${header}\"

namespace xformer::${layer} {

const std::vector<const char*>& ${function}() {
  static const std::vector<const char*> kTexts{
@rows@  };
  return kTexts;
}

}  // namespace xformer::${layer}
")
  add_library(${target} STATIC ${source})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE xformer_core)
endfunction()

# What the manifests say of their samples is for people.
xformer_embed_texts(xformer_dataset_manifests data/manifests.h manifest_texts "datasets/*/manifest.json" sample)
xformer_embed_texts(xformer_protocols plan/protocols.h protocol_texts "protocols/*.json")
# What a Python file of a trained model is put together from.
xformer_embed_texts(xformer_pytorch_attentions inspect/pytorch_fragments.h attention_fragments "src/attention/pytorch/*.py")
xformer_embed_texts(xformer_pytorch_models inspect/pytorch_fragments.h model_fragments "src/models/pytorch/*.py")
