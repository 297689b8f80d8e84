// Tables on standard output.
#pragma once

#include <string>
#include <vector>

namespace xformer::cli {

// Rows of cells as aligned text or as a Markdown table.
void print_table(const std::vector<std::string>& head, const std::vector<std::vector<std::string>>& rows,
                 bool markdown);

}  // namespace xformer::cli
