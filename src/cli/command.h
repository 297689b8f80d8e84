// One verb of the program.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>

#include "cli/catalogue.h"
#include "cli/experiments.h"
#include "reporting/record_selection.h"

namespace xformer::cli {

// Adds a subcommand to the program and returns what runs when it was chosen.
using CommandSetup = std::function<std::function<int()>(CLI::App& program)>;

// Help that fits the window.
void set_formatter(CLI::App& program);

std::function<int()> add_list(CLI::App& program, const Catalogue& catalogue);
std::function<int()> add_describe(CLI::App& program, const Catalogue& catalogue);
std::function<int()> add_new(CLI::App& program, const Catalogue& catalogue);
std::function<int()> add_export_template(CLI::App& program);
std::function<int()> add_completion(CLI::App& program);
std::function<int()> add_report(CLI::App& program, const ExperimentReader& experiments);
std::function<int()> add_plot(CLI::App& program, const ExperimentReader& experiments);
std::function<int()> add_smat(CLI::App& program);

// --duplicates and --task, of a command that reads records.
void add_selection(CLI::App& command, reporting::RecordSelection& into);
// Records and folders of them as selected; on stderr what was left out.
[[nodiscard]] std::vector<RunRecord> selected_records(const std::vector<std::string>& places,
                                                      const reporting::RecordSelection& how);

// What `xformer describe` prints of a name's facts.
void print_description(const Json& facts, bool markdown);

// For options that take one of some words: checked, the nearest named otherwise, shown by help and offered by
// completion. `_` is `-`, capitals are small letters.
CLI::Option* words(CLI::Option* option, const std::vector<std::string>& known);

// For options that count something; the message names the bound and what came.
[[nodiscard]] CLI::Validator whole_number(int64_t least);

// The words of the command line as recorded: values of --data, --out, --record-to and --config are replaced by <data>,
// <out>, <record> and <config>, so that a record holds no path of a machine. Set once by run().
[[nodiscard]] const std::string& recorded_command();
// The same of the words behind the program's name.
[[nodiscard]] std::string recorded_form(const std::vector<std::string>& words);

}  // namespace xformer::cli
