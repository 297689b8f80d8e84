// Experiments that measure instead of training: commands of `xformer bench`, each a process of its own.
#pragma once

#include "sweep/experiment.h"

namespace xformer::engine {

struct BenchPlaces {
  std::string program;
  Path out;                          // bench-1.json, bench-1.md, ... and what the commands said
  Path record_to;                    // the reports and tables that stay; empty: none
  std::vector<std::string> compute;  // words for every command
};

// The reports below a folder, one for each command of an experiment that measures: by the command that they say,
// whatever their numbers were; one that says none is that of its number. Empty paths where there is none.
[[nodiscard]] std::vector<Path> bench_reports(const sweep::Experiment& experiment, const Path& folder);

// Runs the commands whose report is in neither folder yet; one that is in one of them is put into the other. An Error
// with what a command said last when one fails; what is measured stays.
void run_bench_experiment(const sweep::Experiment& experiment, const BenchPlaces& places);

}  // namespace xformer::engine
