// `xformer list`: what there is, from the registries; also the tables of README.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/describe.h"
#include "cli/print_table.h"
#include "core/names.h"
#include "data/datasets.h"

namespace xformer::cli {

namespace {

struct ListArguments {
  std::string what = "all";
  bool json = false, markdown = false;
};

void print_attentions(bool markdown) {
  std::vector<std::vector<std::string>> rows;
  for (const attention::Descriptor& variant : attention::all_variants().all()) {
    const std::string name = markdown ? "`" + variant.name + "`" : variant.name;
    const std::string mrs =
        variant.build_core ? (markdown ? "`mrs-" + variant.name + "`" : "mrs-" + variant.name) : "no";
    rows.push_back({name, variant.title, variant.method_class, attention::complexity_name(variant.complexity),
                    variant.traits.causal_ok ? "yes" : "no", mrs, variant.paper});
  }
  print_table({"name", "attention", "class", "growth", "causal", "multi-resolution", "paper"}, rows, markdown);
}

void print_models(bool markdown) {
  std::vector<std::vector<std::string>> rows;
  for (const models::FamilyDescriptor& family : models::all_families().all())
    rows.push_back({markdown ? "`" + family.name + "`" : family.name, family.title, family.summary});
  print_table({"family", "title", "what it is"}, rows, markdown);
}

void print_tasks(bool markdown) {
  std::vector<std::vector<std::string>> rows;
  for (const data::DatasetDescriptor& task : data::datasets().all()) {
    std::vector<std::string> protocols;
    for (const plan::Protocol& protocol : plan::protocols_of(task.name)) protocols.push_back(protocol.name);
    rows.push_back({markdown ? "`" + task.name + "`" : task.name, task.title,
                    task_json(task)["predicts"].get<std::string>(), fmt::format("{}", fmt::join(protocols, ", ")),
                    task.paper});
  }
  print_table({"task", "title", "predicts", "protocols (first is the default)", "paper"}, rows, markdown);
}

int list(const ListArguments& arguments) {
  const std::string what = canonical_name(arguments.what);
  static_cast<void>(choice("", "list", what, {"all", "attentions", "models", "tasks"}));
  if (arguments.json) {
    if (what == "all")
      fmt::print("{}\n",
                 Json{{"attentions", attentions_json()}, {"models", models_json()}, {"tasks", tasks_json()}}.dump(2));
    else
      fmt::print("{}\n", (what == "attentions" ? attentions_json()
                          : what == "models"   ? models_json()
                                               : tasks_json())
                             .dump(2));
    return 0;
  }
  const bool all = what == "all";
  if (all || what == "attentions") print_attentions(arguments.markdown);
  if (all) fmt::print("\n");
  if (all || what == "models") print_models(arguments.markdown);
  if (all) fmt::print("\n");
  if (all || what == "tasks") print_tasks(arguments.markdown);
  if (all && !arguments.markdown) fmt::print("\n`xformer describe NAME` shows options, defaults and limits.\n");
  return 0;
}

}  // namespace

std::function<int()> add_list(CLI::App& program) {
  const auto arguments = std::make_shared<ListArguments>();
  CLI::App& command = *program.add_subcommand("list", "what there is: attentions, models, tasks");
  command.add_option("WHAT", arguments->what, "attentions, models, tasks or all")->capture_default_str();
  command.add_flag("--json", arguments->json, "print JSON");
  command.add_flag("--markdown", arguments->markdown, "print Markdown tables");
  return [arguments] { return list(*arguments); };
}

}  // namespace xformer::cli
