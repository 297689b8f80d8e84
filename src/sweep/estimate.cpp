#include "sweep/estimate.h"

#include <algorithm>

namespace xformer::sweep {

namespace {

double number(const Json& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_number() ? found->get<double>() : 0;
}

double planned_examples(const RunPlan& plan) {
  const Json& values = plan.options.values;
  return values["training.steps"].get<double>() * values["training.batch"].get<double>();
}

}  // namespace

void Estimator::learn(const Json& record) {
  const auto text = [&](const char* key) { return record.contains(key) && record[key].is_string(); };
  if (!record.is_object() || !text("status") || record["status"] != "completed" || !text("plan_hash") ||
      !text("task") || !text("model") || !record.contains("plan") || !record["plan"].is_object() ||
      !record.contains("steps") || !record["steps"].is_object())
    return;
  const double batch = number(record["plan"], "training.batch");
  known_.push_back({record["plan_hash"], record["task"], record["model"],
                    number(record, "train_seconds") + number(record, "evaluation_seconds"),
                    number(record["steps"], "done") * batch,
                    std::max(number(record, "peak_process_bytes"), number(record, "peak_device_bytes"))});
}

void Estimator::learn_folder(const Path& folder) {
  std::error_code ignored;
  for (auto entry = std::filesystem::recursive_directory_iterator(folder, ignored);
       entry != std::filesystem::recursive_directory_iterator(); entry.increment(ignored))
    if (entry->path().extension() == ".json" && entry->is_regular_file(ignored))
      learn(Json::parse(read_file(entry->path()), nullptr, /*allow_exceptions=*/false));
}

std::optional<Estimate> Estimator::of(const RunPlan& plan) const {
  Estimate sum{0, 0, "the same plan"};
  double count = 0;
  const std::string hash = plan.hash();
  for (const Known& one : known_)
    if (one.hash == hash) {
      sum.seconds += one.seconds;
      sum.peak_bytes = std::max(sum.peak_bytes, one.peak_bytes);
      ++count;
    }
  // Of runs that count epochs nobody knows the steps beforehand.
  if (count == 0 && plan.options.values["training.epochs"].get<int64_t>() == 0) {
    sum.from = "the same model and task";
    for (const Known& one : known_)
      if (one.task == plan.task && one.model == plan.model && one.examples > 0) {
        sum.seconds += one.seconds * planned_examples(plan) / one.examples;
        sum.peak_bytes = std::max(sum.peak_bytes, one.peak_bytes);
        ++count;
      }
  }
  if (count == 0) return std::nullopt;
  sum.seconds /= count;
  return sum;
}

double Estimator::typical_seconds() const {
  double sum = 0;
  for (const Known& one : known_) sum += one.seconds;
  return known_.empty() ? 0 : sum / static_cast<double>(known_.size());
}

}  // namespace xformer::sweep
