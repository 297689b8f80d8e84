#include "cli/print_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace xformer::cli {

void print_table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows,
                 bool markdown) {
  if (markdown) {
    fmt::print("| {} |\n|{}\n", fmt::join(head, " | "), [&] {
      std::string line;
      for (size_t i = 0; i < head.size(); ++i) line += " --- |";
      return line;
    }());
    for (const auto& row : rows) fmt::print("| {} |\n", fmt::join(row, " | "));
    return;
  }
  std::vector<size_t> widths(head.size());
  for (size_t column = 0; column < head.size(); ++column) {
    widths[column] = head[column].size();
    for (const auto& row : rows) widths[column] = std::max(widths[column], row[column].size());
  }
  const auto print = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) line += fmt::format("{:<{}}  ", row[column], widths[column]);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  };
  print(head);
  for (const auto& row : rows) print(row);
}

}  // namespace xformer::cli
