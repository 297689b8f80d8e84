// Where a step goes: the very step that bench times, operator by operator, beside what its arithmetic and its bytes
// alone would take on this machine.
#pragma once

#include "measure/bench.h"

namespace xformer {
struct OpFigures;
}

namespace xformer::measure {

inline constexpr int64_t kProfileSchema = 4;

struct ProfileOptions {
  std::string model, task = "listops", protocol;
  int64_t length = 0, batch = 0;  // 0: the plan's
  std::string mode = "train";     // or "inference"
  int64_t steps = 5;              // timed as they are, and as many again with every operator timed
  int64_t warmup = 2;             // not timed; 1 at least
  std::vector<ValueLayer> layers;
};

// UserError for any wrong name, key, value or combination; nothing is built.
[[nodiscard]] BenchCase profile_case(const ProfileOptions& options);

// The report (docs/profile.md). Interrupted when a stop was requested.
[[nodiscard]] Json run_profile(const ProfileOptions& options, const BenchCase& one, const BenchRun& run);

// The report as tables for people, with its conditions in a last line.
[[nodiscard]] std::string profile_markdown(const Json& report);

// What sort of work an operator is: "products", "attention", "dropout", ... or "other".
[[nodiscard]] std::string operator_kind(const std::string& name, const OpFigures& figures);

}  // namespace xformer::measure
