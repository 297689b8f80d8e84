// One verb of the program.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>

namespace xformer::cli {

// Adds a subcommand to the program and returns what runs when it was chosen.
using CommandSetup = std::function<int()> (*)(CLI::App& program);

std::function<int()> add_train(CLI::App& program);
std::function<int()> add_sweep(CLI::App& program);
std::function<int()> add_validate(CLI::App& program);
std::function<int()> add_eval(CLI::App& program);
std::function<int()> add_forward(CLI::App& program);
std::function<int()> add_bench(CLI::App& program);
std::function<int()> add_profile(CLI::App& program);
std::function<int()> add_report(CLI::App& program);
std::function<int()> add_smat(CLI::App& program);
std::function<int()> add_plot(CLI::App& program);
std::function<int()> add_span(CLI::App& program);
std::function<int()> add_analyse(CLI::App& program);
std::function<int()> add_list(CLI::App& program);
std::function<int()> add_describe(CLI::App& program);
std::function<int()> add_data(CLI::App& program);
std::function<int()> add_selftest(CLI::App& program);
std::function<int()> add_completion(CLI::App& program);

// UserError when these words of `xformer bench` ask for something wrong; nothing is measured.
void check_bench(const std::vector<std::string>& words);

// What `xformer describe NAME` prints.
int describe_name(const std::string& name);

// The words of the command line as recorded: values of --data, --out, --record-to and --config are replaced by <data>,
// <out>, <record> and <config>, so that a record holds no path of a machine. Set once by run().
[[nodiscard]] const std::string& recorded_command();

}  // namespace xformer::cli
