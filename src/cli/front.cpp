#include "cli/front.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "cli/completion.h"
#include "cli/run.h"
#include "core/error.h"
#include "core/json_file.h"

namespace xformer::cli {

namespace {

Path beside(const char* name) {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / name;
}

[[noreturn]] void hand_over(char** argv) {
  const Path engine = beside("xformer-engine");
  ::execv(engine.c_str(), argv);
  throw ResourceError(
      fmt::format("{} cannot be started: {}; scripts/setup builds it", engine.string(), std::strerror(errno)));
}

// `help` and `help train` are --help and train --help, `version` is --version.
std::vector<char*> as_options(int argc, char** argv) {
  static char help[] = "--help", version[] = "--version";
  std::vector<char*> words(argv, argv + argc);
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "version") words[1] = version;
  if (first == "help") {
    words.erase(words.begin() + 1);
    words.push_back(help);
  }
  words.push_back(nullptr);
  return words;
}

}  // namespace

int run_front(int argc, char** words) {
  std::vector<char*> given = as_options(argc, words);
  char** const argv = given.data();
  const auto read_catalogue = [] {
    const Path path = beside("catalogue.json");
    XF_CHECK(std::filesystem::exists(path), ResourceError, "{} is missing; scripts/setup builds it", path.string());
    return read_json_file(path);
  };
  if (argc > 1 && std::string_view(argv[1]) == "complete") {  // asked by a shell, at every press of its key
    try {
      const Offers offers = complete(read_catalogue(), {argv + 2, argv + argc});
      for (const auto& [word, help] : offers.words) fmt::print("{}\t{}\n", word, help);
      if (offers.files) fmt::print(":files\n");
      return 0;
    } catch (const Error& error) {
      return static_cast<int>(error.code());
    }
  }
  const Catalogue catalogue{read_catalogue, [argv](const std::string&) -> Json { hand_over(argv); }};
  const ExperimentReader experiments = [argv](const Path&, const Path&) -> ReportedExperiment { hand_over(argv); };
  const std::map<std::string, CommandSetup> own{
      {"list", [&](CLI::App& program) { return add_list(program, catalogue); }},
      {"describe", [&](CLI::App& program) { return add_describe(program, catalogue); }},
      {"new", [&](CLI::App& program) { return add_new(program, catalogue); }},
      {"export-template", add_export_template},
      {"completion", add_completion},
      {"report", [&](CLI::App& program) { return add_report(program, experiments); }},
      {"plot", [&](CLI::App& program) { return add_plot(program, experiments); }},
      {"smat", add_smat}};
  return run(argc, argv, [&] {
    const std::string first = argc > 1 ? argv[1] : "--help";
    if (const auto verb = own.find(first); verb != own.end()) return std::vector<CommandSetup>{verb->second};
    if (first != "--help" && first != "-h" && first != "--version") hand_over(argv);
    // The help text names every verb, whoever answers it.
    std::vector<CommandSetup> named;
    const Json known = read_catalogue();
    for (const Json& verb : known["verbs"])
      named.push_back(
          [name = verb["name"].get<std::string>(), help = verb["help"].get<std::string>()](CLI::App& program) {
            program.add_subcommand(name, help);
            return [] { return 0; };
          });
    return named;
  });
}

}  // namespace xformer::cli
