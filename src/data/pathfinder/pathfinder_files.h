// Where Pathfinder's images lie, as the Long Range Arena distributes them.
//
// Looked for are <set>/metadata/<k>.npy and <set>/imgs/<k>/*.png, <set> one of curv_baseline, curv_contour_length_9 and
// curv_contour_length_14, in the folder, in pathfinder<side>/ below it or in that of the release (release_folders); of
// a task of one set, the folder may be the set's own.
#pragma once

#include <string>
#include <vector>

#include "core/files.h"
#include "readers/pathfinder.h"

namespace xformer::data {

struct PathfinderSet {
  Path folder;
  std::vector<Path> metadata;  // by k
};

// One for each of `names`, in that order. A DataError says which is missing and what is there.
[[nodiscard]] std::vector<PathfinderSet> find_pathfinder_sets(const Path& folder, int64_t side,
                                                              const std::vector<std::string>& names);

struct PathfinderEntry {
  Path image;
  int64_t label = 0;
  int64_t metadata_file = 0;  // its place in the set's list
};

// All images of a set, by metadata file and row; `empty` counts those left out because their file has no bytes. A row
// whose image is missing is a DataError with the line.
[[nodiscard]] std::vector<PathfinderEntry> list_pathfinder_images(const PathfinderSet& set, int64_t& empty);

// The pixels of one image, row by row; another size than side x side is a DataError.
[[nodiscard]] std::vector<uint8_t> read_pathfinder_image(const Path& path, int64_t side);

}  // namespace xformer::data
