// `xformer plot`: pictures of records and of bench reports, as SVG.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "cli/command.h"
#include "cli/measurements.h"
#include "core/error.h"
#include "core/names.h"
#include "core/text.h"
#include "reporting/run_records.h"
#include "reporting/statistics.h"
#include "reporting/svg_plot.h"

namespace xformer::cli {
namespace {

using reporting::Plot;
using reporting::PlotPoint;
using reporting::PlotSeries;

struct PlotArguments {
  std::vector<std::string> places;
  std::string accuracy, quantity = "time", models, out;
};

int written(const Plot& plot, const PlotArguments& arguments) {
  const std::string svg = as_svg(plot);
  if (arguments.out.empty()) fmt::print("{}", svg);
  else write_file_atomically(arguments.out, svg);
  return 0;
}

// Accuracy against speed, memory as a disc's area (Long Range Arena, Figure 3).
int tradeoff(const PlotArguments& arguments) {
  Measurements found = read_measurements(arguments.places);
  if (!arguments.accuracy.empty()) take_accuracies(arguments.accuracy, found);
  Plot plot;
  plot.title = "Accuracy, speed and memory" + (found.task.empty() ? "" : ": " + found.task);
  plot.x.label = "training speed, examples/s";
  plot.y.label = "accuracy, %";
  plot.discs = true;
  plot.note = fmt::format("The area of a disc is the peak memory. {}.", fmt::join(found.sources, ", "));
  for (const Measured& model : found.models) {
    const reporting::SmatInput mean = model.mean();
    plot.series.push_back({fmt::format("{} ({:.0f} MB)", model.model, mean.peak_memory),
                           {{.x = mean.examples_per_s, .y = mean.accuracy, .weight = mean.peak_memory}}});
  }
  return written(plot, arguments);
}

// Dev score by step, the mean over seeds in a band from the least to the most.
int curves(const PlotArguments& arguments) {
  const std::vector<reporting::RunRecord> records = reporting::read_run_records(arguments.places);
  Plot plot;
  const std::string& task = records.front().task;
  const bool rmse = records.front().rmse;
  std::vector<std::string> models;
  std::map<std::string, std::map<int64_t, std::vector<double>>> scores;
  size_t seeds = 0;
  for (const reporting::RunRecord& record : records) {
    XF_CHECK(record.task == task, UserError, "{} is a record of {}, those before it of {}", record.path.string(),
             record.task, task);
    if (!scores.contains(record.model)) models.push_back(record.model);
    for (const reporting::DevPoint& point : record.dev)
      scores[record.model][point.step].push_back(rmse ? point.score : 100 * point.score);
  }
  for (const std::string& model : models) {
    PlotSeries series{model, {}};
    for (const auto& [step, values] : scores[model]) {
      const auto [least, most] = std::minmax_element(values.begin(), values.end());
      series.points.push_back(
          {.x = static_cast<double>(step), .y = reporting::mean(values), .low = *least, .high = *most});
      seeds = std::max(seeds, values.size());
    }
    plot.series.push_back(series);
  }
  plot.title = "Learning curves: " + task;
  plot.x.label = "step";
  plot.y.label = rmse ? "dev RMSE" : "dev accuracy, %";
  if (seeds > 1) plot.note = fmt::format("Mean over {} seeds, in the band of the least and the most.", seeds);
  return written(plot, arguments);
}

// Time or memory of a training step by length, from a bench report, with the exponents of growth.
int growth(const PlotArguments& arguments) {
  const std::vector<std::string> quantities{"time", "memory"};
  XF_CHECK(std::find(quantities.begin(), quantities.end(), arguments.quantity) != quantities.end(), UserError,
           "--of: {}", unknown_name_message("quantity", arguments.quantity, quantities));
  const bool time = arguments.quantity == "time";
  const Path path = arguments.places.front();
  const Json report = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  XF_CHECK(report.is_object() && report.contains("rows") && report["rows"].is_array(), DataError,
           "{}: expected what `xformer bench --json` prints", path.string());
  std::vector<std::string> there;
  std::map<std::string, std::vector<PlotPoint>> points;
  std::set<double> lengths;
  for (const Json& row : report["rows"]) {
    if (!row.is_object() || row.value("status", "") != "ok") continue;
    const std::string model = row.at("model");
    if (!points.contains(model)) there.push_back(model);
    const auto length = row.at("length").get<double>();
    lengths.insert(length);
    points[model].push_back(
        {.x = length,
         .y = time ? row.at("step_ms").at("median").get<double>() : row.at("peak_bytes").get<double>() / 1e6});
  }
  Plot plot;
  std::vector<std::string> wanted = there;
  if (!arguments.models.empty()) {
    wanted.clear();
    for (const std::string_view name : split(arguments.models, ',')) wanted.emplace_back(name);
  }
  for (const std::string& name : wanted) {
    XF_CHECK(points.contains(name), UserError, "--models: {}", unknown_name_message("model", name, there));
    plot.series.push_back({fmt::format("{}, {:.2f}", name, reporting::growth_exponent(points[name])), points[name]});
  }
  plot.title = time ? "Time of a training step by length" : "Peak memory of a training step by length";
  plot.x = {"tokens", true, {lengths.begin(), lengths.end()}};
  plot.y = {time ? "step time, ms" : "peak memory, MB", true};
  plot.note = "Behind the names: the exponent of growth, the slope of a line through the points.";
  return written(plot, arguments);
}

}  // namespace

std::function<int()> add_plot(CLI::App& program) {
  CLI::App& command = *program.add_subcommand("plot", "pictures of records and bench reports, as SVG");
  command.require_subcommand(1);
  std::vector<std::pair<CLI::App*, std::function<int()>>> kinds;
  const auto add = [&](const char* kind, const char* help, const char* places, int (*run)(const PlotArguments&)) {
    const auto arguments = std::make_shared<PlotArguments>();
    CLI::App& own = *command.add_subcommand(kind, help);
    own.add_option(places, arguments->places, "what to draw")->required();
    own.add_option("--out", arguments->out, "write here instead of printing")->type_name("FILE");
    kinds.emplace_back(&own, [arguments, run] { return run(*arguments); });
    return std::pair<CLI::App*, PlotArguments*>{&own, arguments.get()};
  };
  add("curves", "dev score by step, with the band of the seeds", "RECORDS", curves);
  const auto [trading, trade] =
      add("tradeoff", "accuracy against speed, memory as the discs' area", "RECORDS", tradeoff);
  trading->add_option("--accuracy", trade->accuracy, "take accuracies from this CSV: model, accuracy")
      ->type_name("FILE");
  const auto [growing, grown] = add("growth", "time or memory by length with the exponents", "BENCH", growth);
  growing->add_option("--of", grown->quantity, "time or memory")->capture_default_str();
  growing->add_option("--models", grown->models, "of the report, separated by commas; default: all");
  return [kinds] {
    for (const auto& [kind, run] : kinds)
      if (kind->parsed()) return run();
    return 0;
  };
}

}  // namespace xformer::cli
