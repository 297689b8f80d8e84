#include "data/series/series_files.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/names.h"
#include "data/what_is_there.h"

namespace xformer::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEndings[] = {".ts", ".ts.gz", ".arff", ".arff.gz"};

// "PEMS-SF" -> "pemssf".
std::string squeezed(const std::string& name) {
  std::string result = canonical_name(name);
  std::erase(result, '-');
  return result;
}

struct Entry {
  std::string name;
  bool is_folder = false;
};

std::vector<Entry> entries_of(const Path& folder) {
  std::vector<Entry> entries;
  for (const auto& entry : fs::directory_iterator(folder))
    entries.push_back({entry.path().filename().string(), entry.is_directory()});
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

// NAME_TRAIN or NAME_TEST (`part`) in any spelling; `name` becomes the file's.
std::optional<Path> find_file(const Path& folder, const std::vector<Entry>& entries, const std::string& part,
                              std::string& name) {
  for (const char* ending : kEndings) {
    const std::string tail = part + ending;
    for (const Entry& entry : entries) {
      if (entry.is_folder || !canonical_name(entry.name).ends_with(tail)) continue;
      const std::string stem = entry.name.substr(0, entry.name.size() - tail.size());
      if (squeezed(stem) != squeezed(name)) continue;
      name = stem;
      return folder / entry.name;
    }
  }
  return std::nullopt;
}

SeriesFiles files_in(const Path& folder, const std::string& name) {
  const std::vector<Entry> entries = entries_of(folder);
  SeriesFiles files{name, {}, {}};
  files.test = find_file(folder, entries, "-test", files.name);
  files.train = find_file(folder, entries, "-train", files.name);
  return files;
}

// NAME in `folder` or in the whole archive's folder there; `folder` where there is neither.
Path set_folder(const Path& folder, const std::string& name) {
  for (const Path& place : {folder, folder / "Multivariate_ts"})
    for (const Path& below : subfolders(place))
      if (squeezed(below.filename().string()) == squeezed(name)) return below;
  return folder;
}

SeriesFiles find(const Path& folder, const std::string& name, bool require_both) {
  XF_CHECK(fs::exists(folder), DataError, "no folder {}: expected one with the files of {}", folder.string(), name);
  XF_CHECK(fs::is_directory(folder), DataError, "expected a folder with the files of {}, found the file {}", name,
           folder.string());
  Path place = folder;
  SeriesFiles files = files_in(folder, name);
  // Twice: what is fetched of the whole archive lies as it does there, in a folder of the set's name.
  for (int depth = 0; depth < 2 && !files.train && !files.test; ++depth) {
    place = set_folder(place, name);
    files = files_in(place, name);
  }
  const bool any = files.train || files.test;
  for (const bool train : {true, false}) {
    if ((train ? files.train : files.test) || (any && !require_both)) continue;
    const std::string stem = fmt::format("{}_{}", files.name, train ? "TRAIN" : "TEST");
    std::vector<std::string> folders;
    for (const Entry& entry : entries_of(place))
      if (entry.is_folder) folders.push_back(entry.name);
    const std::string meant = any ? "" : nearest_name(name, folders);
    throw DataError(fmt::format("no {} file of {} in {}: expected {}{}{}; {}{}", train ? "training" : "test", name,
                                place.string(), stem, fmt::join(kEndings, ", " + stem),
                                any || place != folder ? "" : fmt::format(", here or in a folder {}", name),
                                what_is_there(place), meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant)));
  }
  return files;
}

}  // namespace

SeriesFiles find_series_files(const Path& folder, const std::string& name, bool require_both) {
  return find_or_offer(folder, [&](const Path& place) { return find(place, name, require_both); });
}

}  // namespace xformer::data
