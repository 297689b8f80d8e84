// The verbs that compute.
#pragma once

#include "cli/command.h"

namespace xformer::engine {

using namespace cli;  // a verb speaks through its tables, progress and words

std::function<int()> add_train(CLI::App& program);
std::function<int()> add_sweep(CLI::App& program);
std::function<int()> add_validate(CLI::App& program);
std::function<int()> add_eval(CLI::App& program);
std::function<int()> add_forward(CLI::App& program);
std::function<int()> add_generate(CLI::App& program);
std::function<int()> add_bench(CLI::App& program);
std::function<int()> add_profile(CLI::App& program);
std::function<int()> add_span(CLI::App& program);
std::function<int()> add_analyse(CLI::App& program);
std::function<int()> add_data(CLI::App& program);
std::function<int()> add_selftest(CLI::App& program);
std::function<int()> add_check(CLI::App& program);
std::function<int()> add_export_pytorch(CLI::App& program);

// UserError when these words of `xformer bench` ask for something wrong; nothing is measured.
void check_bench(const std::vector<std::string>& words);

}  // namespace xformer::engine
