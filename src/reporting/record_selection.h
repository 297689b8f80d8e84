// Which of the records that were found a table or a picture is made of, and what their rows and columns are called.
#pragma once

#include <string>
#include <vector>

#include "core/run_record.h"

namespace xformer::reporting {

// A column is a task under its data options, a row a model under its own, both named by what differs: runs of one
// column and row have one plan but for the seed, and for what a search chose of all of them and which weights all of
// them began with, and one data set: columns of the same options and other data name its hash. Of four plans of a model
// and more, a row leaves out the values that most of them have: `unsaid` is the model with those, "" without any.
struct RecordLabel {
  std::string column, row, unsaid;
};
// "adding, length=512" of {"data.length": 512}.
[[nodiscard]] std::string with_options(std::string label, const Json& options);
// In the order of the records.
[[nodiscard]] std::vector<RecordLabel> labels_of(const std::vector<RunRecord>& records);

// Of two records of one run: the one that completed, else the later one.
[[nodiscard]] bool counts_before(const RunRecord& one, const RunRecord& other);

struct RecordSelection {
  // Of records with the same labels and seed: the newest that completed, none (UserError), or all, each a row of its
  // own that its folder names, or its file where several lie in one folder.
  std::string duplicates = "newest";
  std::string task;  // a pattern; "": every task
};

// Leaves those of the tasks that a pattern fits; "" fits all. UserError, with the tasks there are, when nothing is
// left.
void keep_task(const std::string& pattern, std::vector<RunRecord>& records);

// Leaves out what is not asked for, and records that are not comparable (of part of the data) where others are there.
// `notes` gets a sentence on everything that a person did not ask to be left out. UserError, with the tasks there are,
// when nothing is left.
[[nodiscard]] std::vector<RunRecord> select_records(std::vector<RunRecord> records, const RecordSelection& how,
                                                    std::vector<std::string>& notes);

// Runs of the tasks that have this metric beside the one they are judged by, judged by it instead. UserError, with
// the metrics there are, where no task has it; `origin` is who asks.
[[nodiscard]] std::vector<RunRecord> judged_by(std::vector<RunRecord> records, const std::string& metric,
                                               const std::string& origin = "--metric");

// UserError, with the tasks or the columns there are, when there is more than one: `what`, of them all, would mix
// settings.
void require_one_column(const std::vector<RunRecord>& records, const std::string& what);

}  // namespace xformer::reporting
