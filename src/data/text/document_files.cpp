#include "data/text/document_files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/plain_files.h"
#include "core/text.h"
#include "core/utf8.h"
#include "data/class_folders.h"
#include "data/class_splits.h"
#include "data/what_is_there.h"
#include "readers/lfs_pointer.h"

namespace xformer::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestCharacter = 4;  // bytes of UTF-8

std::vector<std::string> folder_names(const Path& folder) {
  std::vector<std::string> names;
  for (const Path& one : subfolders(folder)) names.push_back(one.filename().string());
  return names;
}

// The files of the classes in `folder`, which is root / below.
void add_classes(DocumentTree& tree, const std::string& below, const std::optional<Split>& split) {
  for (size_t label = 0; label < tree.classes.size(); ++label) {
    const Path folder = tree.root / below / tree.classes[label];
    if (!fs::is_directory(folder)) continue;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with('.')) continue;
      const std::string other = other_than_a_file(entry.path());
      XF_CHECK(other.empty(), DataError, "{}: expected texts alone in a class's folder, found {}",
               entry.path().string(), other);
      tree.files.push_back({(Path(below) / tree.classes[label] / name).string(), static_cast<int64_t>(label), split});
    }
  }
}

void require_each_class(const DocumentTree& tree, const Path& place) {
  for (size_t label = 0; label < tree.classes.size(); ++label) {
    const bool there = std::any_of(tree.files.begin(), tree.files.end(), [&](const DocumentTree::One& file) {
      return file.label == static_cast<int64_t>(label) && (!file.split || *file.split == Split::kTrain);
    });
    XF_CHECK(there, DataError, "{}: no text of the class {}{}", place.string(), tree.classes[label],
             tree.files.empty() || !tree.files.front().split ? "" : " in train/");
  }
}

DocumentTree find(const std::string& task, const Path& place, const std::vector<std::string>& classes) {
  const ClassFolders wanted{task, "texts", "a folder for each of two classes or more, or these in train/ and test/"};
  require_class_folders(wanted, place);
  DocumentTree tree;
  tree.root = place;
  const std::vector<std::string> there = folder_names(place);
  std::vector<std::pair<std::string, Split>> splits;
  for (const std::string& name : there)
    if (const auto split = split_by_name(name)) splits.emplace_back(name, *split);
  const auto has = [&](Split split) {
    return std::any_of(splits.begin(), splits.end(), [&](const auto& one) { return one.second == split; });
  };
  XF_CHECK(splits.empty() || (has(Split::kTrain) && has(Split::kTest)), DataError,
           "{}: expected train/ and test/, perhaps dev/, or a folder for each class; {}", place.string(),
           what_is_there(place));
  std::set<std::string> names;
  if (splits.empty()) names.insert(there.begin(), there.end());
  for (const auto& [name, split] : splits)
    for (const std::string& one : folder_names(place / name)) names.insert(one);
  tree.classes = chosen_classes(wanted, place, {names.begin(), names.end()}, classes);
  if (splits.empty()) add_classes(tree, "", std::nullopt);
  for (const auto& [name, split] : splits) add_classes(tree, name, split);
  require_each_class(tree, place);
  std::sort(tree.files.begin(), tree.files.end(), [](const auto& left, const auto& right) {
    return std::tie(left.split, left.label, left.path) < std::tie(right.split, right.label, right.path);
  });
  return tree;
}

class PlainFile {
 public:
  explicit PlainFile(const Path& path) : path_(path), descriptor_(open_plain_file(path)) {}
  ~PlainFile() { ::close(descriptor_); }
  PlainFile(const PlainFile&) = delete;
  PlainFile& operator=(const PlainFile&) = delete;

  [[nodiscard]] std::string read(uint64_t begin, uint64_t size) const {
    std::string bytes(size, '\0');
    size_t done = 0;
    while (done < size) {
      const ssize_t count = ::pread(descriptor_, bytes.data() + done, size - done, static_cast<off_t>(begin + done));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail_reading(path_, errno);
      if (count == 0) break;  // it became shorter
      done += static_cast<size_t>(count);
    }
    bytes.resize(done);
    return bytes;
  }

 private:
  Path path_;
  int descriptor_;
};

bool is_continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

void refuse_other_kinds(std::string_view start, const Path& path) {
  readers::refuse_lfs_pointer(start, path.string());
  for (const std::string_view magic : {"\x1f\x8b", "PK\3\4", "PK\5\6", "BZh", "%PDF-"})
    XF_CHECK(!start.starts_with(magic), DataError, "{}: expected text, found {}", path.string(),
             magic == "%PDF-" ? "a PDF: `pdftotext` makes text of it" : "a compressed file, which is to be unpacked");
  XF_CHECK(!start.starts_with("\xff\xfe") && !start.starts_with("\xfe\xff"), DataError,
           "{}: expected text in UTF-8, found UTF-16: `iconv -f UTF-16 -t UTF-8` converts it", path.string());
}

// The characters of bytes that are the file's from `begin` on, of `size` in all.
DocumentPart decoded(std::string_view bytes, uint64_t begin, uint64_t size, Characters characters) {
  DocumentPart part;
  const bool unicode = characters == Characters::kUnicode;
  size_t at = 0, end = bytes.size();
  if (unicode) {
    // What was cut through belongs to what was not read.
    if (begin > 0)
      while (at < end && at < kLongestCharacter && is_continuation(bytes[at])) ++at;
    else if (bytes.starts_with("\xef\xbb\xbf")) at = 3;
    if (begin + bytes.size() < size)
      for (size_t back = 1; back <= std::min<size_t>(kLongestCharacter - 1, end - at); ++back) {
        const auto byte = static_cast<uint8_t>(bytes[end - back]);
        if ((byte & 0xC0) == 0x80) continue;
        const size_t length = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
        if (length > back) end -= back;
        break;
      }
  }
  while (at < end) {
    if (bytes[at] == '\n' || bytes[at] == '\r') {
      ++at;
      continue;
    }
    if (!unicode) {
      part.characters.push_back(static_cast<uint8_t>(bytes[at++]));
      continue;
    }
    const size_t before = at;
    const char32_t value = take_code_point(bytes.substr(0, end), at);
    part.damaged += value == kNoCodePoint && at == before + 1 ? 1 : 0;
    part.characters.push_back(value);
  }
  return part;
}

}  // namespace

DocumentTree find_documents(const std::string& task, const Path& place, const std::vector<std::string>& classes) {
  return find_or_offer(place, [&](const Path& one) { return find(task, one, classes); });
}

DocumentPart read_document(const Path& path, int64_t most, Characters characters, End end) {
  const PlainFile file(path);
  const uint64_t size = size_of_plain_file(path);
  refuse_other_kinds(file.read(0, std::min<uint64_t>(size, 64)), path);
  // Characters of several bytes and line ends may ask for more than was guessed.
  for (auto wanted = static_cast<uint64_t>(most) + 64;; wanted *= 2) {
    const uint64_t count = std::min(size, wanted), begin = end == End::kFirst ? 0 : size - count;
    DocumentPart part = decoded(file.read(begin, count), begin, size, characters);
    const auto found = static_cast<int64_t>(part.characters.size());
    if (found < most && count < size) continue;
    XF_CHECK(found > 0, DataError, "{}: expected a text, found {}", path.string(),
             size == 0 ? "an empty file" : "line ends alone");
    part.whole = count == size && found <= most;
    if (found > most) {
      if (end == End::kFirst) part.characters.resize(static_cast<size_t>(most));
      else part.characters.erase(part.characters.begin(), part.characters.end() - most);
    }
    return part;
  }
}

}  // namespace xformer::data
