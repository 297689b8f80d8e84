#include "cli/measurements.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "core/names.h"
#include "readers/csv.h"
#include "reporting/run_records.h"

namespace xformer::cli {
namespace {

reporting::SmatInput& add(Measurements& into, const std::string& model, int64_t seed) {
  auto found =
      std::find_if(into.models.begin(), into.models.end(), [&](const Measured& one) { return one.model == model; });
  if (found == into.models.end()) found = into.models.insert(into.models.end(), {model, {}});
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

void add_record(const reporting::RunRecord& record, Measurements& into) {
  XF_CHECK(record.score && !record.rmse && record.examples_per_s > 0, DataError,
           "{}: a record without accuracy or speed; its run is {}", record.path.string(), record.status);
  XF_CHECK(into.task.empty() || into.task == record.task, UserError, "{} is a record of {}, those before it of {}",
           record.path.string(), record.task, into.task);
  into.task = record.task;
  into.sources.insert("records of " + record.task);
  add(into, record.model, record.seed) = {record.model, record.examples_per_s, record.peak_device_bytes / 1e6,
                                          100 * *record.score};
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

Measurements read_measurements(const std::vector<std::string>& places) {
  Measurements result;
  for (const std::string& input : places) {
    const Path path = input;
    if (path.extension() != ".csv") {
      for (const reporting::RunRecord& record : reporting::read_run_records({input})) add_record(record, result);
    } else {
      result.sources.insert(path.filename().string());
      for (const auto& row : read_table(path, {"model", "examples_per_s", "peak_memory_mb", "accuracy"}))
        add(result, row.at("model"), 0) = {row.at("model"), number(row, "examples_per_s"),
                                           number(row, "peak_memory_mb"), number(row, "accuracy")};
    }
  }
  return result;
}

void take_accuracies(const Path& path, Measurements& into) {
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
  into.sources.insert("accuracy from " + path.filename().string());
}

}  // namespace xformer::cli
