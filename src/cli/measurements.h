// Speed, memory and accuracy of models as commands take them: from records of runs, folders of them, or tables.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/metric.h"
#include "reporting/record_selection.h"
#include "reporting/smat.h"

namespace xformer::cli {

// What was measured of one model, by seed; a table has one row and no seeds. Memory in MB, accuracy as it is shown.
struct Measured {
  std::string model;  // with the options that it alone has
  std::string name;   // without them
  std::map<int64_t, reporting::SmatInput> seeds;
  [[nodiscard]] reporting::SmatInput mean() const;
  [[nodiscard]] reporting::SmatInput deviation() const;  // of samples, over seeds; NaN of fewer than two
};

struct Measurements {
  std::vector<Measured> models;
  std::string task;                       // of records
  MetricSpec metric = accuracy_metric();  // what stands for accuracy: a table's, or what the records are judged by
  std::set<std::string> sources;          // where the numbers are from
};

// A table is CSV with the columns model, examples_per_s, peak_memory_mb and accuracy. A report of `xformer bench` has
// no accuracies: take_accuracies brings them; of its lengths `length` is taken (0: there is one). UserErrors: records
// of two tasks, protocols or options of the data, a model's seed twice, no length said; DataErrors: no record that has
// a score and a speed (one without is left out, and said among the sources), a column missing or no number.
[[nodiscard]] Measurements read_measurements(const std::vector<std::string>& places,
                                             const reporting::RecordSelection& how, int64_t length = 0);

// Replaces all accuracies by those of a CSV with the columns model and accuracy, or by the averages over tasks in an
// experiment's published values ("published.json#table-1"). Where the file has none of softmax-fused it has softmax's:
// both compute the same. UserError when one is still missing.
void take_accuracies(const std::string& place, Measurements& into);

// UserError that says how, where a model has none.
void require_accuracies(const Measurements& of);

// work(report) of a file that `xformer bench --json` wrote; DataError that names the file where it lacks something.
void read_bench(const std::string& place, const Json& report, const std::function<void(const Json& report)>& work);

// "Training steps of text, batch 2, fp32, 2 threads, cpu (AMD EPYC)": of a report of `xformer bench --json`.
[[nodiscard]] std::string bench_conditions(const Json& report);

}  // namespace xformer::cli
