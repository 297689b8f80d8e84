// `xformer selftest`: does this build compute what it should on this machine?
#include <fmt/format.h>

#include "cli/command.h"
#include "core/error.h"
#include "tensor/device.h"
#include "training/selftest.h"

namespace xformer::cli {

std::function<int()> add_selftest(CLI::App& program) {
  program.add_subcommand("selftest", "train tiny models for some seconds; prints a fingerprint of the training");
  return [] {
    configure_compute({});
    const training::SelftestReport report = training::run_selftest();
    for (const training::SelftestItem& item : report.items)
      fmt::print("{}  {} ({})\n", item.passed ? "ok  " : "FAIL", item.claim, item.detail);
    fmt::print("fingerprint {}\n", report.fingerprint);
    return static_cast<int>(report.passed() ? ExitCode::kDone : ExitCode::kInternal);
  };
}

}  // namespace xformer::cli
