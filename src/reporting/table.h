// A table as it is shown, whatever the format: columns with units, cells of words or numbers, marks that lead to
// footnotes. Cells hold no prose: what must be said of one is a note below.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace xformer::reporting {

struct TableCell {
  std::string text = {};                // "softmax", "81.50"; "-": a number is not there
  std::optional<double> value = {};     // what text says where it is a number, not rounded
  std::string spread = {};              // behind a number: its deviation, "1.29"
  std::vector<std::string> notes = {};  // footnotes; equal ones share a mark
  bool strong = false;                  // the best, where a test supports it
};

struct TableColumn {
  std::string label, unit = {};
  // Of columns side by side that share a heading: "listops" over "listops" (ours), "published" and "difference".
  std::string group = {};
  bool numbers = true;  // to the right, words to the left
};

struct Table {
  std::string title = {};  // LaTeX's caption
  std::string name = {};   // LaTeX's label is tab:name
  std::vector<TableColumn> columns = {};
  std::vector<std::vector<TableCell>> rows = {};  // each has a cell for every column
  std::vector<std::string> notes = {};            // below, behind the footnotes
};

// With so many decimals; "-" of what is not finite.
[[nodiscard]] TableCell number_cell(double value, int decimals);
[[nodiscard]] TableCell number_cell(const std::optional<double>& value, int decimals);

// "listops, %", "listops published, %", "model": no two columns need to share one.
[[nodiscard]] std::string heading(const TableColumn& column);

// Rows become columns: the first column's words head them, the headings are the first column.
[[nodiscard]] Table transposed(const Table& table);

// The footnotes of all cells, each once, in the order in which a reader meets them; note i has the mark of i.
[[nodiscard]] std::vector<std::string> footnotes(const Table& table);
[[nodiscard]] std::string note_mark(size_t index);  // "a" .. "z", "aa" ..
// The marks of a cell among these footnotes: "a,c".
[[nodiscard]] std::string marks_of(const TableCell& cell, const std::vector<std::string>& notes);

// Ten significant digits, so that 80.1 is no 80.10000000000001.
[[nodiscard]] double rounded(double value);
// A field of CSV, in quotes where it needs them.
[[nodiscard]] std::string csv_field(const std::string& text);

// For a terminal of `width` columns (0: as wide as it comes): aligned, words wrapped, and what is still wider in
// several parts, one below the other, each with the first column. Footnotes and notes are wrapped, too; no title.
[[nodiscard]] std::string as_text(const Table& table, size_t width);
// The table, its footnotes and its notes; the title is left to the page that it stands on.
[[nodiscard]] std::string as_markdown(const Table& table);
// Values as they are, not rounded; a column's spreads stand in one of their own. No notes.
[[nodiscard]] std::string as_csv(const Table& table);
// {"title", "rows": [{heading: value or text}], "notes"}; what is not there is null.
[[nodiscard]] Json as_json(const Table& table);

enum class LatexNumbers {
  kSiunitx,  // S columns, aligned at the point
  kPlain,    // needs no package but booktabs and graphicx
};
// A float with booktabs, caption, label and notes, shrunk where it is wider than the line. Every character of text is
// escaped.
[[nodiscard]] std::string as_latex(const Table& table, LatexNumbers numbers);

}  // namespace xformer::reporting
