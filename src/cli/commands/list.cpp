// `xformer list`: what there is; also the tables of README.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/print_table.h"
#include "core/error.h"
#include "core/names.h"
#include "core/text.h"

namespace xformer::cli {

namespace {

struct ListArguments {
  std::string what = "all";
  bool json = false, markdown = false;
};

std::string text_of(const Json& entry, const char* key) { return entry[key].get<std::string>(); }

// "Zaheer, Guruganesh, Dubey: Big Bird, 2020 (its code)" -> "Zaheer et al. 2020": what a narrow column can hold of the
// work that is named first. Authors end at ": ", or, where the text says "et al." or "A and B", at the first comma.
// What names no year stays as it is.
std::string short_citation(const std::string& paper) {
  const std::string_view work = std::string_view(paper).substr(0, std::min(paper.find("; "), paper.find(", as in")));
  std::string_view year;
  for (size_t i = 0; i + 4 <= work.size(); ++i)
    if (std::all_of(work.begin() + i, work.begin() + i + 4, [](char c) { return c >= '0' && c <= '9'; }))
      year = work.substr(i, 4);
  if (year.empty()) return paper;
  const std::string_view before = work.substr(0, work.find(": "));
  std::vector<std::string_view> authors = split(before, ',');
  for (std::string_view& author : authors) author = trim(author);
  const bool names = before.size() < work.size() &&
                     std::all_of(authors.begin(), authors.end(), [](auto a) { return a.find(' ') == a.npos; });
  std::string who(authors.front());
  if (names && authors.size() == 2) who += fmt::format(" and {}", authors.back());
  if (names && authors.size() > 2) who += " et al.";
  return who.ends_with(year) ? who : fmt::format("{} {}", who, year);
}

void print_attentions(const Json& attentions, bool markdown) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& attention : attentions) {
    if (attention.contains("decorator")) continue;  // a column says which there are
    const std::string name = text_of(attention, "name"), around = "mrs-" + name;
    const std::string mrs = attention["role"] != "core" ? "no" : markdown ? "yes" : around;
    rows.push_back({markdown ? "`" + name + "`" : name, text_of(attention, "title"), text_of(attention, "class"),
                    text_of(attention, "complexity"), attention["traits"]["causal_ok"] ? "yes" : "no", mrs,
                    markdown ? short_citation(text_of(attention, "paper")) : text_of(attention, "paper")});
  }
  print_table({"name", "attention", "class", "growth", "causal", markdown ? "`mrs-`" : "multi-resolution", "paper"},
              rows, markdown);
}

void print_models(const Json& models, bool markdown) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& model : models) {
    const std::string name = text_of(model, "name");
    if (markdown) rows.push_back({"`" + name + "`", text_of(model, "summary")});
    else rows.push_back({name, text_of(model, "title"), text_of(model, "summary")});
  }
  if (markdown) print_table({"family", "what it is"}, rows, markdown);
  else print_table({"family", "title", "what it is"}, rows, markdown);
}

void print_tasks(const Json& tasks, bool markdown) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& task : tasks) {
    const std::string name = text_of(task, "name"), title = text_of(task, "title"),
                      predicts = text_of(task, "predicts"), paper = text_of(task, "paper");
    if (markdown) {
      rows.push_back({"`" + name + "`", title, predicts, short_citation(paper)});
      continue;
    }
    std::vector<std::string> protocols;
    for (const Json& protocol : task["protocols"]) protocols.push_back(text_of(protocol, "name"));
    rows.push_back({name, title, predicts, fmt::format("{}", fmt::join(protocols, ", ")), paper});
  }
  if (markdown) print_table({"task", "title", "predicts", "paper"}, rows, markdown);
  else print_table({"task", "title", "predicts", "protocols (first is the default)", "paper"}, rows, markdown);
}

int list(const ListArguments& arguments, const Catalogue& catalogue) {
  const std::string what = canonical_name(arguments.what);
  static_cast<void>(choice("", "list", what, {"all", "attentions", "models", "tasks"}));
  const bool all = what == "all";
  const Json known = catalogue.read();
  if (arguments.json) {
    Json shown = Json::object();
    for (const char* kind : {"attentions", "models", "tasks"}) shown[kind] = known[kind];
    if (!all) shown = known[what];
    fmt::print("{}\n", shown.dump(2));
    return 0;
  }
  if (all || what == "attentions") print_attentions(known["attentions"], arguments.markdown);
  if (all) fmt::print("\n");
  if (all || what == "models") print_models(known["models"], arguments.markdown);
  if (all) fmt::print("\n");
  if (all || what == "tasks") print_tasks(known["tasks"], arguments.markdown);
  if (all && !arguments.markdown) fmt::print("\n`xformer describe NAME` shows options, defaults and limits.\n");
  return 0;
}

}  // namespace

std::function<int()> add_list(CLI::App& program, const Catalogue& catalogue) {
  const auto arguments = std::make_shared<ListArguments>();
  CLI::App& command = *program.add_subcommand("list", "what there is: attentions, models, tasks");
  command.add_option("WHAT", arguments->what, "attentions, models, tasks or all")->capture_default_str();
  command.add_flag("--json", arguments->json, "print JSON");
  command.add_flag("--markdown", arguments->markdown, "print the tables of README, with short citations");
  return [arguments, catalogue] { return list(*arguments, catalogue); };
}

}  // namespace xformer::cli
