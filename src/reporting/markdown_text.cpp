#include "reporting/markdown_text.h"

#include "core/text.h"
#include "reporting/table.h"

namespace xformer::reporting {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// "**81.5**" -> "81.5 *", "`x`" -> "x", "<sup>a</sup>" -> "[a]", "[text](link)" -> "text".
std::string plain(std::string text) {
  for (size_t start = text.find("**"); start != std::string::npos; start = text.find("**")) {
    const size_t end = text.find("**", start + 2);
    if (end == std::string::npos) break;
    text.replace(end, 2, " *");
    text.erase(start, 2);
  }
  replace_all(text, "<sup>", "[");
  replace_all(text, "</sup>", "]");
  replace_all(text, "`", "");
  for (size_t middle = text.find("]("); middle != std::string::npos; middle = text.find("](")) {
    const size_t start = text.rfind('[', middle), end = text.find(')', middle);
    if (start == std::string::npos || end == std::string::npos) break;
    text.erase(middle, end + 1 - middle);
    text.erase(start, 1);
  }
  return text;
}

// The cells of "| a | b\|c |".
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  std::string cell;
  for (size_t i = 1; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size() && line[i + 1] == '|') cell += line[++i];
    else if (line[i] == '|') cells.push_back(plain(std::string(trim(std::exchange(cell, "")))));
    else cell += line[i];
  }
  return cells;
}

Table table_of(const std::vector<std::string_view>& lines) {
  Table table;
  const std::vector<std::string> rule = cells_of(lines[1]);
  for (const std::string& label : cells_of(lines[0])) {
    const size_t place = table.columns.size();
    table.columns.push_back({.label = label, .numbers = place < rule.size() && rule[place].ends_with(':')});
  }
  for (size_t i = 2; i < lines.size(); ++i) {
    std::vector<TableCell>& row = table.rows.emplace_back();
    for (const std::string& cell : cells_of(lines[i])) row.push_back({cell});
    row.resize(table.columns.size());
  }
  return table;
}

// "- item" and "[a] note" hang.
std::string paragraph(const std::string& line, size_t width) {
  const size_t hang = line.starts_with("- ") ? 2 : line.starts_with("[") ? line.find(']') + 2 : 0;
  std::string text;
  for (const std::string& part : wrapped(line.substr(hang), width - std::min(width - 1, hang)))
    text += (text.empty() ? line.substr(0, hang) : std::string(hang, ' ')) + part + "\n";
  return text;
}

}  // namespace

std::string markdown_as_text(const std::string& markdown, size_t width) {
  const std::vector<std::string_view> lines = split(markdown, '\n');
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with('|') && i + 1 < lines.size() && lines[i + 1].starts_with("| -")) {
      std::vector<std::string_view> table;
      for (; i < lines.size() && lines[i].starts_with('|'); ++i) table.push_back(lines[i]);
      --i;
      text += as_text(table_of(table), width);
    } else if (lines[i].empty()) {
      if (i + 1 < lines.size()) text += '\n';
    } else {
      const size_t title = lines[i].find_first_not_of('#');
      text += paragraph(
          plain(std::string(title > 0 && title != std::string::npos ? trim(lines[i].substr(title)) : lines[i])), width);
    }
  }
  return text;
}

}  // namespace xformer::reporting
