// Which code was compiled, for records; filled in by the build (cmake/CodeVersion.cmake).
#pragma once

#include <string>

namespace xformer {

struct CodeVersion {
  std::string version;  // of the project
  std::string commit;   // full hash, or "unknown" outside a git checkout
  bool dirty = true;    // the compiled files differ from that commit
  std::string compiler;
  std::string build;  // Release, Debug, ...
};

[[nodiscard]] const CodeVersion& code_version();

}  // namespace xformer
