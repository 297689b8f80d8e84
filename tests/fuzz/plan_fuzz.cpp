// libFuzzer target: any JSON either resolves to a plan over two groups of options of every type or gives a
// UserError; a plan that was resolved is complete, and read back from its own JSON it is the same.
#include <cstdlib>
#include <string>

#include "core/run_plan.h"

namespace {

using namespace xformer;

struct Options {
  bool flag = false;
  int64_t count = 4;
  double rate = 0.5, share = 0.0;
  std::string choice = "mean";
  std::vector<int64_t> scales{1, 2};
};

std::vector<OptionGroup> groups() {
  const auto schema = Schema<Options>()
                          .add(&Options::flag, "flag", "")
                          .add(&Options::count, "count", "", at_least(1))
                          .add(&Options::rate, "rate", "", above(0))
                          .add(&Options::share, "share", "", fraction_below_one())
                          .add(&Options::choice, "choice", "", one_of({"mean", "sum", "first"}))
                          .add(&Options::scales, "scales", "", each_at_least(1));
  return {{"model", "encoder", schema.options()}, {"training", "training", schema.options()}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<OptionGroup> kGroups = groups();
  const Json values = Json::parse(data, data + size, nullptr, /*allow_exceptions=*/false);
  if (!values.is_object()) return 0;
  RunPlan plan;
  try {
    plan.options = resolve_options(kGroups, {{"fuzzed input", values}});
  } catch (const UserError&) {
    return 0;
  }
  if (plan.options.values.size() != 12) std::abort();
  RunPlan back = plan;
  back.options = resolve_options(kGroups, {{"its own JSON", Json::parse(plan.options.values.dump())}});
  if (back.options.values.dump() != plan.options.values.dump() || plan.hash() != back.hash()) std::abort();
  if (!plan_differences(plan.to_json(), back).empty()) std::abort();
  for (const OptionGroup& group : kGroups)
    if (plan.group(group.prefix).size() != 6) std::abort();
  return 0;
}
