// `xformer list`: what there is; also the tables of README.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/printed.h"
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

// How long a line may be decides what is in it: a window or README get short citations, programs in a pipe all words.
struct Form {
  bool markdown = false, brief = false;
  [[nodiscard]] std::string code(const std::string& name) const { return markdown ? "`" + name + "`" : name; }
  [[nodiscard]] std::string citation(const std::string& paper) const { return brief ? short_citation(paper) : paper; }
};

void print_attentions(const Json& attentions, const Form& form) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& attention : attentions) {
    if (attention.contains("decorator")) continue;  // a column says which there are
    const std::string name = text_of(attention, "name"), around = "mrs-" + name;
    const std::string mrs = attention["role"] != "core" ? "no" : form.brief ? "yes" : around;
    rows.push_back({form.code(name), text_of(attention, "title"), text_of(attention, "class"),
                    text_of(attention, "complexity"), attention["traits"]["causal_ok"] ? "yes" : "no", mrs,
                    form.citation(text_of(attention, "paper"))});
  }
  const std::string mrs = form.brief ? form.code("mrs-") : "multi-resolution";
  print_table({"name", "attention", "class", "growth", "causal", mrs, "paper"}, rows, form.markdown);
  if (form.markdown) return;
  fmt::print("\n");
  print_wrapped(
      "class: what it saves by; growth: of the time with the length n (`xformer describe FP`, `describe 'n log n'` and "
      "so on tell); mrs- yes: mrs-NAME works, too.");
}

// Its own name and its aliases.
std::string names_of(const Json& model, const Form& form) {
  std::string names = form.code(text_of(model, "name"));
  for (const Json& alias : model["aliases"]) names += ", " + form.code(alias.get<std::string>());
  return names;
}

void print_models(const Json& models, const Form& form) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& model : models) rows.push_back({names_of(model, form), text_of(model, "summary")});
  print_table({"family", "what it is"}, rows, form.markdown);
  if (form.markdown) return;
  fmt::print("\n");
  print_wrapped(
      "--model takes an attention (in the task's own family), FAMILY/ATTENTION, a family alone (with softmax), or mrs- "
      "and a family, e.g. mrs-vit, mrs-deit, mrs-ft (with multi-resolution heads).");
}

void print_tasks(const Json& tasks, const Form& form) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& task : tasks) {
    std::vector<std::string>& row = rows.emplace_back();
    row = {form.code(text_of(task, "name")), text_of(task, "title"), text_of(task, "predicts")};
    if (!form.markdown) {
      std::vector<std::string> protocols;
      for (const Json& protocol : task["protocols"]) protocols.push_back(text_of(protocol, "name"));
      row.push_back(fmt::format("{}", fmt::join(protocols, ", ")));
    }
    row.push_back(form.citation(text_of(task, "paper")));
  }
  if (form.markdown) print_table({"task", "title", "predicts", "paper"}, rows, true);
  else print_table({"task", "title", "predicts", "protocols (first is the default)", "paper"}, rows, false);
}

int list(const ListArguments& arguments, const Catalogue& catalogue) {
  const std::string what = canonical_name(arguments.what);
  const bool all = what == "all";
  const Json known = catalogue.read();
  if (arguments.json) {
    Json shown = Json::object();
    for (const char* kind : {"attentions", "models", "tasks"}) shown[kind] = known[kind];
    if (!all) shown = known[what];
    fmt::print("{}\n", shown.dump(2));
    return 0;
  }
  const Form form{arguments.markdown, arguments.markdown || text_width() > 0};
  if (all || what == "attentions") print_attentions(known["attentions"], form);
  if (all) fmt::print("\n");
  if (all || what == "models") print_models(known["models"], form);
  if (all) fmt::print("\n");
  if (all || what == "tasks") print_tasks(known["tasks"], form);
  if (all && !arguments.markdown) fmt::print("\n`xformer describe NAME` shows options, defaults and limits.\n");
  return 0;
}

}  // namespace

std::function<int()> add_list(CLI::App& program, const Catalogue& catalogue) {
  const auto arguments = std::make_shared<ListArguments>();
  CLI::App& command = *program.add_subcommand("list", "what there is: attentions, models, tasks");
  words(command.add_option("WHAT", arguments->what, "which of them"), {"all", "attentions", "models", "tasks"})
      ->capture_default_str();
  command.add_flag("--json", arguments->json, "print JSON");
  command.add_flag("--markdown", arguments->markdown, "print the tables of README, with short citations");
  return [arguments, catalogue] { return list(*arguments, catalogue); };
}

}  // namespace xformer::cli
