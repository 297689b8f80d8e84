// Experiments that measure instead of training: commands of `xformer bench`, each a process of its own.
#pragma once

#include "sweep/experiment.h"

namespace xformer::engine {

struct BenchPlaces {
  std::string program;
  Path out;                          // bench-1.json, bench-1.md, ... and what the commands said
  Path record_to;                    // copies of the reports and tables; empty: none
  std::vector<std::string> compute;  // words for every command
};

// Runs the commands whose report is not there yet. An Error with what a command said last when one fails; what is
// measured stays.
void run_bench_experiment(const sweep::Experiment& experiment, const BenchPlaces& places);

}  // namespace xformer::engine
