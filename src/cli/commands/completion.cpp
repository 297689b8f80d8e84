// `xformer completion bash|zsh|fish`: a completion script made from the program's own options.
#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "core/error.h"
#include "core/names.h"

namespace xformer::cli {

std::function<int()> add_completion(CLI::App& program, const Catalogue& catalogue) {
  const auto shell = std::make_shared<std::string>();
  CLI::App& command = *program.add_subcommand("completion", "print a completion script for bash, zsh or fish");
  command.add_option("SHELL", *shell, "bash, zsh or fish")->required();
  return [shell, catalogue] {
    const Json scripts = catalogue.read()["completion"];
    XF_CHECK(scripts.contains(*shell), UserError, "{}", unknown_name_message("shell", *shell, {"bash", "fish", "zsh"}));
    fmt::print("{}", scripts[*shell].get<std::string>());
    return 0;
  };
}

}  // namespace xformer::cli
