#include "data/images/image_tree.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "core/error.h"
#include "core/names.h"
#include "core/plain_files.h"
#include "data/what_is_there.h"

namespace xformer::data {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> folders_in(const Path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Archives bring a folder of their own, and are unpacked into another.
Path tree_root(const Path& folder) {
  std::error_code ignored;
  std::vector<Path> level{folder};
  for (int depth = 0; depth < 3 && !level.empty(); ++depth) {
    std::vector<Path> found, below;
    for (const Path& one : level) {
      if (fs::is_directory(one / "train", ignored)) found.push_back(one);
      for (const auto& entry : fs::directory_iterator(one, ignored))
        if (entry.is_directory(ignored)) below.push_back(entry.path());
    }
    if (found.size() == 1) return found.front();
    if (!found.empty()) break;
    level = below;
  }
  return folder;
}

// Appends the images of one class in the order of their names.
int64_t add_images(ImageTree& tree, const std::string& place, int64_t label, std::vector<ImageFile>& into) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(tree.root / place)) {
    if (const std::string other = other_than_a_file(entry.path()); !other.empty()) {
      ++(other == "a folder" ? tree.folders : other.starts_with("a link") ? tree.dead_links : tree.other_files);
      continue;
    }
    if (is_image_name(entry.path())) names.push_back(entry.path().filename().string());
    else ++tree.other_files;
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) into.push_back({place + "/" + name, label});
  tree.identity[place] = fs::last_write_time(tree.root / place).time_since_epoch().count();
  return static_cast<int64_t>(names.size());
}

}  // namespace

bool is_image_name(const Path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char letter) { return std::tolower(letter); });
  return ending == ".jpeg" || ending == ".jpg" || ending == ".png";
}

ImageTree find_image_tree(const Path& folder) {
  std::error_code ignored;
  XF_CHECK(
      fs::is_directory(folder, ignored), DataError,
      "expected a folder with train/<class>/ and val/<class>/, found the file {}; an archive is to be unpacked first",
      folder.string());
  ImageTree tree;
  tree.root = tree_root(folder);
  const std::string val = fs::is_directory(tree.root / "val", ignored) ? "val" : "validation";
  for (const std::string& name : {std::string("train"), val})
    XF_CHECK(fs::is_directory(tree.root / name, ignored), DataError,
             "{}: expected the folders train/<class>/ and val/<class>/ with images in them; {}{}", folder.string(),
             what_is_there(folder), offered_place(folder, [](const Path& place) {
               std::error_code unknown;
               return fs::is_directory(place / "train", unknown) &&
                      (fs::is_directory(place / "val", unknown) || fs::is_directory(place / "validation", unknown));
             }));
  tree.classes = folders_in(tree.root / "train");
  XF_CHECK(tree.classes.size() >= 2, DataError, "{}: expected a folder for each of two classes or more; {}",
           (tree.root / "train").string(), what_is_there(tree.root / "train"));
  tree.identity = {{"root", tree.root.string()}};
  for (size_t i = 0; i < tree.classes.size(); ++i)
    XF_CHECK(add_images(tree, "train/" + tree.classes[i], static_cast<int64_t>(i), tree.train) > 0, DataError,
             "{}: no image (.jpeg, .jpg, .png) in it; {}", (tree.root / "train" / tree.classes[i]).string(),
             what_is_there(tree.root / "train" / tree.classes[i]));
  const std::vector<std::string> there = folders_in(tree.root / val);
  for (const std::string& name : there) {
    const auto known = std::lower_bound(tree.classes.begin(), tree.classes.end(), name);
    XF_CHECK(known != tree.classes.end() && *known == name, DataError, "{}: a class that train/ lacks; {}",
             (tree.root / val / name).string(), unknown_name_message("class", name, tree.classes));
    add_images(tree, val + "/" + name, known - tree.classes.begin(), tree.val);
  }
  XF_CHECK(!tree.val.empty(), DataError, "{}: no image in the classes' folders; {}", (tree.root / val).string(),
           what_is_there(tree.root / val));
  std::set_difference(tree.classes.begin(), tree.classes.end(), there.begin(), there.end(),
                      std::back_inserter(tree.without_val));
  return tree;
}

}  // namespace xformer::data
