// Options that several verbs share, and how they become a plan request and a data location.
#pragma once

#include <CLI/CLI.hpp>

#include "measure/bench.h"
#include "plan/options.h"

namespace xformer::engine {

struct PlanArguments {
  std::string task, model, protocol, config, init_from;
  std::vector<std::string> settings, words;  // --set key=value, and key=value by itself
  std::vector<std::string> freeze, reinit;   // patterns
  int64_t seed = 0, steps = 0, epochs = 0, batch = 0, micro_batch = 0, length = 0, eval_every = 0, log_every = 0;
  std::string precision = "auto", learning_rate, limit;
  bool fast = false;
  CLI::Option* seed_option = nullptr;

  void add_to(CLI::App& command);
  // Reads --config (and what it extends; a record, or a run's plan, too) and puts every layer in its order: file <
  // options < --set.
  [[nodiscard]] plan::PlanRequest request() const;
};

struct DataArguments {
  std::string folder;
  void add_to(CLI::App& command);
  // --data, else $XFORMER_DATA/<dataset> when that exists. UserError for a --data that is no directory.
  [[nodiscard]] data::DataLocation location(const std::string& dataset) const;
  // The plan's, for commands that read data only for --valid-from-data. UserError for a --data without it.
  [[nodiscard]] data::DataLocation location_for_lengths(bool valid_from_data, const RunPlan& plan) const;
};

struct ComputeArguments {
  std::string device = "auto", kernels = "auto", deterministic = "on", cuda_graph = "auto";
  int64_t threads = 0;
  // `batches`: many of one shape are computed, which a CUDA graph can serve.
  void add_to(CLI::App& command, bool batches = true);
  // The words again, of those that were given.
  [[nodiscard]] std::vector<std::string> words() const;
  // Checks the words; touches no device.
  void check() const;
  // Sets threads and determinism and takes the device, as the words say; a note about it goes to stderr.
  [[nodiscard]] at::Device start() const;
  // The same, for a measurement.
  [[nodiscard]] measure::BenchRun start_bench() const;
};

// "key=value" split at the first '='; UserError otherwise.
[[nodiscard]] ValueLayer settings_layer(const std::vector<std::string>& settings);
// An argument of the command itself for settings without --set, and an option for those with it.
void add_settings(CLI::App& command, std::vector<std::string>& settings, std::vector<std::string>& words);

// What only a generator reads must make sense to it, and must not be set beside --data.
void check_generator_options(const RunPlan& plan, const data::DataLocation& location);

}  // namespace xformer::engine
