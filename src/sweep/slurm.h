// A sweep as Slurm job arrays: each task runs one cell, or several small ones in turn, with what they need, and is
// queued again when it is preempted or its time is up.
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
  int64_t cells_per_task = 1;        // in turn
  int64_t jobs = 1;                  // tasks at a time
  int64_t threads = 0;               // processors of a task; 0: as Slurm gives them
  uint64_t memory = 0;               // bytes of a task; 0: as Slurm gives them
  std::vector<std::string> options;  // more #SBATCH lines: "--time=4:00:00"; over threads and memory
  std::vector<std::string> setup;    // lines of shell before the first cell: "module load cuda"

  [[nodiscard]] int64_t tasks() const;
};

// The job in parts of at most so many tasks.
[[nodiscard]] std::vector<SlurmJob> in_arrays_of(const SlurmJob& job, int64_t tasks);

// What scontrol says (MaxArraySize: every index is below it), else Slurm's default 1001.
[[nodiscard]] int64_t most_tasks();

// The text that sbatch takes.
[[nodiscard]] std::string slurm_script(const SlurmJob& job);

// Submits it, to begin when job `after` has ended (0: at once), and returns the job's number; ResourceError with what
// sbatch said.
[[nodiscard]] int64_t submit(const std::string& script, int64_t after);

// The cells that the journal says were submitted and that are still queued or running, as far as squeue knows.
[[nodiscard]] std::set<std::string> queued_cells(const Journal& journal);

}  // namespace xformer::sweep
