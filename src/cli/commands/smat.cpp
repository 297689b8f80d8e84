// `xformer smat`: AdaMRA's score of speed, memory and accuracy, from records of runs or from a table.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

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

struct Scored {
  SmatScore score;
  double deviation = std::numeric_limits<double>::quiet_NaN();  // of samples, of the total
};

// Leaves the seeds that every model has, where there are two or more of them; says how many they are.
size_t keep_common_seeds(Measurements& collected) {
  std::set<int64_t> common;
  for (const auto& [seed, first] : collected.models.front().seeds)
    if (std::all_of(collected.models.begin(), collected.models.end(),
                    [&, &wanted = seed](const Measured& model) { return model.seeds.contains(wanted); }))
      common.insert(seed);
  if (common.size() > 1)
    for (Measured& model : collected.models)
      std::erase_if(model.seeds, [&](const auto& one) { return !common.contains(one.first); });
  return common.size();
}

// Of several seeds the mean of their scores, with the deviation of those; else the score of the only measurements.
std::vector<Scored> scored(const Measurements& collected, SmatRounding rounding, size_t seeds) {
  const auto scores_of = [&](const auto& input) {
    std::vector<SmatInput> inputs;
    for (const Measured& model : collected.models) inputs.push_back(input(model));
    return smat_scores(inputs, rounding, collected.metric.higher_is_better);
  };
  std::vector<Scored> result;
  if (seeds < 2) {
    for (const SmatScore& score : scores_of([](const Measured& model) { return model.mean(); }))
      result.push_back({score});
    return result;
  }
  std::vector<std::vector<SmatScore>> all;  // by seed
  for (const auto& [seed, first] : collected.models.front().seeds)
    all.push_back(scores_of([&, &wanted = seed](const Measured& model) { return model.seeds.at(wanted); }));
  for (size_t i = 0; i < collected.models.size(); ++i) {
    Scored& one = result.emplace_back();
    std::vector<double> totals;
    for (const auto& scores : all) {
      one.score.speed += scores[i].speed / static_cast<double>(seeds);
      one.score.memory += scores[i].memory / static_cast<double>(seeds);
      one.score.accuracy += scores[i].accuracy / static_cast<double>(seeds);
      totals.push_back(scores[i].total());
    }
    one.deviation = reporting::sample_deviation(totals);
  }
  return result;
}

int smat(const SmatArguments& arguments) {
  const auto rounding =
      static_cast<SmatRounding>(choice("--rounding: ", "rounding", arguments.rounding, {"exact", "terms"}));
  Measurements collected = read_measurements(arguments.inputs, arguments.selection, arguments.length);
  if (!arguments.accuracy.empty()) take_accuracies(arguments.accuracy, collected);
  require_accuracies(collected);
  const size_t seeds = keep_common_seeds(collected);
  std::vector<SmatInput> means;
  std::vector<std::string> names;
  for (const Measured& model : collected.models) {
    means.push_back(model.mean());
    names.push_back(model.model);
  }
  const std::vector<Scored> scores = scored(collected, rounding, seeds);
  if (arguments.json) {
    Json rows = Json::array();
    for (size_t i = 0; i < means.size(); ++i)
      rows.push_back({{"model", names[i]},
                      {"examples_per_s", means[i].examples_per_s},
                      {"peak_memory_mb", means[i].peak_memory},
                      {"accuracy", means[i].accuracy},
                      {"terms",
                       {{"speed", scores[i].score.speed},
                        {"memory", scores[i].score.memory},
                        {"accuracy", scores[i].score.accuracy}}},
                      {"smat", scores[i].score.total()},
                      {"deviation", std::isnan(scores[i].deviation) ? Json() : Json(scores[i].deviation)},
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
    rows.push_back({names[i], fmt::format("{:.1f}", means[i].examples_per_s),
                    fmt::format("{:.0f}", means[i].peak_memory),
                    fmt::format("{:.{}f}", means[i].accuracy, collected.metric.decimals),
                    fmt::format("{:.2f}", scores[i].score.speed), fmt::format("{:.2f}", scores[i].score.memory),
                    fmt::format("{:.2f}", scores[i].score.accuracy),
                    fmt::format("{:.2f}", scores[i].score.total()) +
                        (std::isnan(scores[i].deviation) ? "" : fmt::format(" ± {:.2f}", scores[i].deviation))});
  print_table({"model", "examples/s", "MB", collected.metric.title, "S", "1 - M", "A", "SMAT"}, rows,
              arguments.markdown);
  fmt::print(
      "\nSMAT of these {} models, which it has no meaning without; {}; {}{}.\n", names.size(),
      rounding == SmatRounding::kTerms ? "terms rounded to two decimals before they are added" : "nothing rounded",
      fmt::join(collected.sources, ", "),
      seeds > 1
          ? fmt::format("; means and sample standard deviation of the scores of the {} seeds that all have", seeds)
          : "");
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
