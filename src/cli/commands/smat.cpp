// `xformer smat`: AdaMRA's score of speed, memory and accuracy, from records of runs or from a table.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include "cli/command.h"
#include "cli/table.h"
#include "core/error.h"
#include "core/files.h"
#include "core/names.h"
#include "readers/csv.h"
#include "reporting/run_records.h"
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
  bool json = false, markdown = false;
};

// What was measured of one model, by seed; a table has one row and no seeds.
struct Measured {
  std::string model;
  std::map<int64_t, SmatInput> seeds;

  [[nodiscard]] SmatInput mean() const {
    SmatInput sum{model};
    for (const auto& [seed, one] : seeds) {
      sum.examples_per_s += one.examples_per_s;
      sum.peak_memory += one.peak_memory;
      sum.accuracy += one.accuracy;
    }
    const auto count = static_cast<double>(seeds.size());
    return {model, sum.examples_per_s / count, sum.peak_memory / count, sum.accuracy / count};
  }
};

struct Collected {
  std::vector<Measured> models;
  std::string task;            // of records
  std::set<std::string> what;  // where the numbers are from

  SmatInput& add(const std::string& model, int64_t seed) {
    auto found = std::find_if(models.begin(), models.end(), [&](const Measured& one) { return one.model == model; });
    if (found == models.end()) found = models.insert(models.end(), {model, {}});
    const auto [place, added] = found->seeds.try_emplace(seed, SmatInput{model});
    XF_CHECK(added, UserError, "smat: {} with seed {} is there twice", model, seed);
    return place->second;
  }
};

// Columns by name; every wanted one must be there.
std::vector<std::map<std::string, std::string>> read_table(const Path& path, const std::vector<std::string>& wanted) {
  readers::CsvFormat format;
  format.header = true;
  readers::CsvReader rows(path, format);
  std::vector<std::map<std::string, std::string>> result;
  for (std::vector<std::string_view> fields; rows.next(fields);) {
    std::map<std::string, std::string>& row = result.emplace_back();
    for (size_t i = 0; i < fields.size(); ++i) row[rows.header()[i]] = fields[i];
    for (const std::string& name : wanted) {
      XF_CHECK(row.contains(name), DataError, "{}: expected the columns {}; {} is missing", path.string(),
               fmt::join(wanted, ", "), name);
      XF_CHECK(name == "model" || readers::parse_number(row[name]), DataError, "{}: {}: expected a number, got '{}'",
               rows.where(), name, row[name]);
    }
  }
  return result;
}

double number(const std::map<std::string, std::string>& row, const std::string& name) {
  return readers::parse_number(row.at(name)).value();
}

void add_record(const reporting::RunRecord& record, Collected& into) {
  XF_CHECK(record.score && !record.rmse && record.examples_per_s > 0, DataError,
           "{}: a record without accuracy or speed; its run is {}", record.path.string(), record.status);
  XF_CHECK(into.task.empty() || into.task == record.task, UserError,
           "smat: {} is a record of {}, those before it of {}", record.path.string(), record.task, into.task);
  into.task = record.task;
  into.what.insert("records of " + record.task);
  into.add(record.model, record.seed) = {record.model, record.examples_per_s, record.peak_device_bytes / 1e6,
                                         100 * *record.score};
}

Collected collect(const std::vector<std::string>& inputs) {
  Collected result;
  for (const std::string& input : inputs) {
    const Path path = input;
    if (path.extension() != ".csv") {
      for (const reporting::RunRecord& record : reporting::read_run_records({input})) add_record(record, result);
    } else {
      result.what.insert(path.filename().string());
      for (const auto& row : read_table(path, {"model", "examples_per_s", "peak_memory_mb", "accuracy"}))
        result.add(row.at("model"), 0) = {row.at("model"), number(row, "examples_per_s"), number(row, "peak_memory_mb"),
                                          number(row, "accuracy")};
    }
  }
  return result;
}

