#include "engine/engine.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <stdexcept>

#include "attention/own_file.h"
#include "cli/run.h"
#include "engine/catalogue.h"
#include "engine/commands.h"
#include "engine/experiment_records.h"
#include "models/model.h"
#include "tensor/memory.h"
#include "tensor/torch_errors.h"

namespace xformer::engine {

namespace {

// What LibTorch throws, and who asks for more than any memory has, in our words, whichever verb it is.
CommandSetup translated(const CommandSetup& setup) {
  return [setup](CLI::App& program) -> std::function<int()> {
    return [action = setup(program)] {
      try {
        return action();
      } catch (const c10::Error&) {
        rethrow_translated();
      } catch (const std::length_error&) {  // a vector that no memory could hold
        rethrow_translated();
      }
    };
  };
}

}  // namespace

int run_engine(int argc, char** argv) {
  install_caching_allocator();
  const CLI::App* whole = nullptr;
  const Catalogue catalogue{[&] { return catalogue_json(*whole); },
                            [](const std::string& name) {
                              const size_t slash = name.substr(0, attention::own_file_at(name)).find('/');
                              if (slash == std::string::npos) return attention_json(attention::resolve(name));
                              const bool model = models::all_families().find(name.substr(0, slash)) != nullptr;
                              return model ? words_json(name) : task_json(data::find_dataset(name));
                            }};
  const auto report = [](CLI::App& program) { return add_report(program, reported_experiment); };
  const auto plot = [](CLI::App& program) { return add_plot(program, reported_experiment); };
  const auto list = [&](CLI::App& program) { return add_list(program, catalogue); };
  const auto describe = [&](CLI::App& program) { return add_describe(program, catalogue); };
  const auto make_new = [&](CLI::App& program) { return add_new(program, catalogue); };
  // Hidden: the build asks for it once.
  const auto write_catalogue = [&](CLI::App& program) -> std::function<int()> {
    whole = &program;
    program.add_subcommand("catalogue", "what the program knows by name, as JSON")->group("");
    return [&] {
      fmt::print("{}\n", catalogue.read().dump());
      return 0;
    };
  };
  // The program in front makes options of these two; here they are for the list of verbs.
  const auto help = [](CLI::App& program) -> std::function<int()> {
    static_cast<void>(program.add_subcommand("help", "how to use the program, or one of its commands")
                          ->add_option("COMMAND", "e.g. train, or data fetch")
                          ->expected(-1));
    return [] { return 0; };
  };
  const auto version = [](CLI::App& program) -> std::function<int()> {
    static_cast<void>(program.add_subcommand("version", "which version this is, and what it was built with"));
    return [] { return 0; };
  };
  return run(argc, argv, [&] {
    std::vector<CommandSetup> setups{add_train,
                                     add_sweep,
                                     add_validate,
                                     add_eval,
                                     add_forward,
                                     add_generate,
                                     add_export_pytorch,
                                     add_bench,
                                     add_profile,
                                     report,
                                     add_smat,
                                     plot,
                                     add_span,
                                     add_analyse,
                                     list,
                                     describe,
                                     add_data,
                                     add_selftest,
                                     add_export_template,
                                     add_check,
                                     make_new,
                                     add_completion,
                                     help,
                                     version,
                                     write_catalogue};
    for (CommandSetup& setup : setups) setup = translated(setup);
    return setups;
  });
}

}  // namespace xformer::engine
