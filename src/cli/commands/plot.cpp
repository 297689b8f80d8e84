// `xformer plot`: pictures of records and of bench reports.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>

#include "cli/command.h"
#include "cli/measurements.h"
#include "cli/picture.h"
#include "core/error.h"
#include "core/names.h"
#include "core/text.h"
#include "readers/csv.h"
#include "readers/safetensors.h"
#include "reporting/heat_map.h"
#include "reporting/learning_curves.h"
#include "reporting/rank_plot.h"
#include "reporting/result_table.h"
#include "reporting/svg_plot.h"

namespace xformer::cli {
namespace {

using reporting::Plot;
using reporting::PlotPoint;
using reporting::PlotSeries;

struct PlotArguments {
  std::vector<std::string> places;
  std::string accuracy, quantity = "time", ratio = "flops", against = "speed", models, tensor, at, out;
  reporting::RecordSelection selection;
  int64_t length = 0;
  bool pareto = false;
};

int written(const std::string& svg, const PlotArguments& arguments) {
  write_picture(svg, arguments.out);
  return 0;
}
int written(const Plot& plot, const PlotArguments& arguments) { return written(as_svg(plot), arguments); }

// Those of the names that --models takes, in their order; all where it takes none.
std::vector<std::string> chosen_models(const PlotArguments& arguments, const std::vector<std::string>& names) {
  if (arguments.models.empty()) return names;
  std::vector<std::string> patterns;
  for (const std::string_view pattern : split(arguments.models, ',')) patterns.emplace_back(trim(pattern));
  return matching_names("--models", "model here", patterns, names);
}

// What `xformer bench --json` wrote.
Json bench_report(const Path& path) {
  Json report = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  XF_CHECK(report.is_object() && report.contains("rows") && report["rows"].is_array(), DataError,
           "{}: expected what `xformer bench --json` prints", path.string());
  return report;
}

// Accuracy against speed, memory as a disc's area (Long Range Arena, Figure 3), or against memory (MrsFormer, Figure
// 6).
int tradeoff(const PlotArguments& arguments) {
  const bool memory = choice("--against: ", "quantity", arguments.against, {"speed", "memory"}) == 1;
  Measurements found = read_measurements(arguments.places, arguments.selection, arguments.length);
  if (!arguments.accuracy.empty()) take_accuracies(arguments.accuracy, found);
  require_accuracies(found);
  std::vector<std::string> names;
  for (const Measured& model : found.models) names.push_back(model.model);
  names = chosen_models(arguments, names);
  std::erase_if(found.models,
                [&](const Measured& model) { return std::count(names.begin(), names.end(), model.model) == 0; });
  Plot plot;
  std::string score = found.metric.title;
  score.front() = static_cast<char>(std::toupper(score.front()));
  plot.title = score + (memory ? " and memory" : ", speed and memory") + (found.task.empty() ? "" : ": " + found.task);
  plot.x.label = memory ? "peak memory, MB" : "training speed, examples/s";
  plot.y.label = found.metric.heading();
  plot.discs = true;
  std::vector<PlotPoint> points;
  bool seeds = false;
  for (const Measured& model : found.models) {
    const reporting::SmatInput mean = model.mean(), spread = model.deviation();
    PlotPoint& point = points.emplace_back(PlotPoint{.x = memory ? mean.peak_memory : mean.examples_per_s,
                                                     .y = mean.accuracy,
                                                     .weight = memory ? 0 : mean.peak_memory});
    const double beside = memory ? spread.peak_memory : spread.examples_per_s;
    point.low = point.y - spread.accuracy, point.high = point.y + spread.accuracy;
    point.x_low = point.x - beside, point.x_high = point.x + beside;
    seeds |= model.seeds.size() > 1;
    plot.series.push_back(
        {memory ? model.model : fmt::format("{} ({:.0f} MB)", model.model, mean.peak_memory), {points.back()}});
  }
  plot.note = fmt::format("{}{}{}Shown: {}.", memory ? "" : "The area of a disc is the peak memory. ",
                          seeds ? "Bars: sample standard deviation over seeds. " : "",
                          arguments.pareto ? "Dashed: models that none beats both ways (Pareto front). " : "",
                          fmt::join(found.sources, ", "));
  if (arguments.pareto) {
    const double sign = found.metric.higher_is_better ? 1 : -1;  // the front takes more of y as better
    for (PlotPoint& point : points) point.y *= sign;
    plot.front = reporting::pareto_front(points, memory);
    for (PlotPoint& point : plot.front) point.y *= sign;
  }
  return written(plot, arguments);
}

// Dev score by step of one task's models, runs that have not ended included.
int curves(const PlotArguments& arguments) {
  const std::vector<RunRecord> records = selected_records(arguments.places, arguments.selection);
  reporting::require_one_column(records, "curves are");
  const reporting::ResultTable table = reporting::result_table(records, {});
  std::vector<std::string> names;
  for (const reporting::ResultRow& row : table.rows) names.push_back(row.label);
  const std::vector<std::string> wanted = chosen_models(arguments, names);
  std::vector<reporting::CurveRuns> models;
  for (size_t row = 0; row < names.size(); ++row) {
    if (std::count(wanted.begin(), wanted.end(), names[row]) == 0) continue;
    const reporting::ResultCell& cell = table.cells[row].front();
    models.push_back({names[row], cell.runs});
    models.back().runs.insert(models.back().runs.end(), cell.failed.begin(), cell.failed.end());
  }
  return written(learning_curves(table.columns.front().label, models), arguments);
}

// The points of one model at one batch.
struct GrowthLine {
  std::string model;
  int64_t batch = 0;
  std::vector<PlotPoint> points;
};

// A measured row's point, in the line of its model and batch.
void add_growth(const Json& row, bool time, const std::string& place, std::vector<GrowthLine>& lines) {
  if (!row.is_object() || row.value("status", "") != "ok") return;
  const Json steps = row.value("step_ms", Json());
  if (time && steps.is_null()) return;  // none was timed
  const std::string model = row.value("label", row.at("model").get<std::string>());
  const auto batch = row.value("batch", int64_t{0});
  auto line = std::find_if(lines.begin(), lines.end(),
                           [&](const GrowthLine& one) { return one.model == model && one.batch == batch; });
  if (line == lines.end()) line = lines.insert(line, {model, batch, {}});
  PlotPoint point{.x = row.at("length").get<double>(), .y = row.at("peak_bytes").get<double>() / 1e6};
  XF_CHECK(
      std::none_of(line->points.begin(), line->points.end(), [&](const PlotPoint& one) { return one.x == point.x; }),
      UserError, "{}: {} of {} tokens is there twice", place, model, point.x);
  if (time) point.y = steps.at("median"), point.low = steps.value("p10", NAN), point.high = steps.value("p90", NAN);
  line->points.push_back(point);
}

// Time or memory of a training step by length, from bench reports, with the exponents of growth.
int growth(const PlotArguments& arguments) {
  const bool time = choice("--of: ", "quantity", arguments.quantity, {"time", "memory"}) == 0;
  std::vector<GrowthLine> lines;
  std::set<std::string> conditions;
  for (const std::string& place : arguments.places)
    read_bench(place, bench_report(place), [&](const Json& report) {
      conditions.insert(bench_conditions(report));
      for (const Json& row : report["rows"]) add_growth(row, time, place, lines);
    });
  XF_CHECK(!lines.empty(), DataError, "{}: no row that was measured", fmt::join(arguments.places, ", "));
  std::vector<std::string> models;
  std::set<int64_t> batches;
  std::set<double> lengths;
  for (const GrowthLine& line : lines) {
    if (std::find(models.begin(), models.end(), line.model) == models.end()) models.push_back(line.model);
    batches.insert(line.batch);
    for (const PlotPoint& point : line.points) lengths.insert(point.x);
  }
  Plot plot;
  for (const std::string& name : chosen_models(arguments, models))
    for (const GrowthLine& line : lines) {
      if (line.model != name) continue;
      const std::string batch = batches.size() > 1 ? fmt::format(", batch {}", line.batch) : "";
      const double exponent = reporting::growth_exponent(line.points);  // of one length there is none
      const std::string growth = std::isfinite(exponent) ? fmt::format(", n^{:.2f}", exponent) : "";
      plot.series.push_back({name + batch + growth, line.points});
    }
  plot.title = time ? "Time of a training step by length" : "Peak memory of a training step by length";
  plot.x = {"tokens", true, {lengths.begin(), lengths.end()}};
  plot.y = {time ? "step time, ms" : "peak memory, MB", true};
  plot.note =
      fmt::format("{}Behind the names: growth with the length n, the slope of a line through the points. {}.",
                  time ? "Medians, from the 10th to the 90th percentile of steps. " : "", fmt::join(conditions, "; "));
  return written(plot, arguments);
}

// What a line of ratios is of; reports of before know of fewer sizes.
struct RatioLine {
  std::string model;
  int64_t width = 0, batch = 0;
  std::string precision;
  auto operator<=>(const RatioLine&) const = default;
};

// Measured rows of a report: operations, or memory, by line and length.
std::map<std::pair<RatioLine, double>, double> ratio_values(const Json& report, bool flops) {
  std::map<std::pair<RatioLine, double>, double> values;
  for (const Json& row : report.at("rows")) {
    const Json value = row.value(flops ? "flops" : "peak_bytes", Json()), width = row.value("width", Json());
    if (value.is_null() || row.value("status", "ok") != "ok") continue;
    const RatioLine line{row.at("model"), width.is_null() ? 0 : width.get<int64_t>(), row.value("batch", int64_t{0}),
                         row.value("precision", "")};
    values[{line, row.at("length").get<double>()}] =
        flops ? value.at("step_counted").get<double>() : value.get<double>();
  }
  return values;
}

// Operations or memory of mrs-X over those of X by length, a line for each width and mode (MrsFormer, Figure 5), and
// for each batch and precision where there are several.
int ratios(const PlotArguments& arguments) {
  const bool flops = choice("--of: ", "quantity", arguments.ratio, {"flops", "memory"}) == 0;
  Plot plot;
  std::set<double> lengths;
  std::set<int64_t> batches;
  std::set<std::string> conditions, precisions;
  std::vector<std::pair<std::string, std::map<RatioLine, PlotSeries>>> reports;  // each with its mode
  for (const std::string& place : arguments.places)
    read_bench(place, bench_report(place), [&](const Json& report) {
      conditions.insert(bench_conditions(report));
      auto& [mode, series] = reports.emplace_back();
      mode = report.at("conditions").at("mode").get<std::string>();
      const auto values = ratio_values(report, flops);
      for (const auto& [key, value] : values) {
        RatioLine multi = key.first;
        multi.model = "mrs-" + multi.model;
        const auto found = values.find({multi, key.second});
        if (found == values.end()) continue;
        series[key.first].points.push_back({.x = key.second, .y = found->second / value});
        lengths.insert(key.second);
        batches.insert(multi.batch);
        precisions.insert(multi.precision);
      }
    });
  for (auto& [mode, series] : reports)
    for (auto& [key, line] : series) {
      line.name = key.model;
      if (key.width > 0) line.name += fmt::format(", width {}", key.width);
      if (batches.size() > 1) line.name += fmt::format(", batch {}", key.batch);
      if (precisions.size() > 1) line.name += ", " + key.precision;
      // Operations of training and inference have one ratio: a line over another would hide it.
      const auto same =
          std::find_if(plot.series.begin(), plot.series.end(), [&, &mine = line](const PlotSeries& other) {
            constexpr double kVisible = 1e-3;
            return other.name.starts_with(mine.name + ", ") &&
                   std::equal(other.points.begin(), other.points.end(), mine.points.begin(), mine.points.end(),
                              [](const PlotPoint& a, const PlotPoint& b) {
                                return a.x == b.x && std::abs(a.y - b.y) < kVisible;
                              });
          });
      if (same != plot.series.end()) {
        same->name += " and " + mode;
        continue;
      }
      line.name += ", " + mode;
      plot.series.push_back(line);
    }
  XF_CHECK(!plot.series.empty(), UserError, "{}: expected reports with some model X and mrs-X beside it",
           fmt::join(arguments.places, ", "));
  plot.title = flops ? "Operations of mrs-X over those of X" : "Peak memory of mrs-X over that of X";
  plot.x = {"tokens", true, {lengths.begin(), lengths.end()}};
  plot.y.label = flops ? "ratio of operations (matrix products)" : "ratio of peak memory";
  plot.note =
      fmt::format("Behind the names: the width of the model, and what was measured. {}.", fmt::join(conditions, "; "));
  const auto model_of = [](const PlotSeries& one) { return one.name.substr(0, one.name.find(", ")); };
  std::set<std::string> models;
  for (const PlotSeries& series : plot.series) models.insert(model_of(series));
  const std::vector<std::string> wanted = chosen_models(arguments, {models.begin(), models.end()});
  std::erase_if(plot.series,
                [&](const PlotSeries& one) { return std::count(wanted.begin(), wanted.end(), model_of(one)) == 0; });
  return written(plot, arguments);
}

// A matrix of a tensor file, as `xformer forward --capture` writes: attention weights [b,h,n,n], say.
int map(const PlotArguments& arguments) {
  const Path path = arguments.places.front();
  const MappedFile file(path);
  const readers::SafetensorsHeader header = readers::parse_safetensors(file.bytes(), path.string());
  std::vector<std::string> names;
  for (const readers::TensorEntry& one : header.tensors)
    if (one.shape.size() >= 2 && (one.type == "F32" || one.type == "F64")) names.push_back(one.name);
  const auto found = std::find_if(header.tensors.begin(), header.tensors.end(),
                                  [&](const readers::TensorEntry& one) { return one.name == arguments.tensor; });
  XF_CHECK(found != header.tensors.end() && std::count(names.begin(), names.end(), arguments.tensor) > 0, UserError,
           "--tensor: {}", unknown_name_message("matrix of numbers", arguments.tensor, names));
  // The matrix at --at of [.., rows, columns].
  const std::vector<int64_t>& shape = found->shape;
  std::vector<int64_t> at;
  for (const std::string_view part : split(arguments.at, ','))
    if (!part.empty()) {
      const double number = readers::parse_number(part).value_or(-1);
      at.push_back(number == std::floor(number) ? static_cast<int64_t>(number) : -1);
    }
  at.resize(std::max(at.size(), shape.size() - 2), 0);
  XF_CHECK(at.size() == shape.size() - 2, UserError, "--at {}: {} has the shape [{}]: expected {} numbers",
           arguments.at, arguments.tensor, fmt::join(shape, ","), shape.size() - 2);
  int64_t matrix = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    XF_CHECK(at[i] >= 0 && at[i] < shape[i], UserError, "--at {}: expected numbers within [{}]", arguments.at,
             fmt::join(shape.begin(), shape.end() - 2, ","));
    matrix = matrix * shape[i] + at[i];
  }
  reporting::HeatMap drawn;
  drawn.title = arguments.tensor + (at.empty() ? "" : fmt::format(" [{}]", fmt::join(at, ",")));
  drawn.y_label = "row (query)";
  drawn.x_label = "column (key)";
  drawn.rows = shape[shape.size() - 2];
  drawn.columns = shape.back();
  const auto count = static_cast<size_t>(drawn.rows * drawn.columns);
  const size_t width = readers::bytes_per_element(found->type);
  const std::byte* const begin =
      file.bytes().data() + header.data_offset + found->begin + static_cast<size_t>(matrix) * count * width;
  for (size_t i = 0; i < count; ++i) {
    float narrow = 0;
    double value = 0;
    if (width == sizeof narrow) std::memcpy(&narrow, begin + i * width, width), value = narrow;
    else std::memcpy(&value, begin + i * width, width);
    XF_CHECK(std::isfinite(value), DataError, "{}: {}: number {} is not finite", path.string(), arguments.tensor, i);
    drawn.values.push_back(value);
  }
  return written(as_svg(drawn), arguments);
}

// Mean ranks over tasks.
int ranks(const PlotArguments& arguments, const ExperimentReader& experiments) {
  const bool whole = arguments.places.size() == 1 && is_experiment(arguments.places.front());
  std::vector<RunRecord> records;
  if (whole) {
    ReportedExperiment experiment = experiments(arguments.places.front(), {});
    keep_selected(arguments.selection, experiment);
    records = std::move(experiment.records);
  } else {
    records = selected_records(arguments.places, arguments.selection);
  }
  return written(rank_plot_svg(reporting::result_table(records, {})), arguments);
}

}  // namespace