void take_accuracies(const Path& path, Collected& into) {
  std::map<std::string, double> accuracies;
  for (const auto& row : read_table(path, {"model", "accuracy"})) accuracies[row.at("model")] = number(row, "accuracy");
  for (Measured& model : into.models) {
    std::vector<std::string> names;
    for (const auto& [name, value] : accuracies) names.push_back(name);
    const auto found = accuracies.find(model.model);
    XF_CHECK(found != accuracies.end(), UserError, "--accuracy {}: {}", path.string(),
             unknown_name_message("model", model.model, names));
    for (auto& [seed, one] : model.seeds) one.accuracy = found->second;
  }
  into.what.insert("accuracy from " + path.filename().string());
}

// The sample standard deviation of a model's score over the seeds that every model has; NaN for fewer than two.
std::vector<double> spreads(const Collected& collected, SmatRounding rounding, size_t& seeds) {
  std::vector<std::vector<double>> totals;
  for (const auto& [seed, first] : collected.models.front().seeds) {
    std::vector<SmatInput> inputs;
    for (const Measured& model : collected.models)
      if (const auto found = model.seeds.find(seed); found != model.seeds.end()) inputs.push_back(found->second);
    if (inputs.size() != collected.models.size()) continue;
    std::vector<double>& row = totals.emplace_back();
    for (const SmatScore& score : smat_scores(inputs, rounding)) row.push_back(score.total());
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
  const std::vector<std::string> modes{"exact", "terms"};
  XF_CHECK(std::find(modes.begin(), modes.end(), arguments.rounding) != modes.end(), UserError, "--rounding: {}",
           unknown_name_message("rounding", arguments.rounding, modes));
  const SmatRounding rounding = arguments.rounding == "terms" ? SmatRounding::kTerms : SmatRounding::kExact;
  Collected collected = collect(arguments.inputs);
  if (!arguments.accuracy.empty()) take_accuracies(arguments.accuracy, collected);
  std::vector<SmatInput> means;
  std::vector<std::string> names;
  for (const Measured& model : collected.models) {
    means.push_back(model.mean());
    names.push_back(model.model);
  }
  const std::vector<SmatScore> scores = smat_scores(means, rounding);
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
                            {"sources", collected.what},
                            {"seeds_of_all", seeds},
                            {"rows", rows}}
                           .dump(2));
    return 0;
  }
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < means.size(); ++i)
    rows.push_back({names[i], fmt::format("{:.1f}", means[i].examples_per_s),
                    fmt::format("{:.0f}", means[i].peak_memory), fmt::format("{:.2f}", means[i].accuracy),
                    fmt::format("{:.2f}", scores[i].speed), fmt::format("{:.2f}", scores[i].memory),
                    fmt::format("{:.2f}", scores[i].accuracy),
                    fmt::format("{:.2f}", scores[i].total()) +
                        (std::isnan(deviations[i]) ? "" : fmt::format(" ± {:.2f}", deviations[i]))});
  print_table({"model", "examples/s", "MB", "accuracy", "S", "1 - M", "A", "SMAT"}, rows, arguments.markdown);
  fmt::print(
      "\nSMAT of these {} models, which it has no meaning without; {}; {}{}.\n", names.size(),
      rounding == SmatRounding::kTerms ? "terms rounded to two decimals before they are added" : "nothing rounded",
      fmt::join(collected.what, ", "),
      seeds > 1 ? fmt::format("; sample standard deviation over the {} seeds that all have", seeds) : "");
  return 0;
}

}  // namespace

std::function<int()> add_smat(CLI::App& program) {
  const auto arguments = std::make_shared<SmatArguments>();
  CLI::App& command = *program.add_subcommand("smat", "AdaMRA's score of speed, memory and accuracy of some models");
  command
      .add_option(
          "INPUT", arguments->inputs,
          "records of runs, folders of them, or a table: CSV with model, examples_per_s, peak_memory_mb, accuracy")
      ->required();
  command.add_option("--accuracy", arguments->accuracy, "take accuracies from this CSV: model, accuracy")
      ->type_name("FILE");
  command
      .add_option("--rounding", arguments->rounding,
                  "exact, or terms: each rounded to two decimals before they are added, as published")
      ->capture_default_str();
  command.add_flag("--json", arguments->json, "print JSON");
  command.add_flag("--markdown", arguments->markdown, "print a Markdown table");
  return [arguments] { return smat(*arguments); };
}

}  // namespace xformer::cli
