#include "cli/printed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "cli/progress.h"
#include "core/text.h"
#include "reporting/markdown_text.h"
#include "reporting/table.h"

namespace xformer::cli {
namespace {

bool is_number(const std::string& text) {
  return text.empty() || text == "-" || text == "?" ||
         text.find_first_of("0123456789") == text.find_first_not_of("+-≈~<>");
}

}  // namespace

void note(std::string_view line) { std::fputs(fmt::format("{}\n", line).c_str(), stderr); }

size_t text_width(int descriptor) {
  const TerminalOptions terminal = terminal_options(descriptor);
  return terminal.is_terminal ? static_cast<size_t>(std::max(terminal.width, 20)) : 0;
}

void print_wrapped(const std::string& text, size_t indent) { print_labelled("", text, indent); }

void print_labelled(const std::string& label, const std::string& text, size_t column) {
  const size_t width = text_width();
  const auto lines = wrapped(text, width > column ? width - column
                                   : width > 0    ? width
                                                  : std::numeric_limits<size_t>::max());
  for (size_t i = 0; i < lines.size(); ++i) fmt::print("{:<{}}{}\n", i == 0 ? label : "", column, lines[i]);
}

void print_markdown(const std::string& text) {
  const size_t width = text_width();
  fmt::print("{}", width == 0 ? text : reporting::markdown_as_text(text, width));
}

void print_table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows,
                 bool markdown) {
  reporting::Table table;
  for (size_t i = 0; i < head.size(); ++i) {
    const bool numbers = std::all_of(rows.begin(), rows.end(), [&](const auto& row) { return is_number(row[i]); });
    table.columns.push_back({.label = head[i], .numbers = numbers && !markdown});
  }
  for (const auto& row : rows) {
    table.rows.emplace_back();
    for (const std::string& cell : row) table.rows.back().push_back({cell});
  }
  fmt::print("{}", markdown ? as_markdown(table) : as_text(table, text_width()));
}

}  // namespace xformer::cli
