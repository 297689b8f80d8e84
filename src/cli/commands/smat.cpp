// `xformer smat`: AdaMRA's score of speed, memory and accuracy, from records of runs or from a table.
#include <fmt/format.h>

#include <cmath>

#include "cli/command.h"
#include "cli/measurements.h"
#include "cli/printed.h"
#include "core/error.h"
#include "core/json.h"
#include "core/names.h"
#include "reporting/smat.h"
#include "reporting/statistics.h"

namespace xformer::cli {
namespace {

using reporting::SmatInput;
using reporting::SmatRounding;
using reporting::SmatScore;

struct SmatArguments {
  std::vector<std::string> inputs;
  std::string accuracy, rounding = "exact";
  reporting::RecordSelection selection;
  int64_t length = 0;
  bool json = false, markdown = false;
};

// The sample standard deviation of a model's score over the seeds that every model has; NaN for fewer than two.
std::vector<double> spreads(const Measurements& collected, SmatRounding rounding, size_t& seeds) {
  std::vector<std::vector<double>> totals;
  for (const auto& [seed, first] : collected.models.front().seeds) {
    std::vector<SmatInput> inputs;
    for (const Measured& model : collected.models)
      if (const auto found = model.seeds.find(seed); found != model.seeds.end()) inputs.push_back(found->second);
    if (inputs.size() != collected.models.size()) continue;
    std::vector<double>& row = totals.emplace_back();
    for (const SmatScore& score : smat_scores(inputs, rounding, collected.metric.higher_is_better))
      row.push_back(score.total());
  }
  seeds = totals.size();
  std::vector<double> result;
  for (size_t i = 0; i < collected.models.size(); ++i) {
    std::vector<double> own;
    for (const auto& row : totals) own.push_back(row[i]);
    result.push_back(reporting::sample_deviation(own));
  }
  return result;
}

int smat(const SmatArguments& arguments) {
  const auto rounding =
      static_cast<SmatRounding>(choice("--rounding: ", "rounding", arguments.rounding, {"exact", "terms"}));
  Measurements collected = read_measurements(arguments.inputs, arguments.selection, arguments.length);
  if (!arguments.accuracy.empty()) take_accuracies(arguments.accuracy, collected);
  for (const Measured& model : collected.models)
    XF_CHECK(!std::isnan(model.mean().accuracy), UserError,
             "{} has no accuracy, as a bench measures none: --accuracy FILE brings it", model.model);
  std::vector<SmatInput> means;
  std::vector<std::string> names;
  for (const Measured& model : collected.models) {
    means.push_back(model.mean());
    names.push_back(model.model);
  }
  const std::vector<SmatScore> scores = smat_scores(means, rounding, collected.metric.higher_is_better);
  size_t seeds = 0;
  const std::vector<double> deviations = spreads(collected, rounding, seeds);
  if (arguments.json) {
    Json rows = Json::array();
    for (size_t i = 0; i < means.size(); ++i)
      rows.push_back(
          {{"model", names[i]},
           {"examples_per_s", means[i].examples_per_s},
           {"peak_memory_mb", means[i].peak_memory},
           {"accuracy", means[i].accuracy},
           {"terms", {{"speed", scores[i].speed}, {"memory", scores[i].memory}, {"accuracy", scores[i].accuracy}}},
           {"smat", scores[i].total()},
           {"deviation", std::isnan(deviations[i]) ? Json() : Json(deviations[i])},
           {"seeds", collected.models[i].seeds.size()}});
    fmt::print("{}\n", Json{{"rounding", arguments.rounding},
                            {"models", names},
                            {"sources", collected.sources},
                            {"seeds_of_all", seeds},
                            {"rows", rows}}
                           .dump(2));
    return 0;
  }
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < means.size(); ++i)
    rows.push_back(
        {names[i], fmt::format("{:.1f}", means[i].examples_per_s), fmt::format("{:.0f}", means[i].peak_memory),
         fmt::format("{:.{}f}", means[i].accuracy, collected.metric.decimals), fmt::format("{:.2f}", scores[i].speed),
         fmt::format("{:.2f}", scores[i].memory), fmt::format("{:.2f}", scores[i].accuracy),
         fmt::format("{:.2f}", scores[i].total()) +
             (std::isnan(deviations[i]) ? "" : fmt::format(" ± {:.2f}", deviations[i]))});
  print_table({"model", "examples/s", "MB", collected.metric.title, "S", "1 - M", "A", "SMAT"}, rows,
              arguments.markdown);
  fmt::print(
      "\nSMAT of these {} models, which it has no meaning without; {}; {}{}.\n", names.size(),
      rounding == SmatRounding::kTerms ? "terms rounded to two decimals before they are added" : "nothing rounded",
      fmt::join(collected.sources, ", "),
      seeds > 1 ? fmt::format("; sample standard deviation over the {} seeds that all have", seeds) : "");
  return 0;
}

}  // namespace

std::function<int()> add_smat(CLI::App& program) {
  const auto arguments = std::make_shared<SmatArguments>();
  CLI::App& command = *program.add_subcommand("smat", "AdaMRA's score of speed, memory and accuracy of some models");
  command
      .add_option("INPUT", arguments->inputs,
                  "records of runs, folders of them, a report of `xformer bench --json`, or a table: CSV with model, "
                  "examples_per_s, peak_memory_mb, accuracy")
      ->required();
  command
      .add_option("--accuracy", arguments->accuracy,
                  "take accuracies from this CSV (model, accuracy), or the averages in published.json#EXPERIMENT")
      ->type_name("FILE");
  add_selection(command, arguments->selection);
  command.add_option("--length", arguments->length, "of a bench report's lengths")->check(whole_number(1));
  words(command.add_option("--rounding", arguments->rounding,
                           "terms: each rounded to two decimals before they are added, as published"),
        {"exact", "terms"})
      ->capture_default_str();
  command.add_flag("--json", arguments->json, "print JSON");
  command.add_flag("--markdown", arguments->markdown, "print a Markdown table");
  return [arguments] { return smat(*arguments); };
}

}  // namespace xformer::cli
