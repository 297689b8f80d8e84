// `xformer describe NAME`: one attention, model family, task or option group, with its options.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "cli/command.h"
#include "cli/progress.h"
#include "core/error.h"
#include "core/names.h"
#include "reporting/describe_options.h"

namespace xformer::cli {

namespace {

struct DescribeArguments {
  std::string name;
  bool json = false, markdown = false;
};

bool is_called(const Json& entry, const std::string& wanted) {
  if (canonical_name(entry["name"].get<std::string>()) == wanted) return true;
  for (const Json& alias : entry["aliases"])
    if (alias.get<std::string>() == wanted) return true;
  return false;
}

Json find(const std::string& name, const Catalogue& catalogue) {
  const std::string wanted = canonical_name(name);
  const Json known = catalogue.read();
  for (const char* kind : {"tasks", "models", "groups", "attentions"})
    for (const Json& entry : known[kind])
      if (is_called(entry, wanted)) return entry;
  const auto names_of = [&](const char* kind) {
    std::vector<std::string> names;
    for (const Json& entry : known[kind]) {
      names.push_back(entry["name"]);
      for (const Json& alias : entry["aliases"]) names.push_back(alias);
    }
    return names;
  };
  try {
    return catalogue.other(name);
  } catch (const UserError&) {
    // A name that is no attention's near miss may be near another kind of name.
    if (!nearest_name(name, names_of("attentions")).empty() || wanted.starts_with("mrs-") ||
        name.find('/') != std::string::npos)
      throw;
    std::vector<std::string> names;
    for (const char* kind : {"attentions", "models", "tasks", "groups"})
      for (std::string& one : names_of(kind)) names.push_back(std::move(one));
    throw UserError(unknown_name_message("name", name, names));
  }
}

}  // namespace

void print_description(const Json& facts, bool markdown) {
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
  const Json& options = facts["options"];
  if (options.empty()) return;
  const TerminalOptions terminal = terminal_options(STDOUT_FILENO);
  fmt::print("\n{}options{}\n", markdown ? "### " : "", markdown ? "\n" : "");
  fmt::print("{}", markdown ? reporting::options_table_markdown(options)
                            : reporting::options_table_text(options, terminal.is_terminal ? terminal.width : 110));
}

std::function<int()> add_describe(CLI::App& program, const Catalogue& catalogue) {
  const auto arguments = std::make_shared<DescribeArguments>();
  CLI::App& command =
      *program.add_subcommand("describe", "one attention, model family, task, `training` or `eval`, with its options");
  command.add_option("NAME", arguments->name, "a name from `xformer list`")->required();
  command.add_flag("--json", arguments->json, "print JSON");
  command.add_flag("--markdown", arguments->markdown, "print Markdown");
  return [arguments, catalogue] {
    const Json facts = find(arguments->name, catalogue);
    if (arguments->json) fmt::print("{}\n", facts.dump(2));
    else print_description(facts, arguments->markdown);
    return 0;
  };
}

}  // namespace xformer::cli
