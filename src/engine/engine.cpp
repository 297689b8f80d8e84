#include "engine/engine.h"

#include <fmt/format.h>

#include "cli/run.h"
#include "engine/catalogue.h"
#include "engine/commands.h"
#include "engine/experiment_records.h"
#include "tensor/memory.h"

namespace xformer::engine {

int run_engine(int argc, char** argv) {
  install_caching_allocator();
  const CLI::App* whole = nullptr;
  const Catalogue catalogue{[&] { return catalogue_json(*whole); },
                            [](const std::string& name) {
                              return name.find('/') != std::string::npos ? task_json(data::find_dataset(name))
                                                                         : attention_json(attention::resolve(name));
                            }};
  const auto report = [](CLI::App& program) { return add_report(program, reported_experiment); };
  const auto plot = [](CLI::App& program) { return add_plot(program, reported_experiment); };
  const auto list = [&](CLI::App& program) { return add_list(program, catalogue); };
  const auto describe = [&](CLI::App& program) { return add_describe(program, catalogue); };
  const auto completion = [&](CLI::App& program) { return add_completion(program, catalogue); };
  // Hidden: the build asks for it once.
  const auto write_catalogue = [&](CLI::App& program) -> std::function<int()> {
    whole = &program;
    program.add_subcommand("catalogue", "what the program knows by name, as JSON")->group("");
    return [&] {
      fmt::print("{}\n", catalogue.read().dump());
      return 0;
    };
  };
  return run(argc, argv, [&]() -> std::vector<CommandSetup> {
    return {add_train,   add_sweep, add_validate, add_eval,     add_forward, add_bench,
            add_profile, report,    add_smat,     plot,         add_span,    add_analyse,
            list,        describe,  add_data,     add_selftest, completion,  write_catalogue};
  });
}

}  // namespace xformer::engine
