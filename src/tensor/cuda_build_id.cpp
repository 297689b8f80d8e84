// Compiled into the program and into the plugin.
#include <fmt/format.h>
#include <torch/version.h>

#include "core/code_version.h"
#include "tensor/cuda_backend.h"

namespace xformer {

std::string cuda_build_id() {
  const CodeVersion& code = code_version();
  return fmt::format("xformer {} {}{} with LibTorch {}", code.version, code.commit.substr(0, 12),
                     code.dirty ? " modified" : "", TORCH_VERSION);
}

}  // namespace xformer
