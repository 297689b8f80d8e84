#include "sweep/estimate.h"

#include <algorithm>

namespace xformer::sweep {

namespace {

double planned_examples(const RunPlan& plan) {
  const Json& values = plan.options.values;
  return values["training.steps"].get<double>() * values["training.batch"].get<double>();
}

// Of an option that decides what a step computes.
bool decides_a_step(const std::string& key) {
  return key.starts_with("model.") || key.starts_with("attention.") || key.starts_with("data.") ||
         key == "training.precision";
}

// Whether a step of the record's plan, of any age, computes what one of this plan does, but for how many examples.
bool same_step(const Json& stored, const RunPlan& plan) {
  for (const auto& [key, value] : plan.options.values.items())
    if (decides_a_step(key) && stored.value(key, plan.options.before.at(key)) != value) return false;
  return true;
}

}  // namespace

void Estimator::learn(const RunRecord& record) {
  const bool tells = record.completed() || record.status == "interrupted" || record.status == "stopped";
  if (!tells || record.plan_hash.empty() || record.task.empty() || record.model.empty() || !record.plan.is_object() ||
      !record.steps || record.steps->done == 0)
    return;
  const double batch = record.plan.value("training.batch", 0.0), done = static_cast<double>(record.steps->done);
  const double steps = record.completed() ? done : std::max(done, static_cast<double>(record.steps->planned));
  const int64_t peak = std::max(record.peak_process_bytes.value_or(0), record.peak_device_bytes.value_or(0));
  known_.push_back({record.plan_hash, record.task, record.model, record.plan,
                    (record.train_seconds.value_or(0) + record.evaluation_seconds.value_or(0)) * steps / done, batch,
                    steps * batch, static_cast<double>(peak),
                    record.flops ? record.flops->forward_per_example * steps * batch : 0});
}

void Estimator::learn_folder(const Path& folder) {
  std::error_code ignored;
  for (auto entry = std::filesystem::recursive_directory_iterator(folder, ignored);
       entry != std::filesystem::recursive_directory_iterator(); entry.increment(ignored))
    if (entry->path().extension() == ".json" && entry->is_regular_file(ignored)) learn(read_run_record(entry->path()));
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
  // Nobody knows beforehand the steps of runs that count epochs.
  if (count == 0 && plan.options.values["training.epochs"].get<int64_t>() == 0) {
    sum.from = "the same model and task";
    for (const Known& one : known_)
      if (one.task == plan.task && one.model == plan.model && one.examples > 0 && same_step(one.plan, plan)) {
        sum.seconds += one.seconds * planned_examples(plan) / one.examples;
        // No more than in proportion to the batch: weights do not grow with it.
        const double batches = plan.options.values["training.batch"].get<double>() / one.batch;
        sum.peak_bytes = std::max(sum.peak_bytes, one.peak_bytes * std::max(batches, 1.0));
        ++count;
      }
  }
  if (count == 0) return std::nullopt;
  sum.seconds /= count;
  return sum;
}

std::optional<Estimate> Estimator::by_operations(const RunPlan& plan, double flops_per_example, double examples) const {
  for (const bool same_task : {true, false}) {
    double flops = 0, seconds = 0;
    for (const Known& one : known_)
      if (one.flops > 0 && (one.task == plan.task || !same_task)) flops += one.flops, seconds += one.seconds;
    if (flops > 0) return Estimate{flops_per_example * examples * seconds / flops, 0, "other models, by operations"};
  }
  return std::nullopt;
}

double Estimator::typical_seconds() const {
  double sum = 0;
  for (const Known& one : known_) sum += one.seconds;
  return known_.empty() ? 0 : sum / static_cast<double>(known_.size());
}

}  // namespace xformer::sweep
