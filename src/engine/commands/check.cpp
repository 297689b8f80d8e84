// `xformer check`: is an attention core, most of all one of a file of one's own, fit to be trained, and what does it
// cost?
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "attention/own_file.h"
#include "core/error.h"
#include "engine/commands.h"
#include "engine/plan_arguments.h"
#include "inspect/core_checks.h"

namespace xformer::engine {

namespace {

struct CheckArguments {
  std::string name;
  std::vector<std::string> settings;
  int64_t heads = 2, head_dim = 32, length = 512;
  ComputeArguments compute;
};

int check(const CheckArguments& arguments) {
  arguments.compute.check();
  const std::filesystem::path given = arguments.name;
  XF_CHECK(given.extension() != ".py", UserError, "{}: expected the TorchScript file that `python3 {}` makes, {}",
           arguments.name, arguments.name, std::filesystem::path(given).replace_extension(".pt").string());
  // A file alone is meant as one's own attention.
  std::string name = arguments.name;
  if (attention::own_file_at(name) == std::string::npos)
    for (const auto& [ending, kind] : {std::pair{".pt", attention::kScript}, std::pair{".so", attention::kPlugin}})
      if (given.extension() == ending) name = std::string(kind) + name;
  inspect::CoreChecks what;
  what.attention = attention::resolve(name);
  RunPlan plan;
  plan.options = resolve_options({{"attention", what.attention.name, what.attention.options()}},
                                 {settings_layer(arguments.settings)});
  what.options = plan.group("attention");
  what.heads = arguments.heads;
  what.head_dim = arguments.head_dim;
  what.length = arguments.length;
  int64_t failed = 0;
  inspect::check_core(what, arguments.compute.start(), [&](const inspect::SelftestItem& item) {
    fmt::print("{}  {} ({})\n", item.passed ? "ok  " : "FAIL", item.claim, item.detail);
    std::fflush(stdout);
    failed += item.passed ? 0 : 1;
  });
  if (failed == 0) fmt::print("fit: xformer train --model {} --task temporal-order\n", what.attention.name);
  else fmt::print("not fit: {} of the checks failed\n", failed);
  return static_cast<int>(failed == 0 ? ExitCode::kDone : ExitCode::kData);
}

}  // namespace

std::function<int()> add_check(CLI::App& program) {
  const auto arguments = std::make_shared<CheckArguments>();
  CheckArguments& a = *arguments;
  CLI::App& command = *program.add_subcommand("check", "is an attention of your own fit, and what does it cost?");
  command.add_option("FILE", a.name, "my.pt, libmy.so, or the name of an attention core")->required();
  command.add_option("--set", a.settings, "option, attention.KEY=VALUE; again for more")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(true);
  const auto size = [&](const char* name, int64_t& into, const char* help) {
    command.add_option(name, into, help)->check(whole_number(1))->capture_default_str();
  };
  size("--heads", a.heads, "heads");
  size("--head-dim", a.head_dim, "width of a head");
  size("--length", a.length, "tokens that are measured, and four times as many");
  a.compute.add_to(command, /*batches=*/false);
  return [arguments] { return check(*arguments); };
}

}  // namespace xformer::engine
