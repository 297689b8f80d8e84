// `xformer completion bash|zsh|fish`: a script by which the shell asks the program what may follow.
#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "cli/completion.h"

namespace xformer::cli {

std::function<int()> add_completion(CLI::App& program) {
  const auto shell = std::make_shared<std::string>();
  CLI::App& command = *program.add_subcommand("completion", "print a completion script for bash, zsh or fish");
  words(command.add_option("SHELL", *shell, "whose"), {"bash", "zsh", "fish"})->required();
  return [shell] {
    fmt::print("{}", completion_script(*shell));
    return 0;
  };
}

}  // namespace xformer::cli
