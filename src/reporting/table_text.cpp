// A table as aligned text.
#include <algorithm>
#include <numeric>

#include "core/text.h"
#include "reporting/table.h"

namespace xformer::reporting {
namespace {

constexpr size_t kBetween = 2;
constexpr size_t kLeastWords = 14;  // columns of words are not made narrower for the sake of others

using Rows = std::vector<std::vector<std::string>>;

struct Column {
  size_t place = 0;  // in the table
  size_t least = 0, width = 0;
};

size_t longest_word(const std::string& text) {
  size_t longest = 0;
  for (const std::string_view word : split(text, ' ')) longest = std::max(longest, columns_of(word));
  return longest;
}

// Headings and cells as words, the headings first.
Rows rows_of(const Table& table, const std::vector<std::string>& notes) {
  Rows rows(1);
  for (const TableColumn& column : table.columns) rows.front().push_back(heading(column));
  for (const auto& row : table.rows) {
    rows.emplace_back();
    for (const TableCell& cell : row) {
      const std::string marks = marks_of(cell, notes);
      rows.back().push_back(cell.text + (cell.spread.empty() ? "" : " ± " + cell.spread) + (cell.strong ? " *" : "") +
                            (marks.empty() ? "" : " [" + marks + "]"));
    }
  }
  return rows;
}

Column measured(const Rows& rows, size_t place, bool numbers) {
  Column column{place, 0, 0};
  for (const auto& row : rows) {
    const size_t whole = columns_of(row[place]);
    column.width = std::max(column.width, whole);
    const bool breaks = !numbers || &row == &rows.front();
    column.least = std::max(column.least, breaks ? longest_word(row[place]) : whole);
  }
  if (!numbers) column.least = std::max(column.least, std::min(column.width, kLeastWords));
  return column;
}

size_t total(const std::vector<Column>& columns, size_t Column::*width) {
  return std::accumulate(columns.begin(), columns.end(), kBetween * (columns.size() - 1),
                         [&](size_t sum, const Column& column) { return sum + column.*width; });
}

// The widest gives way first.
void fit(std::vector<Column>& columns, size_t limit) {
  while (total(columns, &Column::width) > limit) {
    Column* widest = nullptr;
    for (Column& column : columns)
      if (column.width > column.least && (widest == nullptr || column.width > widest->width)) widest = &column;
    if (widest == nullptr) return;
    --widest->width;
  }
}

std::string part_text(const Table& table, const Rows& rows, std::vector<Column> columns, size_t limit) {
  fit(columns, limit);
  std::string text;
  for (const auto& row : rows) {
    std::vector<std::vector<std::string>> cells;
    size_t height = 1;
    for (const Column& column : columns) {
      cells.push_back(wrapped(row[column.place], column.width));
      height = std::max(height, cells.back().size());
    }
    for (size_t line = 0; line < height; ++line) {
      std::string shown;
      for (size_t i = 0; i < columns.size(); ++i) {
        const std::string cell = line < cells[i].size() ? cells[i][line] : "";
        const std::string space(columns[i].width - std::min(columns[i].width, columns_of(cell)), ' ');
        shown += table.columns[columns[i].place].numbers ? space + cell : cell + space;
        shown.append(kBetween, ' ');
      }
      shown.erase(shown.find_last_not_of(' ') + 1);
      text += shown + "\n";
    }
  }
  return text;
}

}  // namespace

std::string as_text(const Table& table, size_t width) {
  if (table.columns.empty()) return "";
  const size_t limit = width == 0 ? std::string::npos : width;
  const std::vector<std::string> notes = footnotes(table);
  const Rows rows = rows_of(table, notes);
  std::vector<std::vector<Column>> parts(1);
  for (size_t place = 0; place < table.columns.size(); ++place) {
    parts.back().push_back(measured(rows, place, table.columns[place].numbers));
    if (total(parts.back(), &Column::least) <= limit || parts.back().size() <= 2) continue;
    // What does not fit begins another part behind the first column.
    parts.push_back({parts.front().front(), parts.back().back()});
    parts[parts.size() - 2].pop_back();
  }
  std::string text;
  for (const std::vector<Column>& part : parts)
    text += (text.empty() ? "" : "\n") + part_text(table, rows, part, limit);
  const auto say = [&](const std::string& note, const std::string& mark) {
    const auto lines =
        width == 0 ? std::vector<std::string>{note} : wrapped(note, width - std::min(width - 1, columns_of(mark)));
    for (size_t i = 0; i < lines.size(); ++i)
      text += (i == 0 ? mark : std::string(columns_of(mark), ' ')) + lines[i] + "\n";
  };
  for (size_t i = 0; i < notes.size(); ++i) {
    if (i == 0) text += "\n";
    say(notes[i], "[" + note_mark(i) + "] ");
  }
  for (const std::string& note : table.notes) {
    text += "\n";
    say(note, "");
  }
  return text;
}

}  // namespace xformer::reporting
