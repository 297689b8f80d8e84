// Words for people on standard output: wrapped to the window on a terminal, as they come in a pipe, where programs
// read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace xformer::cli {

// A line on stderr. What cannot be shown is not worth ending the work for: errors are ignored.
void note(std::string_view line);

// Columns to wrap to: the window's, else $COLUMNS, else 80; 0 where the descriptor is no terminal: no wrapping.
[[nodiscard]] size_t text_width(int descriptor = 1);

// A paragraph on lines of their own, each behind `indent` blanks.
void print_wrapped(const std::string& text, size_t indent = 0);
// "label      text", the text hanging behind `column` columns.
void print_labelled(const std::string& label, const std::string& text, size_t column);

// Markdown: as it is in a pipe; on a terminal tables are aligned and paragraphs wrapped.
void print_markdown(const std::string& text);

// Rows of cells as aligned text or as a Markdown table. A column whose cells are all numbers stands to the right.
void print_table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows,
                 bool markdown);

}  // namespace xformer::cli
