// Speed and size of models at given lengths: the very step that training takes, or the forward pass that evaluation
// takes, on random tokens. Every position is valid, unless the lengths of real examples say otherwise.
#pragma once

#include <optional>
#include <span>

#include "data/batches/batcher.h"
#include "plan/options.h"

namespace xformer::measure {

inline constexpr int64_t kBenchSchema = 1;

struct BenchOptions {
  std::vector<std::string> models;
  std::vector<Json> own;             // option values of each of the models alone; empty: none
  std::vector<std::string> against;  // those of the models that every row is compared with; none: the first
  std::vector<int64_t> lengths, batches;
  std::vector<int64_t> widths;          // model.dim, the rest in proportion; none: the plan's own
  std::vector<std::string> precisions;  // training.precision; none: the plan's own
  std::string mode = "train";           // or "inference"
  int64_t steps = 20;                   // timed
  int64_t warmup = 3;                   // not timed; more where a step needs them before it is what it will stay
  // All models of one group (length, batch, width and precision) are alive and take turns step by step, so that what
  // else the machine does falls on all of them. Sizes are then measured before, each model alone.
  bool interleave = false;
  bool paced = false;  // timed steps wait for BenchRun::turn; one row
  std::string task = "listops", protocol;
  std::vector<ValueLayer> layers;  // over the protocol's; an attention option goes to those models that have it
};

// One row to be: everything named and checked, nothing built.
struct BenchCase {
  RunPlan plan;
  data::DataShape shape;         // at the wanted length
  models::ModelRequest request;  // for that
  std::string name;              // the model's, and the values of its own
  std::string label;             // with the width and the precision, where there are several
  Json own = Json::object();
  int64_t length = 0, batch = 0, width = 0;  // 0: the family has no model.dim
  std::string precision;
  std::vector<int64_t> valid_lengths;  // of each row; none: every position is valid
};

// What a step took in milliseconds; of several that were queued one behind the other, their mean.
struct StepTime {
  double ms = 0;  // from the batch in host memory until the device is done
  // On a device: until the step was queued, and by the device's own clock from its beginning to its end.
  std::optional<double> host_ms, device_ms;
};

// Where and how, and who listens.
struct BenchRun {
  at::Device device = at::kCPU;
  bool deterministic = true;
  std::string kernels = "auto", cuda_graph = "auto";
  std::string command;       // as recorded
  int64_t memory_limit = 0;  // bytes that a row may take; 0: what the device has available
  std::function<bool()> stop_requested = [] { return false; };  // asked between steps
  std::function<void(const std::string& text, double fraction)> progress = [](auto&&...) {};
  std::function<void(const std::string& line)> say = [](const std::string&) {};
  // Asked before a timed step; false: there is none. With paced it waits for whoever sets the pace, who is told by
  // `ready`, after warm-up, and by `timed`, after each step.
  std::function<bool()> turn = [] { return true; };
  std::function<void(const Json& row)> ready = [](const Json&) {};
  std::function<void(const std::string& model, const StepTime& time)> timed = [](auto&&...) {};
};

// By length, then batch, width, precision and model. UserError for any wrong name, key, value or combination.
[[nodiscard]] std::vector<BenchCase> bench_cases(const BenchOptions& options);
// A protocol's precision that a device lacks becomes fp32, as training has it. The warnings of what it only imitates,
// each once.
[[nodiscard]] std::vector<std::string> suit_device(std::span<BenchCase> cases, const at::Device& device);
// Places in options.models of what is compared with. UserError for a name that is not measured.
[[nodiscard]] std::vector<size_t> bench_baselines(const BenchOptions& options);
// Row i of every batch gets the length of training example i, cut at the batch's. Opens the task's data, making it
// where it has to be made. DataError where there are fewer examples than rows.
void take_valid_lengths(std::span<BenchCase> cases, const data::DataLocation& location,
                        const ProgressCallback& progress);
// Random tokens and labels, the same at every call; zeros beyond the valid lengths.
[[nodiscard]] data::HostBatch bench_batch(const BenchCase& wanted);
// In words.
[[nodiscard]] std::string bench_input(const BenchCase& wanted);

// The report (docs/bench.md). What a row will take in memory is predicted from smaller batches; one that cannot
// fit, or that runs out of memory, says so and the others go on. Interrupted when a stop was requested.
[[nodiscard]] Json run_bench(const BenchOptions& options, const std::vector<BenchCase>& cases, const BenchRun& run);

// The report as a table for people, with its conditions in a last line.
[[nodiscard]] std::string bench_markdown(const Json& report);

}  // namespace xformer::measure
