// The option tree of the command line, as JSON.
#include <CLI/CLI.hpp>

#include <algorithm>

#include "cli/completion.h"
#include "core/text.h"

namespace xformer::cli {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Json option_json(const CLI::Option& option) {
  Json flags = Json::array(), choices = Json::array();
  for (const std::string& name : option.get_snames()) flags.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flags.push_back("--" + name);
  // One of some words is declared so (words() in command.h): its type lists them.
  if (const std::string type = option.get_type_name(); type.find('|') != std::string::npos)
    for (const std::string_view choice : split(type, '|')) choices.push_back(std::string(choice));
  return {{"flags", flags},
          {"name", option.get_positional() ? option.get_name(true) : option.get_type_name()},
          {"help", first_line(option.get_description())},
          {"takes", option.get_items_expected_max() > 0},
          {"may_lack", option.get_items_expected_min() == 0},
          {"many", option.get_items_expected_max() > 1},
          {"choices", choices}};
}

void add_options(const CLI::App& app, Json& options) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    const Json json = option_json(*option);
    // A group of options inherits a --help of its own.
    const bool known = std::any_of(options.begin(), options.end(), [&](const Json& other) {
      return !other["flags"].empty() && other["flags"] == json["flags"];
    });
    if (!known) options.push_back(json);
  }
}

}  // namespace

Json command_tree(const CLI::App& app) {
  Json result = Json::array();
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); })) {
    if (sub->get_name().empty()) continue;  // a group of options, below
    Json options = Json::array();
    add_options(*sub, options);
    for (const CLI::App* group : sub->get_subcommands([](const CLI::App* one) { return one->get_name().empty(); }))
      add_options(*group, options);
    result.push_back({{"name", sub->get_name()},
                      {"help", first_line(sub->get_description())},
                      {"options", options},
                      {"commands", command_tree(*sub)}});
  }
  return result;
}

}  // namespace xformer::cli
