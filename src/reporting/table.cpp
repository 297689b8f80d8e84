#include "reporting/table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace xformer::reporting {
namespace {

bool has_spread(const Table& table, size_t column) {
  return std::any_of(table.rows.begin(), table.rows.end(),
                     [&](const auto& row) { return !row[column].spread.empty(); });
}

// Bars would end a cell of Markdown.
std::string markdown_text(const std::string& text) {
  std::string result;
  for (const char letter : text) result += letter == '|' ? "\\|" : letter == '\n' ? " " : std::string(1, letter);
  return result;
}

std::string markdown_cell(const TableCell& cell, const std::vector<std::string>& notes) {
  std::string text = markdown_text(cell.text) + (cell.spread.empty() ? "" : " ± " + cell.spread);
  if (cell.strong) text = "**" + text + "**";
  const std::string marks = marks_of(cell, notes);
  return marks.empty() ? text : text + " <sup>" + marks + "</sup>";
}

}  // namespace

TableCell number_cell(double value, int decimals) {
  if (!std::isfinite(value)) return {"-"};
  return {fmt::format("{:.{}f}", value, decimals), value};
}
TableCell number_cell(const std::optional<double>& value, int decimals) {
  return value ? number_cell(*value, decimals) : TableCell{"-"};
}

std::string heading(const TableColumn& column) {
  const bool within = !column.group.empty() && column.group != column.label;
  return (within ? column.group + " " : "") + column.label + (column.unit.empty() ? "" : ", " + column.unit);
}

Table transposed(const Table& table) {
  Table result{.title = table.title, .name = table.name, .notes = table.notes};
  if (table.columns.empty()) return table;
  result.columns.push_back({.label = "", .numbers = false});
  for (const auto& row : table.rows) result.columns.push_back({.label = row.front().text});
  for (size_t column = 1; column < table.columns.size(); ++column) {
    std::vector<TableCell>& row = result.rows.emplace_back();
    row.push_back({heading(table.columns[column])});
    for (const auto& before : table.rows) row.push_back(before[column]);
  }
  return result;
}

std::vector<std::string> footnotes(const Table& table) {
  std::vector<std::string> result;
  for (const auto& row : table.rows)
    for (const TableCell& cell : row)
      for (const std::string& note : cell.notes)
        if (std::find(result.begin(), result.end(), note) == result.end()) result.push_back(note);
  return result;
}

std::string note_mark(size_t index) {
  constexpr size_t kLetters = 26;
  const std::string last(1, static_cast<char>('a' + index % kLetters));
  return index < kLetters ? last : note_mark(index / kLetters - 1) + last;
}

std::string marks_of(const TableCell& cell, const std::vector<std::string>& notes) {
  std::vector<std::string> marks;
  for (const std::string& note : cell.notes)
    marks.push_back(note_mark(static_cast<size_t>(std::find(notes.begin(), notes.end(), note) - notes.begin())));
  return fmt::format("{}", fmt::join(marks, ","));
}

double rounded(double value) { return std::isfinite(value) ? std::stod(fmt::format("{:.10g}", value)) : value; }

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char letter : text) result += letter == '"' ? "\"\"" : std::string(1, letter);
  return result + "\"";
}

std::string as_markdown(const Table& table) {
  std::string text = "|", line = "|";
  for (const TableColumn& column : table.columns) {
    text += " " + markdown_text(heading(column)) + " |";
    line += column.numbers ? " ---: |" : " --- |";
  }
  text += "\n" + line + "\n";
  const std::vector<std::string> notes = footnotes(table);
  for (const auto& row : table.rows) {
    text += "|";
    for (const TableCell& cell : row) text += " " + markdown_cell(cell, notes) + " |";
    text += "\n";
  }
  for (size_t i = 0; i < notes.size(); ++i) text += fmt::format("\n<sup>{}</sup> {}\n", note_mark(i), notes[i]);
  for (const std::string& note : table.notes) text += "\n" + note + "\n";
  return text;
}

std::string as_csv(const Table& table) {
  std::vector<std::string> fields;
  for (size_t column = 0; column < table.columns.size(); ++column) {
    fields.push_back(csv_field(heading(table.columns[column])));
    if (has_spread(table, column)) fields.push_back(csv_field(heading(table.columns[column]) + ", deviation"));
  }
  std::string text = fmt::format("{}\n", fmt::join(fields, ","));
  for (const auto& row : table.rows) {
    fields.clear();
    for (size_t column = 0; column < row.size(); ++column) {
      const TableCell& cell = row[column];
      fields.push_back(cell.value         ? fmt::format("{}", rounded(*cell.value))
                       : cell.text == "-" ? ""
                                          : csv_field(cell.text));
      if (has_spread(table, column)) fields.push_back(cell.spread);
    }
    text += fmt::format("{}\n", fmt::join(fields, ","));
  }
  return text;
}

Json as_json(const Table& table) {
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json& one = rows.emplace_back(Json::object());
    for (size_t column = 0; column < row.size(); ++column) {
      const TableCell& cell = row[column];
      const bool absent = table.columns[column].numbers && (cell.text == "-" || cell.text.empty());
      one[heading(table.columns[column])] = cell.value ? Json(rounded(*cell.value)) : absent ? Json() : Json(cell.text);
    }
  }
  return {{"title", table.title}, {"rows", rows}, {"notes", table.notes}};
}

}  // namespace xformer::reporting
