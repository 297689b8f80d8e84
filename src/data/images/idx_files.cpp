#include "data/images/idx_files.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/plain_files.h"
#include "data/what_is_there.h"

namespace xformer::data {

namespace {

namespace fs = std::filesystem;

// The one file in the folder whose name has one of the starts and the kind behind it; empty for none.
Path idx_file_in(const Path& folder, const std::vector<std::string>& starts, const std::string& kind) {
  std::vector<Path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    const bool packed = name.ends_with(".gz");
    if (packed) name.resize(name.size() - 3);
    const bool named = std::any_of(starts.begin(), starts.end(), [&](const std::string& start) {
      return name.ends_with(start + "-" + kind) || name.ends_with(start + "." + kind);
    });
    if (named) found.push_back(entry.path());
  }
  if (found.empty()) return {};
  const auto plain_first = [](const Path& a, const Path& b) {
    return std::pair(a.extension() == ".gz", a) < std::pair(b.extension() == ".gz", b);
  };
  std::sort(found.begin(), found.end(), plain_first);
  for (size_t i = 1; i < found.size(); ++i)
    XF_CHECK(found[i].string() == found[0].string() + ".gz", DataError,
             "{} holds {} and {}: each set of images in a folder of its own, please", folder.string(),
             found[0].filename().string(), found[i].filename().string());
  return found[0];
}

IdxFiles idx_files_in(const Path& folder) {
  return {idx_file_in(folder, {"train-images"}, "idx3-ubyte"), idx_file_in(folder, {"train-labels"}, "idx1-ubyte"),
          idx_file_in(folder, {"t10k-images", "test-images"}, "idx3-ubyte"),
          idx_file_in(folder, {"t10k-labels", "test-labels"}, "idx1-ubyte")};
}

IdxFiles find_idx(const Path& place) {
  XF_CHECK(fs::is_directory(place), DataError, "expected a folder with IDX files, found the file {}", place.string());
  std::vector<Path> folders{place};
  if (fs::is_directory(place / "raw")) folders.push_back(place / "raw");
  for (const Path& below : subfolders(place))
    if (fs::is_directory(below / "raw")) folders.push_back(below / "raw");
  for (const Path& folder : folders) {
    const IdxFiles files = idx_files_in(folder);
    std::vector<std::string> missing;
    const char* const names[]{"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                              "t10k-labels-idx1-ubyte"};
    const std::vector<Path> paths = files.paths();
    for (size_t i = 0; i < paths.size(); ++i)
      if (paths[i].empty()) missing.emplace_back(names[i]);
    if (missing.empty()) return files;
    XF_CHECK(missing.size() == paths.size(), DataError, "{} lacks {} (or the same with .gz); {}", folder.string(),
             fmt::join(missing, ", "), what_is_there(folder));
  }
  throw DataError(fmt::format(
      "no images in {}: expected train-images-idx3-ubyte, train-labels-idx1-ubyte and the same of t10k, perhaps with "
      ".gz; {}",
      place.string(), what_is_there(place)));
}

}  // namespace

IdxFiles find_idx_files(const Path& place) {
  return find_or_offer(place, [](const Path& one) { return find_idx(one); });
}

LabelledImages read_labelled_images(const Path& images, const Path& labels) {
  readers::IdxArray pixels = readers::read_idx(images, 3);
  readers::IdxArray classes = readers::read_idx(labels, 1);
  XF_CHECK(pixels.sizes[0] == classes.sizes[0], DataError, "{} images in {}, {} labels in {}", pixels.sizes[0],
           images.string(), classes.sizes[0], labels.string());
  return {pixels.sizes[1], pixels.sizes[2], std::move(pixels.values), std::move(classes.values)};
}

}  // namespace xformer::data
