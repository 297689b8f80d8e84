// From words to an exit code.
#pragma once

#include <vector>

#include "cli/command.h"

namespace xformer::cli {

// `commands`: every verb, in the order of the help text. Errors become words on stderr and their exit codes.
int run(int argc, char** argv, const std::function<std::vector<CommandSetup>()>& commands);

}  // namespace xformer::cli
