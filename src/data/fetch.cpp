#include "data/fetch.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/names.h"
#include "data/datasets.h"
#include "readers/archive.h"

namespace xformer::data {
namespace {

// The Arena's release has some three million images, of which one task wants two hundred thousand.
constexpr int64_t kMostEntries = 10'000'000;

std::string with_set(std::string text, const std::string& set) {
  for (size_t at = text.find("<Name>"); at != text.npos; at = text.find("<Name>")) text.replace(at, 6, set);
  return text;
}

// Of a manifest's files those with an address that a task needs. The set is the whole name where there is none.
std::vector<Json> addressed_files(const std::string& task, std::string& set) {
  const std::string name = find_dataset(task).name;
  set = name.substr(name.find('/') + 1);
  std::vector<Json> result;
  for (const Json& file : manifest_of(name).value("files", Json::array()))
    if (file.contains("urls") && needed_by(file, name)) result.push_back(file);
  return result;
}

Path unpacked_beside(const FileToFetch& file, const Path& archive, const readers::DownloadOptions& options) {
  const Path target = archive.parent_path() / file.unpack;
  if (std::filesystem::exists(target)) return target;
  int64_t found = 0;
  readers::unpack(archive, target, {.entries = kMostEntries}, options.progress, [&](const std::string& path) {
    const bool wanted = path.find(file.only) != path.npos;
    found += wanted ? 1 : 0;
    return wanted;
  });
  if (found == 0) std::filesystem::remove_all(target);
  XF_CHECK(found > 0, DataError, "{}: no file in it has '{}' in its path: it is not laid out as expected",
           archive.string(), file.only);
  return target;
}

}  // namespace

std::vector<std::string> other_publishers(const std::string& task) {
  std::string set;
  std::set<std::string> result;
  for (const Json& file : addressed_files(task, set))
    if (file.contains("from")) result.insert(file["from"].get<std::string>());
  return {result.begin(), result.end()};
}

std::vector<FileToFetch> files_to_fetch(const std::string& task, const std::vector<std::string>& mirrors,
                                        const std::string& from) {
  if (const std::vector<std::string> known = other_publishers(task); !from.empty() && known.empty())
    throw UserError(fmt::format("--from {}: {}'s files have one publisher", from, task));
  else if (!from.empty() && std::find(known.begin(), known.end(), from) == known.end())
    throw UserError("--from: " + unknown_name_message("publisher", from, known));
  std::string set;
  std::vector<FileToFetch> result;
  for (const Json& file : addressed_files(task, set)) {
    if (file.value("from", "") != from) continue;
    FileToFetch one;
    static_cast<readers::ExpectedFile&>(one) = expected_file(file);
    one.name = with_set(file.at("name"), set);
    for (const std::string& mirror : mirrors)
      one.urls.push_back(mirror + (mirror.ends_with('/') ? "" : "/") + one.name);
    if (mirrors.empty())
      for (const Json& url : file.at("urls")) one.urls.push_back(with_set(url, set));
    if (file.contains("about_bytes")) one.about_bytes = file.at("about_bytes").get<uint64_t>();
    one.unpack = with_set(file.value("unpack", ""), set);
    one.only = with_set(file.value("only", ""), set);
    result.push_back(std::move(one));
  }
  return result;
}

FetchedFile fetch(const FileToFetch& file, const Path& folder, const readers::DownloadOptions& options) {
  FetchedFile fetched;
  fetched.hash_known = file.hash_known();
  FileToFetch meant = file;
  Json first = first_hashes(folder);
  if (!fetched.hash_known && first.contains(file.name)) meant.sha256 = first.at(file.name);
  fetched.downloaded = readers::download(meant, folder, options);
  if (!meant.hash_known()) {
    first[file.name] = fetched.downloaded.sha256;
    write_file_atomically(folder / kFetchedHashes, first.dump(2) + "\n");
  }
  if (!file.unpack.empty()) fetched.unpacked = unpacked_beside(file, fetched.downloaded.path, options);
  return fetched;
}

}  // namespace xformer::data
