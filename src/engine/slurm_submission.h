// `xformer sweep --executor slurm`: what a job asks of Slurm for the cells that are missing, printed or submitted.
#pragma once

#include "engine/plan_arguments.h"
#include "sweep/slurm.h"
#include "sweep/sweep.h"

namespace xformer::engine {

struct SlurmWishes {
  std::vector<std::string> options;  // --slurm
  std::string setup;                 // file whose lines come before the first cell, in place of the experiment's
  int64_t cells_per_job = 0;         // 0: as many as take ten minutes together by earlier records, one where none tell
  ComputeArguments compute;          // of the cells; its threads are a task's processors, 0: nothing is asked for
};

// Job arrays, no longer than Slurm takes them, for cells that are to run, each by `command` and "--cell ID". Memory is
// a quarter more than the most that earlier records of such cells say, or that a few small steps here foresee;
// nothing is asked for where neither tells of all: on a GPU, and where a cell's data is not here.
[[nodiscard]] std::vector<sweep::SlurmJob> slurm_jobs(const sweep::Experiment& experiment,
                                                      const std::vector<const sweep::Cell*>& cells,
                                                      const sweep::SweepOptions& options,
                                                      const std::vector<std::string>& command,
                                                      const SlurmWishes& wishes);

// The scripts on standard output, what to know about them on standard error.
void print_slurm_jobs(const std::vector<sweep::SlurmJob>& jobs);

// One array after the other, each to begin when the one before it has ended.
void submit_slurm_jobs(const sweep::Experiment& experiment, const std::vector<sweep::SlurmJob>& jobs,
                       sweep::Journal& journal);

}  // namespace xformer::engine
