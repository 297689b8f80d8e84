#include "data/fetch.h"

#include "core/error.h"
#include "data/datasets.h"
#include "readers/archive.h"

namespace xformer::data {
namespace {

constexpr const char* kFetched = "fetched.json";

std::string with_set(std::string text, const std::string& set) {
  for (size_t at = text.find("<Name>"); at != text.npos; at = text.find("<Name>")) text.replace(at, 6, set);
  return text;
}

Json first_hashes(const Path& folder) {
  if (!std::filesystem::exists(folder / kFetched)) return Json::object();
  Json result = Json::parse(read_file(folder / kFetched), nullptr, /*allow_exceptions=*/false);
  XF_CHECK(result.is_object(), DataError, "{}: expected a JSON object of names and hashes; remove it to begin anew",
           (folder / kFetched).string());
  return result;
}

Path unpacked_beside(const Json& file, const std::string& set, const Path& archive,
                     const readers::DownloadOptions& options) {
  const Path target = archive.parent_path() / with_set(file.at("unpack"), set);
  if (std::filesystem::exists(target)) return target;
  const std::string only = file.value("only", "");
  readers::unpack(archive, target, {}, options.progress,
                  [&](const std::string& path) { return path.find(only) != path.npos; });
  return target;
}

}  // namespace

std::vector<FetchedFile> fetch(const std::string& task, const Path& folder, const std::vector<std::string>& mirrors,
                               const readers::DownloadOptions& options) {
  const DatasetDescriptor& dataset = find_dataset(task);
  const size_t slash = dataset.name.find('/');
  const std::string set = slash == std::string::npos ? dataset.name : dataset.name.substr(slash + 1);
  std::vector<FetchedFile> result;
  for (const Json& file : manifest_of(dataset.name).value("files", Json::array())) {
    if (!file.contains("urls") || file.value("set", set) != set) continue;
    readers::RemoteFile remote{expected_file(file), {}, {}};
    remote.name = with_set(file.at("name"), set);
    for (const std::string& mirror : mirrors)
      remote.urls.push_back(mirror + (mirror.ends_with('/') ? "" : "/") + remote.name);
    if (mirrors.empty())
      for (const Json& url : file.at("urls")) remote.urls.push_back(with_set(url, set));
    FetchedFile fetched;
    fetched.hash_known = !remote.sha256.empty() || !remote.md5.empty();
    Json first = first_hashes(folder);
    if (!fetched.hash_known && first.contains(remote.name)) remote.sha256 = first.at(remote.name);
    fetched.downloaded = readers::download(remote, folder, options);
    if (!fetched.hash_known && remote.sha256.empty()) {
      first[remote.name] = fetched.downloaded.sha256;
      write_file_atomically(folder / kFetched, first.dump(2) + "\n");
    }
    if (file.contains("unpack")) fetched.unpacked = unpacked_beside(file, set, fetched.downloaded.path, options);
    result.push_back(std::move(fetched));
  }
  XF_CHECK(!result.empty(), UserError, "no address of {}'s files is known: {}", dataset.name, dataset.source);
  return result;
}

}  // namespace xformer::data
