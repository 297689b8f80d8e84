// What `report` and `plot` show of an experiment. To read one takes the engine: its runs are plans.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/run_record.h"
#include "reporting/record_selection.h"

namespace xformer::cli {

struct ReportedExperiment {
  Path file, folder;  // its own, and where its records are
  std::string title;
  std::vector<std::string> notes;  // what differs from the paper
  std::optional<Path> published;
  std::string published_name;
  std::vector<std::string> average_over;  // tasks; none named: all
  std::string metric = {};                // shown where nobody asks for another; "": scores
  std::vector<std::string> columns = {};  // likewise
  // Of an experiment that measures, which has no records: for each command its report of `xformer bench`; "": none yet.
  std::vector<Path> measurements = {};
  std::vector<std::string> remarks = {};  // of records in the folder that are damaged, or that no run asks for
  // One for each run, in the experiment's order: the record in the folder, or one without a path, of what its task is
  // judged by, where there is none; of a run that waits for names, with these as its message (reporting::kWaiting).
  std::vector<RunRecord> records = {};
  // Not a part of a printed table ("published.json#table-8"): the published values of no run belong to it, too.
  [[nodiscard]] bool is_whole_table() const { return published_name == file.stem().string(); }
};

// `folder`: where the records are; empty: results/runs/<name> where that exists, else runs/<name>.
using ExperimentReader = std::function<ReportedExperiment(const Path& file, const Path& folder)>;

// Leaves the runs of the tasks that are asked for. UserErrors: none is left; another rule for duplicates than that of
// experiments, which have the newest record of each run.
void keep_selected(const reporting::RecordSelection& how, ReportedExperiment& experiment);

// Whether a file that somebody names asks for runs: a record says which schema it has, an experiment asks for models or
// measurements, or extends one. Nothing else is written in YAML or TOML, so that what is wrong with such a file is
// said.
[[nodiscard]] bool is_experiment(const Path& path);

// The experiment files below a folder, in the order of their paths: those with a title, since others are only extended;
// one that nothing extends is noted, and one that cannot be read. Not what `xformer sweep` writes among runs
// (experiment.json), nor configurations.
[[nodiscard]] std::vector<Path> experiment_files(const Path& folder);

}  // namespace xformer::cli
