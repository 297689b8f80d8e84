// What a Python file of a trained model is put together from (inspect/pytorch_module.h): Python files, compiled in
// (cmake/EmbeddedTexts.cmake). One is an attention (src/attention/pytorch), a family or what these share
// (src/models/pytorch). It opens with comments for the program, which are left out:
//   # for: softmax, softmax-fused                whose it is
//   # only: axes=alternate|union, gate=false     options without which it is not that attention or family
// and reads what the plan says from MODEL and ATTENTION, names that the file defines.
#pragma once

#include <vector>

namespace xformer::inspect {

[[nodiscard]] const std::vector<const char*>& attention_fragments();
[[nodiscard]] const std::vector<const char*>& model_fragments();

}  // namespace xformer::inspect
