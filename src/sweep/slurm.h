// A sweep as a Slurm job array: each task runs one cell, with what it needs, and is queued again when it is preempted
// or its time is up.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "sweep/journal.h"

namespace xformer::sweep {

struct SlurmJob {
  std::string name;
  Path out;                          // logs go there
  std::vector<std::string> command;  // to which "--cell ID" is added
  std::vector<std::string> cells;    // ids
  int64_t jobs = 1;                  // tasks at a time
  std::vector<std::string> options;  // more #SBATCH lines: "--time=4:00:00"
};

// The text that sbatch takes.
[[nodiscard]] std::string slurm_script(const SlurmJob& job);

// Submits it and returns the job's number; ResourceError with what sbatch said.
[[nodiscard]] int64_t submit(const std::string& script);

// The cells that the journal says were submitted and that are still queued or running, as far as squeue knows.
[[nodiscard]] std::set<std::string> queued_cells(const Journal& journal);

}  // namespace xformer::sweep
