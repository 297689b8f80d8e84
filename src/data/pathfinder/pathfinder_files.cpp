#include "data/pathfinder/pathfinder_files.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "core/error.h"
#include "data/cache/packed_files.h"
#include "data/what_is_there.h"
#include "readers/png.h"

namespace xformer::data {
namespace {

namespace fs = std::filesystem;

// <k>.npy by k.
std::vector<Path> metadata_files(const Path& set) {
  std::map<int64_t, Path> by_number;
  for (const auto& entry : fs::directory_iterator(set / "metadata")) {
    const std::string stem = entry.path().stem().string();
    int64_t number = 0;
    const auto [end, problem] = std::from_chars(stem.data(), stem.data() + stem.size(), number);
    if (entry.path().extension() == ".npy" && problem == std::errc() && end == stem.data() + stem.size())
      by_number[number] = entry.path();
  }
  XF_CHECK(!by_number.empty(), DataError, "{}: expected 0.npy, 1.npy, ...; {}", (set / "metadata").string(),
           what_is_there(set / "metadata"));
  std::vector<Path> files;
  for (const auto& [number, file] : by_number) files.push_back(file);
  return files;
}

}  // namespace

namespace {

std::vector<PathfinderSet> find(const Path& folder, int64_t side, const std::vector<std::string>& names) {
  XF_CHECK(fs::is_directory(folder), DataError, "--data: no folder {}; an archive is to be unpacked first",
           folder.string());
  const std::string size = "pathfinder" + std::to_string(side);
  std::vector<PathfinderSet> sets;
  for (const std::string& name : names) {
    const auto found = [&]() -> Path {
      for (const Path& release : release_folders(folder))
        for (const Path& place : {release, release / size})
          if (fs::is_directory(place / name / "metadata")) return place / name;
      return names.size() == 1 && fs::is_directory(folder / "metadata") ? folder : Path();
    }();
    XF_CHECK(!found.empty(), DataError, "no {} with metadata/ and imgs/ in {} or {} below it; {}", name,
             folder.string(), size, what_is_there(folder));
    sets.push_back({found, metadata_files(found)});
  }
  return sets;
}

}  // namespace

std::vector<PathfinderSet> find_pathfinder_sets(const Path& folder, int64_t side,
                                                const std::vector<std::string>& names) {
  return find_or_offer(folder, [&](const Path& place) { return find(place, side, names); });
}

std::vector<PathfinderEntry> list_pathfinder_images(const PathfinderSet& set, int64_t& empty) {
  std::vector<PathfinderEntry> entries;
  for (size_t i = 0; i < set.metadata.size(); ++i)
    for (const readers::pathfinder::Row& row : readers::pathfinder::read_metadata(set.metadata[i])) {
      const Path image = set.folder / row.image;
      std::error_code error;
      const uint64_t bytes = fs::file_size(image, error);
      XF_CHECK(!error, DataError, "{}:{}: its image {} is missing: {}", set.metadata[i].string(), row.line,
               image.string(), error.message());
      if (bytes == 0) ++empty;
      else entries.push_back({image, row.label, static_cast<int64_t>(i)});
    }
  return entries;
}

std::vector<uint8_t> read_pathfinder_image(const Path& path, int64_t side) {
  const MappedFile file(path);
  readers::Image image = readers::decode_png(file.bytes(), 1, path.string());
  XF_CHECK(image.width == side && image.height == side, DataError, "{}: expected {} x {} pixels, found {} x {}",
           path.string(), side, side, image.width, image.height);
  return std::move(image.pixels);
}

}  // namespace xformer::data
