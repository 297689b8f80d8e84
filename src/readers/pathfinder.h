// Pathfinder's metadata as the Long Range Arena distributes it: metadata/<k>.npy, which is text in spite of its name.
//
// A row for each image, eleven fields between blanks: folder, file, index, label, continuity, contour length,
// distractor length, paddle length, paddle thickness, margin, number of contrasts. Errors are DataErrors with file,
// line and field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/files.h"

namespace xformer::readers::pathfinder {

struct Row {
  std::string image;  // "imgs/0/sample_12.png", below the folder that metadata/ lies in
  int64_t label = 0;  // 1: the two discs are the ends of one curve
  int64_t line = 0;   // of the metadata file, from 1
};

// A file without rows, another number of fields, a name that leads out of the folder, a label that is not 0 or 1 and a
// field that is no number are refused.
[[nodiscard]] std::vector<Row> read_metadata(const Path& path);

}  // namespace xformer::readers::pathfinder
