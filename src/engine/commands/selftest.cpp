// `xformer selftest`: does this build compute what it should on this machine?
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "core/error.h"
#include "core/names.h"
#include "engine/commands.h"
#include "engine/plan_arguments.h"
#include "inspect/selftest.h"

namespace xformer::engine {

namespace {

struct SelftestArguments {
  std::vector<std::string> parts{"learning"}, precisions = inspect::recorded_precisions();
  CLI::Option* precision = nullptr;
  ComputeArguments compute;
};

int selftest(const SelftestArguments& arguments) {
  for (const std::string& part : arguments.parts)
    static_cast<void>(choice("--part: ", "part", part, inspect::selftest_parts()));
  for (const std::string& precision : arguments.precisions)
    static_cast<void>(choice("--precision: ", "precision", precision, inspect::recorded_precisions()));
  const bool captures = std::find(arguments.parts.begin(), arguments.parts.end(), "captured") != arguments.parts.end();
  XF_CHECK(captures || arguments.precision->count() == 0, UserError,
           "--precision: captured alone has precisions of its own; add --part captured");
  arguments.compute.check();
  const at::Device device = arguments.compute.start();
  bool passed = true;
  for (const std::string& part : arguments.parts) {
    const auto report =
        inspect::run_selftest(part, device, arguments.precisions, [](const inspect::SelftestItem& item) {
          fmt::print("{}  {} ({})\n", item.passed ? "ok  " : "FAIL", item.claim, item.detail);
          std::fflush(stdout);
        });
    if (!report.fingerprint.empty()) fmt::print("fingerprint {}\n", report.fingerprint);
    passed = passed && report.passed();
  }
  return static_cast<int>(passed ? ExitCode::kDone : ExitCode::kInternal);
}

}  // namespace

std::function<int()> add_selftest(CLI::App& program) {
  const auto arguments = std::make_shared<SelftestArguments>();
  CLI::App& command =
      *program.add_subcommand("selftest", "checks that this build computes what it should on this machine");
  words(command.add_option(
            "--part", arguments->parts,
            "learning (tiny models, with a fingerprint of the training), contract (every attention against double "
            "precision), captured (recorded steps against plain ones)"),
        inspect::selftest_parts())
      ->delimiter(',')
      ->capture_default_str();
  arguments->precision = words(command.add_option("--precision", arguments->precisions, "captured: in these alone"),
                               inspect::recorded_precisions())
                             ->delimiter(',')
                             ->capture_default_str();
  arguments->compute.add_to(command, /*batches=*/false);
  return [arguments] { return selftest(*arguments); };
}

}  // namespace xformer::engine
