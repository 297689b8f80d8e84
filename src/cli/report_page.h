// What `xformer report` prints where that is more than one table of runs: of an experiment that measures, and of a
// folder of experiments.
#pragma once

#include <string>
#include <vector>

#include "cli/experiments.h"
#include "reporting/result_formats.h"
#include "reporting/table.h"

namespace xformer::cli {

enum class ReportFormat { kMarkdown, kLatex, kLatexPlain, kCsv, kLong, kJson, kHtml };
[[nodiscard]] const std::vector<std::string>& report_formats();  // as --format calls them

struct ReportPage {
  std::string title;
  std::vector<std::string> notes;        // above the tables
  std::vector<reporting::Table> tables;  // under their titles, but for those that have the page's
};

// UserError of formats that show every run: long.
[[nodiscard]] std::string written_as(ReportFormat format, const ReportPage& page);

// "mrsformer-table-9" of experiments/mrsformer/table-9.json.
[[nodiscard]] std::string short_name(const Path& experiment);

// Runs judged by another metric that their tests have, "" for their own; or the quantity that is to be shown in place
// of scores, which is returned. `origin` is who asks, for UserErrors.
[[nodiscard]] std::string judge(std::vector<RunRecord>& records, const std::string& metric, const std::string& origin);
// What is left of a table: tasks by pattern, of what stands beside them what is named, and what else is measured.
void choose_columns(const std::vector<std::string>& words, const std::string& origin, reporting::ResultTable& table,
                    reporting::ResultView& view);

// Of an experiment that trains: under its title, with its notes.
[[nodiscard]] reporting::ResultTable table_of(const ReportedExperiment& experiment,
                                              const std::vector<reporting::PublishedValue>& published,
                                              const reporting::ResultOptions& options);

// Reports of an experiment that measures beside its published ratios, and the published measurements themselves.
[[nodiscard]] ReportPage measured_page(const ReportedExperiment& experiment);

// A table of how much of each experiment is done, then the tables of all. `records`: a folder with one for each
// experiment, "mrsformer/table-9"; empty: where they usually are.
[[nodiscard]] ReportPage mission_page(const Path& folder, const std::vector<Path>& files, const Path& records,
                                      const ExperimentReader& experiments);

}  // namespace xformer::cli
