#include "data/listops/listops_files.h"

#include <vector>

#include "core/error.h"
#include "core/plain_files.h"
#include "data/cache/packed_files.h"
#include "data/what_is_there.h"

namespace xformer::data {
namespace {

namespace fs = std::filesystem;
using readers::listops::Layout;

std::vector<std::string> names_of(Split split) {
  const std::string part = split == Split::kDev ? "val" : split_name(split);
  std::vector<std::string> names;
  for (const char separator : {'_', '.'})
    for (const char* ending : {"", ".gz"}) names.push_back(fmt::format("basic{}{}.tsv{}", separator, part, ending));
  return names;
}

std::optional<Path> first_of(const Path& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (fs::exists(folder / name)) return folder / name;
  return std::nullopt;
}

// Whether any of them is there.
bool basic_files_in(const Path& folder, ListOpsFiles& files) {
  bool any = false;
  for (const Split split : kAllSplits) {
    auto& path = files.paths[static_cast<size_t>(split)];
    path = first_of(folder, names_of(split));
    any = any || path.has_value();
  }
  return any;
}

ListOpsFiles find(const Path& folder, bool require_all_splits) {
  XF_CHECK(fs::exists(folder), DataError, "no folder {}: expected one with ListOps files", folder.string());
  XF_CHECK(fs::is_directory(folder), DataError, "expected a folder with ListOps files, found the file {}",
           folder.string());
  ListOpsFiles files;
  bool any = false;
  for (const Path& release : release_folders(folder))
    for (const Path& place : {release, release / "listops-1000"})
      if (!any) any = basic_files_in(place, files);
  const std::vector<std::string> original{"test_d20s.tsv", "test_d20s.tsv.gz"};
  std::string remark;
  if (!any) {
    files.layout = Layout::kOriginal;
    files.paths[static_cast<size_t>(Split::kTest)] = first_of(folder, original);
    any = files.paths[static_cast<size_t>(Split::kTest)].has_value();
    if (any) remark = "; test_d20s.tsv is a test split only, for eval and data check";
  }
  for (const Split split : kAllSplits) {
    const bool missing = !files.paths[static_cast<size_t>(split)].has_value();
    XF_CHECK(!missing || (any && !require_all_splits), DataError, "no {} split in {}: expected {}{}; {}{}",
             split_name(split), folder.string(), fmt::join(names_of(split), ", "),
             any ? "" : " (or, for a test split only, test_d20s.tsv)", what_is_there(folder), remark);
  }
  return files;
}

}  // namespace

std::array<std::string, 3> ListOpsFiles::names() const {
  std::array<std::string, 3> result;
  for (const Split split : kAllSplits) {
    const auto& path = paths[static_cast<size_t>(split)];
    result[static_cast<size_t>(split)] = path ? path->filename().string() : split_name(split);
  }
  return result;
}

uint64_t ListOpsFiles::bytes() const {
  uint64_t sum = 0;
  for (const auto& path : paths)
    if (path) sum += size_of_plain_file(*path);
  return sum;
}

ListOpsFiles find_listops_files(const Path& folder, bool require_all_splits) {
  return find_or_offer(folder, [&](const Path& place) { return find(place, require_all_splits); });
}

}  // namespace xformer::data
