// Runs the cells of an experiment, each in a process of its own, until all have ended in a record.
//
//   <out>/journal.jsonl   claims/<cell>   <task>/<model>/<hash>/<seed>/ (run directories, docs/record.md)
//
// Whatever is killed, the same call goes on with what is missing: a run directory goes on from its checkpoint, a cell
// whose record is complete is never started again, and a cell that another sweep runs (or a process that outlived its
// sweep) holds its claim, a lock that ends with its process.
#pragma once

#include <functional>

#include "sweep/cell_record.h"
#include "sweep/estimate.h"
#include "sweep/journal.h"

namespace xformer::sweep {

struct SweepOptions {
  Path out;             // run directories, journal and claims
  Path record_to;       // also put the records of runs there, under task/model/hash/seed; empty: no
  std::string program;  // whose `train` a cell is
  std::function<std::vector<std::string>(const RunPlan&)> data;  // words for train, --data DIR or none
  std::vector<std::string> compute;                              // words for train: --device, --threads, ...
  int64_t jobs = 1;                                              // cells at a time
  std::vector<std::string> gpus;                                 // devices to share out; empty: as the environment says
  bool retry_failed = false;                                     // cells that were given up count as not yet tried
  std::function<bool()> stop_requested = [] { return false; };
};

enum class CellState { kBlocked, kReady, kRunning, kElsewhere, kCompleted, kFailed };

struct RunningCell {
  std::string label;
  int64_t step = 0, steps = 0;  // steps: 0 while unknown
  double seconds = 0;
};

// What the view of a sweep is made of.
struct SweepProgress {
  int64_t cells = 0, completed = 0, failed = 0, elsewhere = 0;
  std::vector<RunningCell> running;
  double seconds_left = -1;               // negative: unknown
  std::map<std::string, int64_t> causes;  // why cells failed, and how many of each
};

class SweepObserver {
 public:
  virtual ~SweepObserver() = default;
  virtual void on_message(const std::string& line) { (void)line; }
  virtual void on_progress(const SweepProgress& progress) { (void)progress; }
};

// Ends when every cell is completed or given up; after its cells have saved, Interrupted when a stop is requested, and
// ResourceError when the machine refuses a cell what others need as well.
SweepProgress run_sweep(const Experiment& experiment, const std::vector<Cell>& cells, const SweepOptions& options,
                        SweepObserver& observer);

// The run directory of a cell's next attempt. After running out of memory it has a smaller micro-batch, so another
// plan.
[[nodiscard]] Path run_folder(const Path& out, const Cell& cell, int64_t micro_batch);
// The command of an attempt: `program` with the cell's words and where its files are.
[[nodiscard]] std::vector<std::string> cell_command(const SweepOptions& options, const std::vector<Cell>& cells,
                                                    const Cell& cell,
                                                    const std::map<std::string, CellHistory>& histories);

}  // namespace xformer::sweep
