// What --help looks like: CLI11's order, its texts wrapped to the window.
#include <fmt/format.h>
#include <unistd.h>

#include <limits>

#include "cli/command.h"
#include "cli/printed.h"
#include "core/names.h"
#include "core/text.h"

namespace xformer::cli {
namespace {

constexpr size_t kHelpColumn = 26, kIndent = 2, kLongestChoices = 36;

class WrappedHelp : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const std::string name = make_option_name(option, is_positional), type = option->get_type_name();
    std::string kind = make_option_opts(option), text = make_option_desc(option);
    if (const size_t at = kind.find(type); type.size() > kLongestChoices && at != std::string::npos) {
      // Too many words for the left side (words() below).
      kind.replace(at, type.size(), "NAME");
      text += ": ";
      for (const char letter : type) text += letter == '|' ? std::string(", ") : std::string(1, letter);
    }
    return entry(name + kind, text);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_display_name(true), command->get_description());
  }
  std::string make_description(const CLI::App* app) const override { return paragraph(app->get_description()); }
  std::string make_footer(const CLI::App* app) const override { return paragraph(app->get_footer()); }

 private:
  // In a pipe lines are as long as they come.
  [[nodiscard]] static size_t width() {
    const size_t columns = text_width(STDOUT_FILENO);
    return columns > 0 ? columns : std::numeric_limits<size_t>::max();
  }

  static std::string paragraph(const std::string& text) {
    if (text.empty()) return "";
    return fmt::format("{}\n", fmt::join(wrapped(text, width()), "\n"));
  }

  static std::string entry(const std::string& name, const std::string& text) {
    std::string result = std::string(kIndent, ' ') + name;
    size_t at = columns_of(result);
    bool first = true;
    for (const std::string& line : wrapped(text, width() - kHelpColumn)) {
      if (line.empty()) break;
      const bool below = !first || at + kIndent > kHelpColumn;
      if (below) result += "\n";
      result += std::string(kHelpColumn - (below ? 0 : at), ' ') + line;
      first = false;
    }
    return result + "\n";
  }
};

}  // namespace

void set_formatter(CLI::App& program) { program.formatter(std::make_shared<WrappedHelp>()); }

CLI::Option* words(CLI::Option* option, const std::vector<std::string>& known) {
  std::string kind = option->get_lnames().empty() ? "word" : option->get_lnames().front();
  option->type_name(fmt::format("{}", fmt::join(known, "|")));
  return option->check(CLI::Validator(
      [kind, known](std::string& text) -> std::string {
        const std::string wanted = canonical_name(text);
        for (const std::string& word : known)
          if (canonical_name(word) == wanted) {
            text = word;
            return "";
          }
        return unknown_name_message(kind, text, known);
      },
      ""));
}

}  // namespace xformer::cli
