#include "cli/measurements.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/command.h"
#include "core/error.h"
#include "core/names.h"
#include "readers/csv.h"
#include "reporting/learning_curves.h"
#include "reporting/result_table.h"

namespace xformer::cli {
namespace {

reporting::SmatInput& add(Measurements& into, const std::string& model, int64_t seed) {
  auto found =
      std::find_if(into.models.begin(), into.models.end(), [&](const Measured& one) { return one.model == model; });
  if (found == into.models.end()) found = into.models.insert(into.models.end(), {model, model, {}});
  const auto [place, added] = found->seeds.try_emplace(seed, reporting::SmatInput{model});
  XF_CHECK(added, UserError, "{} with seed {} is there twice", model, seed);
  return place->second;
}

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

// `label`: the model, with the options that records of it differ in. A run that gave no score or speed is left out and
// said.
void add_record(const RunRecord& record, const std::string& label, Measurements& into) {
  const double speed = record.speed ? record.speed->examples_per_s.median : 0;
  if (!record.score() || speed <= 0) {
    into.sources.insert(fmt::format("{} with seed {} left out: its record has no {} (the run is {})", label,
                                    record.seed, record.score() ? "speed" : "score", record.status));
    return;
  }
  into.task = record.task;
  into.metric = record.headline("test")->spec;
  const std::string conditions = reporting::conditions_of({&record});
  into.sources.insert("records of " + record.task + (conditions.empty() ? "" : " (" + conditions + ")"));
  add(into, label, record.seed) = {label, speed, static_cast<double>(record.peak_device_bytes.value_or(0)) / 1e6,
                                   into.metric.shown(*record.score())};
  std::find_if(into.models.begin(), into.models.end(), [&](const Measured& one) { return one.model == label; })->name =
      record.called();
}

// Rows of one length of a bench report; rows that did not fit are left out and said.
void add_bench(const Path& path, const Json& report, int64_t length, Measurements& into) {
  std::set<int64_t> lengths, batches;
  for (const Json& row : report["rows"]) {
    lengths.insert(row.at("length").get<int64_t>());
    batches.insert(row.value("batch", int64_t{0}));
  }
  XF_CHECK(!lengths.empty(), DataError, "{}: a report of `xformer bench` without rows", path.string());
  XF_CHECK(length > 0 || lengths.size() == 1, UserError, "{}: it has the lengths {}; --length says which",
           path.string(), fmt::join(lengths, ", "));
  if (length == 0) length = *lengths.begin();
  XF_CHECK(lengths.contains(length), UserError, "{}: --length {}: it has the lengths {}", path.string(), length,
           fmt::join(lengths, ", "));
  for (const Json& row : report["rows"]) {
    if (row["length"] != length) continue;
    const std::string model = row.at("model"), label = row.value("label", model);
    const bool is_timed = row.at("status") == "ok" && !row.at("examples_per_s").is_null();
    if (!is_timed) {
      const std::string status = row.at("status");
      into.sources.insert(fmt::format("{} left out: {}", label, status == "ok" ? "no step was timed" : status));
      continue;
    }
    const bool is_new =
        std::none_of(into.models.begin(), into.models.end(), [&](const Measured& one) { return one.model == label; });
    XF_CHECK(is_new || batches.size() == 1, UserError,
             "{}: it has the batches {}, which stand beside each other nowhere; bench one of them", path.string(),
             fmt::join(batches, ", "));
    add(into, label, 0) = {label, row.at("examples_per_s"), row.at("peak_bytes").get<double>() / 1e6,
                           std::numeric_limits<double>::quiet_NaN()};
    into.models.back().name = model;
  }
  into.sources.insert(fmt::format("speed and memory ours at {} tokens: {}", length, bench_conditions(report)));
}

std::map<std::string, double> published_averages(const std::string& place, const MetricSpec& metric) {
  const size_t mark = place.find('#');
  std::map<std::string, double> result;
  for (const reporting::PublishedValue& value :
       reporting::read_published(place.substr(0, mark), mark == std::string::npos ? "" : place.substr(mark + 1))) {
    if (value.task != reporting::kAverage || !value.text.empty()) continue;
    if (!value.metric.empty() && value.metric != metric.name) continue;
    XF_CHECK(result.emplace(value.model, value.value).second, UserError,
             "--accuracy {}: {} has several averages there; name the experiment behind a #", place, value.model);
  }
  return result;
}

}  // namespace

reporting::SmatInput Measured::mean() const {
  reporting::SmatInput sum{model};
  for (const auto& [seed, one] : seeds) {
    sum.examples_per_s += one.examples_per_s;
    sum.peak_memory += one.peak_memory;
    sum.accuracy += one.accuracy;
  }
  const auto count = static_cast<double>(seeds.size());
  return {model, sum.examples_per_s / count, sum.peak_memory / count, sum.accuracy / count};
}

reporting::SmatInput Measured::deviation() const {
  std::vector<double> speed, memory, accuracy;
  for (const auto& [seed, one] : seeds) {
    speed.push_back(one.examples_per_s);
    memory.push_back(one.peak_memory);
    accuracy.push_back(one.accuracy);
  }
  return {model, reporting::sample_deviation(speed), reporting::sample_deviation(memory),
          reporting::sample_deviation(accuracy)};
}

Measurements read_measurements(const std::vector<std::string>& places, const reporting::RecordSelection& how,
                               int64_t length) {
  Measurements result;
  std::vector<std::string> of_records;
  for (const std::string& input : places) {
    const Path path = input;
    if (path.extension() == ".csv") {
      result.sources.insert(path.filename().string());
      for (const auto& row : read_table(path, {"model", "examples_per_s", "peak_memory_mb", "accuracy"}))
        add(result, row.at("model"), 0) = {row.at("model"), number(row, "examples_per_s"),
                                           number(row, "peak_memory_mb"), number(row, "accuracy")};
      continue;
    }
    if (std::filesystem::is_regular_file(path)) {
      const Json json = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
      if (json.is_object() && json.contains("rows") && json.contains("conditions")) {
        read_bench(input, json, [&](const Json& report) { add_bench(path, report, length, result); });
        continue;
      }
    }
    of_records.push_back(input);
  }
  const auto checked = [&] {
    XF_CHECK(!result.models.empty(), DataError, "nothing to compare: {}", fmt::join(result.sources, "; "));
    return result;
  };
  if (of_records.empty()) return checked();
  const std::vector<RunRecord> records = selected_records(of_records, how);
  reporting::require_one_column(records, "models are compared by runs");
  const std::vector<reporting::RecordLabel> labels = reporting::labels_of(records);
  for (size_t i = 0; i < records.size(); ++i) add_record(records[i], labels[i].row, result);
  return checked();
}

void take_accuracies(const std::string& place, Measurements& into) {
  const Path path = place.substr(0, place.find('#'));
  std::map<std::string, double> accuracies;
  if (path.extension() == ".json") accuracies = published_averages(place, into.metric);
  else
    for (const auto& row : read_table(path, {"model", "accuracy"}))
      accuracies[row.at("model")] = number(row, "accuracy");
  if (accuracies.contains("softmax")) accuracies.emplace("softmax-fused", accuracies["softmax"]);
  for (Measured& model : into.models) {
    std::vector<std::string> names;
    for (const auto& [name, value] : accuracies) names.push_back(name);
    const auto found = accuracies.find(model.name);
    XF_CHECK(found != accuracies.end(), UserError, "--accuracy {}: {}", place,
             unknown_name_message("model", model.name, names));
    for (auto& [seed, one] : model.seeds) one.accuracy = found->second;
  }
  into.sources.insert("accuracy from " + Path(place).filename().string());
}

void require_accuracies(const Measurements& of) {
  for (const Measured& model : of.models)
    XF_CHECK(!std::isnan(model.mean().accuracy), UserError,
             "{} has no accuracy, as a bench measures none: --accuracy FILE brings it", model.model);
}

void read_bench(const std::string& place, const Json& report, const std::function<void(const Json& report)>& work) {
  try {
    work(report);
  } catch (const Json::exception& error) {
    throw DataError(fmt::format("{}: no report of `xformer bench`: {}", place, error.what()));
  }
}

std::string bench_conditions(const Json& report) {
  const Json& on = report.at("conditions");
  std::set<int64_t> batches;
  for (const Json& row : report.at("rows")) batches.insert(row.value("batch", int64_t{0}));
  const int64_t threads = on.value("threads", int64_t{0});
  return fmt::format("{} of {}, batch {}, {}, {} {}, {} ({})",
                     on.value("mode", "train") == "train" ? "Training steps" : "Forward passes", on.value("task", ""),
                     fmt::join(batches, " or "), on.value("precision", ""), threads,
                     threads == 1 ? "thread" : "threads", on.value("device", ""),
                     report.value("hardware", Json::object()).value("processor", "an unknown processor"));
}

}  // namespace xformer::cli
