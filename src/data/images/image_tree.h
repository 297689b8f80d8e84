// Images in folders by class, as ImageNet is unpacked: <root>/train/<class>/*.JPEG and <root>/val/<class>/*.JPEG; a
// class's number is its place in the sorted names.
#pragma once

#include <string>
#include <vector>

#include "core/files.h"
#include "core/json.h"

namespace xformer::data {

// Whether it ends in .jpeg, .jpg or .png, in letters of any size.
[[nodiscard]] bool is_image_name(const Path& path);

struct ImageFile {
  std::string path;  // below the root
  int64_t label = 0;
};

struct ImageTree {
  Path root;
  std::vector<std::string> classes;
  std::vector<ImageFile> train, val;  // sorted by class, then name
  std::vector<std::string> without_val;
  int64_t other_files = 0;              // in classes' folders, whose names do not end in .jpeg, .jpg or .png
  int64_t folders = 0, dead_links = 0;  // there, too: what is in them is not read
  Json identity;                        // the classes' folders with their times, for a cache's key
};

// `folder`, or the only one of the folders in it and in these that does, holds train/ and val/ (or validation/).
// DataErrors: no folder (an archive is to be unpacked first), a folder is missing, a class of val that train lacks, a
// class of train without images, fewer than two classes.
[[nodiscard]] ImageTree find_image_tree(const Path& folder);

}  // namespace xformer::data
