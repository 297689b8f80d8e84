// Speed and size of models at given lengths: the very step that training takes, or the forward pass that evaluation
// takes, on random tokens of which every position is valid. No data set is read.
#pragma once

#include "training/options.h"

namespace xformer::training {

inline constexpr int64_t kBenchSchema = 1;

struct BenchOptions {
  std::vector<std::string> models;
  std::vector<std::string> against;  // those of the models that every row is compared with; none: the first
  std::vector<int64_t> lengths, batches;
  std::string mode = "train";  // or "inference"
  int64_t steps = 20;          // timed
  int64_t warmup = 3;          // not timed; more where a step needs them before it is what it will stay
  // All models of one length and batch are alive and take turns step by step, so that what else the machine does falls
  // on all of them. Sizes are then measured before, each model alone.
  bool interleave = false;
  std::string task = "listops", protocol;
  std::vector<ValueLayer> layers;  // over the protocol's; an attention option goes to those models that have it
};

// One row to be: everything named and checked, nothing built.
struct BenchCase {
  RunPlan plan;
  models::ModelRequest request;  // at the wanted length
  int64_t length = 0, batch = 0;
};

// Where and how, and who listens.
struct BenchRun {
  at::Device device = at::kCPU;
  bool deterministic = true;
  std::string kernels = "auto", cuda_graph = "auto";
  std::string command;                                          // as recorded
  std::function<bool()> stop_requested = [] { return false; };  // asked between steps
  std::function<void(const std::string& text, double fraction)> progress = [](auto&&...) {};
  std::function<void(const std::string& line)> say = [](const std::string&) {};
};

// By length, then batch, then model. UserError for any wrong name, key, value or combination.
[[nodiscard]] std::vector<BenchCase> bench_cases(const BenchOptions& options);

// The report (docs/bench.md). A row that ran out of memory says so and the others go on. Interrupted when a stop was
// requested.
[[nodiscard]] Json run_bench(const BenchOptions& options, const std::vector<BenchCase>& cases, const BenchRun& run);

// The report as a table for people, with its conditions in a last line.
[[nodiscard]] std::string bench_markdown(const Json& report);

}  // namespace xformer::training
