#include "data/audio/audio_files.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/error.h"
#include "core/plain_files.h"
#include "core/text.h"
#include "data/class_folders.h"
#include "data/what_is_there.h"
#include "readers/line_reader.h"

namespace xformer::data {

namespace {

namespace fs = std::filesystem;

constexpr const char* kDevList = "validation_list.txt";
constexpr const char* kTestList = "testing_list.txt";

bool ends_in_wav(const Path& path) { return path.extension() == ".wav" || path.extension() == ".WAV"; }

void add_sounds(AudioTree& tree, size_t label) {
  const std::string& name = tree.classes[label];
  const size_t before = tree.files.size();
  for (const auto& entry : fs::directory_iterator(tree.root / name)) {
    if (!ends_in_wav(entry.path())) {
      ++tree.other_files;
      continue;
    }
    const std::string other = other_than_a_file(entry.path());
    XF_CHECK(other.empty(), DataError, "{}: expected a file, found {}", entry.path().string(), other);
    tree.files.push_back({(Path(name) / entry.path().filename()).string(), static_cast<int64_t>(label), std::nullopt});
  }
  XF_CHECK(tree.files.size() > before, DataError, "{}: no sound (.wav) of the class {}; {}",
           (tree.root / name).string(), name, what_is_there(tree.root / name));
  std::sort(tree.files.begin() + static_cast<ptrdiff_t>(before), tree.files.end(),
            [](const AudioTree::One& a, const AudioTree::One& b) { return a.path < b.path; });
}

// The files that a list names are of this split.
void apply_list(AudioTree& tree, const char* list, Split split, const std::map<std::string, size_t>& places) {
  readers::LineReader lines(tree.root / list);
  int64_t named = 0;
  for (std::string_view line; lines.next(line);) {
    const std::string path(trim(line));
    if (path.empty()) continue;
    ++named;
    const auto found = places.find(path);
    if (found == places.end()) {
      const std::string name = Path(path).parent_path().string();
      const bool read = std::find(tree.classes.begin(), tree.classes.end(), name) != tree.classes.end();
      // Of a class that is there and not read, a list may say what it likes.
      XF_CHECK(!read && !name.empty() && fs::is_directory(tree.root / name), DataError, "{}: there is no sound {}",
               lines.where(), quoted(path, 80));
      continue;
    }
    AudioTree::One& file = tree.files[found->second];
    XF_CHECK(*file.split == Split::kTrain || *file.split == split, DataError, "{}: {} is in {}, too", lines.where(),
             path, kDevList);
    file.split = split;
  }
  XF_CHECK(named > 0, DataError, "{} names no sound", (tree.root / list).string());
}

AudioTree find_sounds(const std::string& task, const Path& place, const std::vector<std::string>& classes) {
  const ClassFolders wanted{task, "sounds", "a folder of WAV files for each of two classes or more"};
  require_class_folders(wanted, place);
  AudioTree tree;
  tree.root = place;
  std::vector<std::string> there;
  for (const Path& folder : subfolders(place))
    if (const std::string name = folder.filename().string(); name[0] != '_' && name[0] != '.') there.push_back(name);
  tree.classes = chosen_classes(wanted, place, there, classes);
  for (size_t label = 0; label < tree.classes.size(); ++label) add_sounds(tree, label);
  const bool dev = fs::exists(place / kDevList), test = fs::exists(place / kTestList);
  XF_CHECK(dev == test, DataError, "{}: found {}, and no {} beside it", place.string(), dev ? kDevList : kTestList,
           dev ? kTestList : kDevList);
  if (!dev) return tree;
  tree.lists = {kDevList, kTestList};
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < tree.files.size(); ++i) {
    places[tree.files[i].path] = i;
    tree.files[i].split = Split::kTrain;
  }
  apply_list(tree, kDevList, Split::kDev, places);
  apply_list(tree, kTestList, Split::kTest, places);
  return tree;
}

}  // namespace

AudioTree find_audio(const std::string& task, const Path& place, const std::vector<std::string>& classes) {
  return find_or_offer(place, [&](const Path& one) { return find_sounds(task, one, classes); });
}

}  // namespace xformer::data
