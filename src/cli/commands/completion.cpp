// `xformer completion bash|zsh|fish`: a completion script made from the program's own options.
#include "cli/completion.h"

#include <fmt/format.h>

#include "cli/command.h"
#include "plan/options.h"

namespace xformer::cli {

namespace {

CompletionWords words() {
  const std::vector<std::string> attentions = attention::all_names();
  std::vector<std::string> tasks = data::datasets().names();
  // "uea/<name>" stands for any name.
  std::erase_if(tasks, [](const std::string& name) { return name.ends_with("<name>"); });
  std::vector<std::string> names = attentions, protocols, keys;
  for (const auto& list : {models::all_families().names(), tasks, std::vector<std::string>{"training", "eval"}})
    names.insert(names.end(), list.begin(), list.end());
  for (const data::DatasetDescriptor& task : data::datasets().all()) {
    for (const plan::Protocol& protocol : plan::protocols_of(task.name)) protocols.push_back(protocol.name);
    for (const std::string& attention : attentions)
      for (const OptionGroup& group : plan::option_groups(plan::find_parts(task.name, attention, "")))
        for (const OptionInfo& option : group.options) keys.push_back(group.prefix + "." + option.name + "=");
  }
  const auto unique = [](std::vector<std::string> list) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    return list;
  };
  return {{"--model", attentions},
          {"--models", attentions},
          {"--mode", {"train", "inference"}},
          {"--core", attentions},
          {"--mixer", attentions},
          {"--task", tasks},
          {"--protocol", unique(protocols)},
          {"--set", unique(keys)},
          {"NAME", unique(names)},
          {"--precision", {"fp32", "bf16"}},
          {"--device", {"auto", "cpu", "cuda"}},
          {"--resume", {"auto", "never", "must"}},
          {"--kernels", {"auto", "composite", "reference", "check"}},
          {"--deterministic", {"on", "off"}},
          {"--cuda-graph", {"auto", "on", "off"}},
          {"--split", {"train", "dev", "test"}},
          {"--dump-config", {"full", "minimal"}},
          {"WHAT", {"all", "attentions", "models", "tasks"}},
          {"SHELL", {"bash", "zsh", "fish"}}};
}

}  // namespace

std::function<int()> add_completion(CLI::App& program) {
  const auto shell = std::make_shared<std::string>();
  CLI::App& command = *program.add_subcommand("completion", "print a completion script for bash, zsh or fish");
  command.add_option("SHELL", *shell, "bash, zsh or fish")->required();
  return [shell, &program] {
    fmt::print("{}", completion_script(program, *shell, words()));
    return 0;
  };
}

}  // namespace xformer::cli