std::function<int()> add_plot(CLI::App& program, const ExperimentReader& experiments) {
  CLI::App& command = *program.add_subcommand("plot", "pictures of records and bench reports: SVG, PNG, PDF");
  command.require_subcommand(1);
  std::vector<std::pair<CLI::App*, std::function<int()>>> kinds;
  const auto add = [&](const char* kind, const char* help, const char* places,
                       const std::function<int(const PlotArguments&)>& run) {
    const auto arguments = std::make_shared<PlotArguments>();
    CLI::App& own = *command.add_subcommand(kind, help);
    own.add_option(places, arguments->places, "what to draw")->required();
    own.add_option("--out", arguments->out,
                   "write here instead of printing: .svg, or .png or .pdf where rsvg-convert is installed")
        ->type_name("FILE");
    kinds.emplace_back(&own, [arguments, run] {
      check_picture_name(arguments->out);
      return run(*arguments);
    });
    return std::pair<CLI::App*, PlotArguments*>{&own, arguments.get()};
  };
  const auto selects = [](const std::pair<CLI::App*, PlotArguments*>& kind) {
    add_selection(*kind.first, kind.second->selection);
    return kind;
  };
  const auto choosing = [](const std::pair<CLI::App*, PlotArguments*>& kind) {
    kind.first->add_option("--models", kind.second->models, "these alone, separated by commas (mrs-*); default: all");
    return kind;
  };
  choosing(selects(add("curves", "dev score by step, with the band of the seeds", "RECORDS", curves)));
  const auto [trading, trade] =
      choosing(selects(add("tradeoff", "accuracy against speed, memory as the discs' area", "RECORDS", tradeoff)));
  trading
      ->add_option("--accuracy", trade->accuracy,
                   "take accuracies from this CSV (model, accuracy), or the averages in published.json#EXPERIMENT")
      ->type_name("FILE");
  words(trading->add_option("--against", trade->against, "speed, with memory as discs; or memory"), {"speed", "memory"})
      ->capture_default_str();
  trading->add_flag("--pareto", trade->pareto, "draw the front of models that none beats both ways");
  trading->add_option("--length", trade->length, "of a bench report's lengths")->check(whole_number(1));
  const auto [growing, grown] = choosing(add("growth", "time or memory by length with the exponents", "BENCH", growth));
  words(growing->add_option("--of", grown->quantity, "what grows"), {"time", "memory"})->capture_default_str();
  const auto [relating, related] =
      choosing(add("ratios", "operations or memory of mrs-X over X by length, of bench reports", "BENCH", ratios));
  words(relating->add_option("--of", related->ratio, "what is compared"), {"flops", "memory"})->capture_default_str();
  selects(add("ranks", "mean ranks over six or more tasks, and which models tests do not tell apart", "RECORDS",
              [experiments](const PlotArguments& arguments) { return ranks(arguments, experiments); }));
  const auto [mapping, mapped] =
      add("map", "a matrix as shades: attention weights that `xformer forward --capture` wrote", "TENSORS", map);
  mapping->add_option("--tensor", mapped->tensor, "its name in the file, e.g. layer0.mixer.weights")->required();
  mapping->add_option("--at", mapped->at, "which matrix of a larger tensor: example,head; default: the first");
  return [kinds] {
    for (const auto& [kind, run] : kinds)
      if (kind->parsed()) return run();
    return 0;
  };
}

}  // namespace xformer::cli
