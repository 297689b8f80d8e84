// `xformer data check|show`: a dataset before anything is trained on it.
#include <fmt/format.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/plan_arguments.h"
#include "cli/progress.h"
#include "core/names.h"
#include "data/check.h"

namespace xformer::cli {

namespace {

struct DataCommandArguments {
  std::string name, split = "train";
  int64_t index = 0, count = 1;
  DataArguments data;
  std::vector<std::string> settings;
  bool json = false;
};

// The data options of a dataset: its defaults and --set data.*.
Json data_options(const data::DatasetDescriptor& dataset, const std::vector<std::string>& settings) {
  const OptionGroup group{"data", dataset.name, dataset.options};
  const ResolvedOptions resolved = resolve_options({group}, {settings_layer(settings)});
  Json result = Json::object();
  for (const auto& [key, value] : resolved.values.items()) result[key.substr(5)] = value;
  return result;
}

int check(const DataCommandArguments& arguments) {
  const data::DatasetDescriptor& dataset = data::datasets().get(arguments.name);
  data::DataLocation location = arguments.data.location(dataset.name);
  location.require_all_splits = false;
  ProgressLine line(terminal_options(STDERR_FILENO));
  const data::CheckReport report =
      dataset.check(data_options(dataset, arguments.settings), location, progress_callback(line));
  line.finish();
  if (arguments.json) {
    fmt::print("{}\n", report.json().dump(2));
  } else {
    for (const data::CheckItem& item : report.items) {
      const char* word = item.outcome == data::CheckOutcome::kPassed ? "ok  "
                         : item.outcome == data::CheckOutcome::kNote ? "note"
                                                                     : "FAIL";
      fmt::print("{}  {}{}{}\n", word, item.check, item.detail.empty() ? "" : ": ", item.detail);
    }
    for (const auto& [split, facts] : report.splits.items()) fmt::print("{:<5} {}\n", split, facts.dump());
  }
  return static_cast<int>(report.passed ? ExitCode::kDone : ExitCode::kData);
}

int show(const DataCommandArguments& arguments) {
  const data::DatasetDescriptor& dataset = data::datasets().get(arguments.name);
  const data::Split split = data::parse_split(arguments.split);
  data::DataLocation location = arguments.data.location(dataset.name);
  location.require_all_splits = false;
  ProgressLine line(terminal_options(STDERR_FILENO));
  const auto source = dataset.open(data_options(dataset, arguments.settings), location, progress_callback(line));
  line.finish();
  const int64_t size = source->size(split);
  XF_CHECK(size > 0, DataError, "{} has no {} split here", dataset.name, data::split_name(split));
  XF_CHECK(arguments.index < size, UserError, "--index: the {} split has examples 0 to {}, got {}",
           data::split_name(split), size - 1, arguments.index);
  for (int64_t i = arguments.index; i < std::min(size, arguments.index + arguments.count); ++i)
    fmt::print("{} {} of {}\n{}\n", data::split_name(split), i, size, dataset.show(source->read(split, i)));
  return 0;
}

}  // namespace

std::function<int()> add_data(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("data", "look at a dataset: check, show");
  command.require_subcommand(1);
  const auto add = [&](const char* verb, const char* help) {
    const auto arguments = std::make_shared<DataCommandArguments>();
    CLI::App& own = *command.add_subcommand(verb, help);
    own.add_option("NAME", arguments->name, "task, e.g. listops")->required();
    arguments->data.add_to(own);
    own.add_option("--set", arguments->settings, "data options, data.key=value; again for more")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(true);
    return std::pair{&own, arguments};
  };
  const auto [checking, check_arguments] = add("check", "read everything and say what is right, odd or wrong");
  checking->add_flag("--json", check_arguments->json, "print JSON");
  const auto [showing, show_arguments] = add("show", "examples as a person would look at them");
  showing->add_option("--split", show_arguments->split, "train, dev or test")->capture_default_str();
  showing->add_option("--index", show_arguments->index, "the first example, from 0")->check(whole_number(0));
  showing->add_option("--count", show_arguments->count, "how many")->check(whole_number(1))->capture_default_str();
  return [checking = checking, check_arguments = check_arguments, show_arguments = show_arguments] {
    return checking->parsed() ? check(*check_arguments) : show(*show_arguments);
  };
}

}  // namespace xformer::cli
