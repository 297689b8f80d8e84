// `xformer describe NAME`: whatever has a name, in words, with its options.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "cli/command.h"
#include "cli/printed.h"
#include "core/error.h"
#include "core/names.h"
#include "core/option_names.h"
#include "core/text.h"
#include "reporting/describe_options.h"

namespace xformer::cli {

namespace {

constexpr size_t kTextColumn = 14;    // where facts begin, behind their names
constexpr size_t kPipeColumns = 110;  // of the table of options, where nobody says how wide it may be

struct DescribeArguments {
  std::string name;
  bool json = false, markdown = false;
};

const std::vector<const char*>& kinds() {
  static const std::vector<const char*> kKinds{"tasks", "models", "groups", "attentions", "whole_models", "terms"};
  return kKinds;
}

bool is_called(const Json& entry, const std::string& wanted) {
  if (canonical_name(entry["name"].get<std::string>()) == wanted) return true;
  for (const Json& alias : entry["aliases"])
    if (alias.get<std::string>() == wanted) return true;
  return false;
}

Json find(const std::string& name, const Catalogue& catalogue) {
  const std::string wanted = canonical_name(name);
  const Json known = catalogue.read();
  for (const char* kind : kinds())
    for (const Json& entry : known[kind])
      if (is_called(entry, wanted)) return entry;
  std::vector<std::string> names;
  for (const char* kind : kinds())
    for (const Json& entry : known[kind]) {
      names.push_back(entry["name"]);
      for (const Json& alias : entry["aliases"]) names.push_back(alias);
    }
  try {
    return catalogue.other(name);
  } catch (const UserError&) {
    // A decorator or a family in front says better what is wrong.
    if (name.find('/') != std::string::npos || (wanted.starts_with("mrs-") && nearest_name(name, names).empty())) throw;
    throw UserError(unknown_name_message("name", name, names));
  }
}

std::string fact_text(const Json& facts, const std::string& key, const Json& value) {
  std::vector<std::string> parts;
  if (key == "class") return fmt::format("{}, {}", value_word(value), value_word(facts["class_meaning"]));
  if (key == "traits") {
    for (const auto& [trait, meaning] : facts["trait_meanings"].items())
      parts.push_back(trait + " (" + value_word(meaning) + ")");
  } else if (value.is_array()) {
    for (const Json& one : value) parts.push_back(value_word(one));
  } else {
    return value_word(value);
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

void print_heading(const std::string& text, bool markdown) {
  fmt::print("\n{}{}{}\n", markdown ? "### " : "", text, markdown ? "\n" : "");
}

// Settings of protocols side by side (or of one protocol, by task): what differs as a table, what all share below.
void print_settings(const Json& sets, bool of_tasks, bool markdown) {
  std::vector<std::string> keys;
  for (const Json& set : sets)
    for (const auto& [key, value] : set["values"].items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  std::vector<std::string> head{"option"};
  for (const Json& set : sets) head.push_back(value_word(set["name"]));
  std::vector<std::vector<std::string>> differing, shared;
  for (const std::string& key : keys) {
    std::vector<std::string> row{key};
    for (const Json& set : sets) row.push_back(set["values"].contains(key) ? value_word(set["values"][key]) : "-");
    const bool same = std::adjacent_find(row.begin() + 1, row.end(), std::not_equal_to<>()) == row.end();
    if (same) row.resize(2);
    (same ? shared : differing).push_back(row);
  }
  const char* const them = of_tasks ? "tasks" : "protocols";
  if (!differing.empty()) {
    print_heading(fmt::format("where the {} differ (-: the default, below)", them), markdown);
    print_table(head, differing, markdown);
  }
  if (shared.empty()) return;
  print_heading(sets.size() == 1 ? "its settings" : fmt::format("what all its {} have", them), markdown);
  print_table({"option", "value"}, shared, markdown);
}

}  // namespace

void print_description(const Json& facts, bool markdown) {
  const std::string name = value_word(facts["name"]), title = value_word(facts["title"]);
  if (markdown) fmt::print("## `{}`: {}\n\n", name, title);
  else print_wrapped(name + ": " + title);
  static const std::set<std::string> kElsewhere{"name",          "title",          "options",      "protocols",
                                                "class_meaning", "trait_meanings", "task_defaults"};
  for (const auto& [key, value] : facts.items()) {
    if (kElsewhere.contains(key) || value.empty()) continue;
    const std::string text = fact_text(facts, key, value);
    if (text.empty()) continue;
    if (markdown) fmt::print("- {}: {}\n", key, text);
    else print_labelled("  " + key + (key.size() + 2 < kTextColumn ? "" : " "), text, kTextColumn);
  }
  if (facts.contains("protocols") && !facts["protocols"].empty()) {
    const bool of_tasks = facts["kind"] == "protocol";
    print_heading(of_tasks ? "tasks that have it" : "protocols (the first is the default)", markdown);
    for (const Json& protocol : facts["protocols"]) {
      const std::string called = value_word(protocol["name"]), summary = value_word(protocol["summary"]);
      if (markdown) fmt::print("- {}: {}\n", called, summary);
      else print_labelled("  " + called + ": ", summary, std::max(kTextColumn, called.size() + 4));
    }
    print_settings(facts["protocols"], of_tasks, markdown);
  }
  if (const Json defaults = facts.value("task_defaults", Json::array()); !defaults.empty()) {
    print_heading("defaults that differ by task", markdown);
    std::vector<std::vector<std::string>> rows;
    for (const Json& one : defaults)
      rows.push_back({value_word(one["option"]), value_word(one["value"]), fact_text(facts, "tasks", one["tasks"]),
                      value_word(one["source"])});
    print_table({"option", "default", "tasks", "source"}, rows, markdown);
  }
  if (!facts.contains("options")) return;
  const Json& options = facts["options"];
  if (options.empty() && !markdown) fmt::print("  {:<{}}none\n", "options", kTextColumn - 2);
  if (options.empty()) return;
  print_heading("options", markdown);
  const size_t width = text_width();
  fmt::print("{}", markdown
                       ? reporting::options_table_markdown(options)
                       : reporting::options_table_text(options, static_cast<int>(width > 0 ? width : kPipeColumns)));
}

std::function<int()> add_describe(CLI::App& program, const Catalogue& catalogue) {
  const auto arguments = std::make_shared<DescribeArguments>();
  CLI::App& command = *program.add_subcommand(
      "describe", "whatever has a name: an attention, model, task, protocol, schedule, metric, `training`, `eval`");
  command
      .add_option("NAME", arguments->name,
                  "a name from `xformer list`, or a class, cost, trait or quantity that a description names (FP, "
                  "causal_ok, smat)")
      ->required();
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
