// The records that a command reads, and its options that choose among them.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/printed.h"
#include "reporting/run_records.h"

namespace xformer::cli {

void add_selection(CLI::App& command, reporting::RecordSelection& into) {
  words(command.add_option("--duplicates", into.duplicates,
                           "which of several records of one run; all: each in a row of its own"),
        {"newest", "refuse", "all"})
      ->capture_default_str();
  command.add_option("--task", into.task, "records of this task alone; * is any text")->type_name("PATTERN");
}

std::vector<RunRecord> selected_records(const std::vector<std::string>& places, const reporting::RecordSelection& how) {
  std::vector<std::string> notes;
  std::vector<RunRecord> records = reporting::read_run_records(places, notes);
  records = reporting::select_records(std::move(records), how, notes);
  for (const std::string& one : notes) note(fmt::format("xformer: {}", one));
  return records;
}

}  // namespace xformer::cli
