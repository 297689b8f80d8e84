#include "engine/grid.h"

#include <algorithm>

#include "cli/command.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/option_names.h"
#include "core/text.h"
#include "engine/plan_arguments.h"
#include "plan/options.h"

namespace xformer::engine {
namespace {

constexpr size_t kLongestName = 80, kHashDigits = 8;

// Whether an option's value may hold commas of its own: a list of numbers, free text.
bool holds_commas(const std::string& word, const plan::PlanParts& parts) {
  for (const OptionGroup& group : plan::option_groups(parts))
    for (const OptionInfo& option : group.options)
      if (const std::string key = group.prefix + "." + option.name;
          key == word || key == usual_option(word) || option.name == word)
        return option.type == OptionType::kIntegerList ||
               (option.type == OptionType::kText && option.rule.choices.empty());
  return true;  // an option of another model, or none: the plan says which
}

}  // namespace

void GridArguments::add_to(CLI::App& command) {
  const auto names = [&](const char* flag, std::vector<std::string>& into, const char* help) {
    command.add_option(flag, into, help)->delimiter(',')->allow_extra_args(false)->group("Grid, in place of a file");
  };
  names("--model", models, "models, separated by commas");
  names("--task", tasks, "tasks, separated by commas");
  command.add_option("--protocol", protocol, "of all runs; default: each task's first")
      ->group("Grid, in place of a file");
  command.add_option("--steps", steps, "length of the whole schedule")
      ->check(cli::whole_number(1))
      ->group("Grid, in place of a file");
  command.add_option("--length", length, "of text and generated sequences (data.length)")
      ->check(cli::whole_number(1))
      ->group("Grid, in place of a file");
  command.add_option("--set", settings, "an option of the plan; key=value,value is run with each value")
      ->type_name("KEY=VALUE[,VALUE]")
      ->allow_extra_args(true)
      ->group("Grid, in place of a file");
}

bool GridArguments::given() const {
  if (models.empty() && tasks.empty() && settings.empty() && protocol.empty() && steps == 0 && length == 0)
    return false;
  XF_CHECK(!models.empty() && !tasks.empty(), UserError,
           "a grid needs --model and --task, e.g. --model linear,linformer --task listops --seeds 0-4; where an "
           "experiment's file says which runs there are, these options stand in the file");
  return true;
}

Json GridArguments::experiment() const {
  Json result{{"title", fmt::format("{} on {}", fmt::join(models, ", "), fmt::join(tasks, ", "))},
              {"tasks", tasks},
              {"models", models}};
  if (!protocol.empty()) result["protocol"] = protocol;
  if (steps > 0) result["steps"] = steps;
  if (length > 0) result["length"] = length;
  std::vector<plan::PlanParts> parts;
  for (const std::string& task : tasks)
    for (const std::string& model : models) parts.push_back(plan::find_parts(task, model, protocol));
  ValueLayer set = settings_layer(settings);
  for (const auto& [key, value] : set.values.items()) {
    const std::string option = key, text = value.get<std::string>();
    const bool whole =
        std::all_of(parts.begin(), parts.end(), [&](const plan::PlanParts& one) { return holds_commas(option, one); });
    std::vector<std::string> values{text};
    if (!whole) {
      values.clear();
      for (const std::string_view part : split(text, ',')) values.emplace_back(trim(part));
    }
    if (values.size() == 1) result["set"][key] = values.front();
    else result["grid"][key] = values;
  }
  return result;
}

Path GridArguments::usual_folder() const {
  std::string name = fmt::format("{}_{}", fmt::join(tasks, "+"), fmt::join(models, "+"));
  std::replace(name.begin(), name.end(), '/', '-');
  if (name.size() > kLongestName)
    name = name.substr(0, kLongestName - kHashDigits - 1) + "-" + sha256(name).substr(0, kHashDigits);
  return Path("runs") / name;
}

}  // namespace xformer::engine
