// A matrix as a picture: attention weights of queries (rows) over keys (columns).
#pragma once

#include <string>
#include <vector>

namespace xformer::reporting {

struct HeatMap {
  std::string title, x_label, y_label, note;
  int64_t rows = 0, columns = 0;
  std::vector<double> values;  // [rows, columns], finite
};

// At most kMostCells a side: larger matrices are shown in means over equal blocks. White is the least, dark the most,
// so that grey print keeps the order; a scale stands beside. UserError of an empty matrix.
inline constexpr int64_t kMostCells = 96;
[[nodiscard]] std::string as_svg(const HeatMap& map);

}  // namespace xformer::reporting
