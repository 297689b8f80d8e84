// How an attempt at a cell ended, what is to follow, and the record that stays.
#pragma once

#include "core/run_record.h"
#include "sweep/cell_process.h"
#include "sweep/cells.h"
#include "sweep/journal.h"

namespace xformer::sweep {

// Kills from outside that a cell survives in one journal before it counts as failed.
inline constexpr int64_t kMostKills = 100;

struct Verdict {
  std::string status;   // completed, failed, diverged, out-of-memory, interrupted, killed
  std::string message;  // of what did not complete
  bool give_up = false;
  bool stop_sweep = false;  // the cause lies in the machine (a full disk, no such device): no cell would fare better
  int64_t next_micro_batch = 0;  // after running out of memory; 0: as before
};

// Of an attempt in `run_folder` whose output is in `output`; `history` is from before its end. Running out of memory
// halves the micro-batch, down to one example; what failed is tried again `retries` times, but not a wrong name or
// value, data that is not as it should be, nor what diverged: all would be so again; what the machine refused ends the
// sweep in place of the cell; what was killed from outside goes on.
[[nodiscard]] Verdict judge(const Cell& cell, const Ending& ending, bool system_out_of_memory, const Path& run_folder,
                            const Path& output, const CellHistory& history, int64_t retries);

// The last thing that a process said in its output.
[[nodiscard]] std::string last_words(const Path& output);

// The record of a run directory that holds a completed run.
[[nodiscard]] std::optional<RunRecord> completed_record(const Path& run_folder);

// The record of a cell that was given up: that of its last attempt, or one of plan, command and message alone.
[[nodiscard]] RunRecord record_of_failure(const Cell& cell, const Path& run_folder, const std::string& status,
                                          const std::string& message);

// What the trials of a search came to, and the values of the best on dev: the mean of `selection.best` over the trials'
// seeds. UserError when there is none to choose: no trial completed, or they were selected on the test split.
struct Chosen {
  Json values;
  Json search;  // for the record: the space, every trial with its score, what was chosen
};
[[nodiscard]] Chosen choose(const Search& search, const std::vector<const Cell*>& trials,
                            const std::vector<std::optional<RunRecord>>& records);
// The same for a run of these cells; `records`: of every cell that completed.
[[nodiscard]] Chosen choose(const Search& search, const std::vector<Cell>& cells, const Cell& run,
                            const std::vector<std::optional<RunRecord>>& records);

// Puts the course of its search into the record file of a run, which without it looks like the trial that was chosen.
void keep_search(const Path& record, const Json& search);

}  // namespace xformer::sweep
