// `xformer describe NAME`: one attention, model family, task or option group, with its options.
#include <fmt/format.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/describe.h"
#include "cli/progress.h"
#include "core/names.h"
#include "reporting/describe_options.h"

namespace xformer::cli {

namespace {

struct DescribeArguments {
  std::string name;
  bool json = false, markdown = false;
};

struct Section {
  Json facts;
  std::string prefix;
  std::vector<OptionInfo> options;
};

std::vector<std::string> describable_names() {
  std::vector<std::string> names = attention::all_names();
  for (const auto& list :
       {models::all_families().names(), data::datasets().names(), std::vector<std::string>{"training", "eval"}})
    names.insert(names.end(), list.begin(), list.end());
  return names;
}

Section find(const std::string& name) {
  if (const auto* task = data::datasets().find(name)) return {task_json(*task), "data.", task->options};
  if (name.find('/') != std::string::npos) {
    const data::DatasetDescriptor& member = data::find_dataset(name);
    return {task_json(member), "data.", member.options};
  }
  if (const auto* family = models::all_families().find(name)) return {model_json(*family), "model.", family->options};
  const std::string wanted = canonical_name(name);
  if (wanted == "training" || wanted == "eval") {
    const auto& options = wanted == "training" ? plan::training_schema().options() : plan::eval_schema().options();
    return {Json{{"name", wanted},
                 {"kind", "options"},
                 {"title", wanted == "training" ? "Training" : "Evaluation"},
                 {"options", reporting::options_json(options, wanted + ".")}},
            wanted + ".", options};
  }
  const std::vector<std::string> names = describable_names();
  try {
    const attention::Resolved attention = attention::resolve(name);
    return {attention_json(attention), "attention.", attention.options()};
  } catch (const UserError&) {
    // A name that is no attention's near miss may be near another kind of name.
    if (!nearest_name(name, attention::all_names()).empty() || wanted.starts_with("mrs-")) throw;
    throw UserError(unknown_name_message("name", name, names));
  }
}

void print(const Section& section, bool markdown) {
  const Json& facts = section.facts;
  if (markdown) fmt::print("## `{}`: {}\n\n", facts["name"].get<std::string>(), facts["title"].get<std::string>());
  else fmt::print("{}: {}\n", facts["name"].get<std::string>(), facts["title"].get<std::string>());
  for (const auto& [key, value] : facts.items()) {
    if (key == "name" || key == "title" || key == "options" || key == "protocols" || value.empty()) continue;
    std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (key == "traits") {
      std::vector<std::string> held;
      for (const auto& [trait, holds] : value.items())
        if (holds) held.push_back(trait);
      text = fmt::format("{}", fmt::join(held, ", "));
    }
    fmt::print("{}{:<11}{}{}\n", markdown ? "- " : "  ", key, markdown ? ": " : " ", text);
  }
  if (facts.contains("protocols")) {
    fmt::print("\n{}protocols (the first is the default)\n", markdown ? "### " : "");
    for (const Json& protocol : facts["protocols"]) {
      fmt::print("{}{}: {}\n", markdown ? "- " : "  ", protocol["name"].get<std::string>(),
                 protocol["summary"].get<std::string>());
      if (markdown) continue;
      std::vector<std::string> values;
      for (const auto& [key, value] : protocol["values"].items())
        values.push_back(key + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
      fmt::print("      {}\n", fmt::join(values, " "));
    }
  }
  if (section.options.empty()) return;
  const TerminalOptions terminal = terminal_options(STDOUT_FILENO);
  fmt::print("\n{}options{}\n", markdown ? "### " : "", markdown ? "\n" : "");
  fmt::print("{}", markdown ? reporting::options_table_markdown(section.options, section.prefix)
                            : reporting::options_table_text(section.options, section.prefix,
                                                            terminal.is_terminal ? terminal.width : 110));
}

int describe(const DescribeArguments& arguments) {
  const Section section = find(arguments.name);
  if (arguments.json) fmt::print("{}\n", section.facts.dump(2));
  else print(section, arguments.markdown);
  return 0;
}

}  // namespace

int describe_name(const std::string& name) {
  print(find(name), /*markdown=*/false);
  return 0;
}

std::function<int()> add_describe(CLI::App& program) {
  const auto arguments = std::make_shared<DescribeArguments>();
  CLI::App& command =
      *program.add_subcommand("describe", "one attention, model family, task, `training` or `eval`, with its options");
  command.add_option("NAME", arguments->name, "a name from `xformer list`")->required();
  command.add_flag("--json", arguments->json, "print JSON");
  command.add_flag("--markdown", arguments->markdown, "print Markdown");
  return [arguments] { return describe(*arguments); };
}

}  // namespace xformer::cli
