#include "data/cache/packed_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <numeric>

#include "core/error.h"
#include "core/hash.h"
#include "core/plain_files.h"
#include "core/random.h"
#include "core/utf8.h"

namespace xformer::data {

namespace {

namespace fs = std::filesystem;

std::vector<Path> files_below(const Path& folder) {
  std::vector<Path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

int64_t changed_ns(const Path& file) {
  const auto time = fs::last_write_time(file).time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

}  // namespace

Json file_identity(const std::vector<Path>& places) {
  Json result = Json::array();
  for (const Path& place : places) {
    const bool folder = other_than_a_file(place) == "a folder";
    if (!folder) static_cast<void>(size_of_plain_file(place));  // says what is wrong with it
    if (folder) {
      std::vector<std::string> names;
      for (const Path& file : files_below(place)) names.push_back(file.lexically_relative(place).string());
      result.push_back(tree_identity(place, names));
    } else {
      result.push_back({{"path", as_utf8(fs::canonical(place).string())},
                        {"bytes", size_of_plain_file(place)},
                        {"mtime_ns", changed_ns(place)}});
    }
  }
  return result;
}

Json tree_identity(const Path& root, const std::vector<std::string>& names) {
  Sha256 hash;
  for (const std::string& name : names) {
    struct stat status {};
    const Path file = root / name;
    if (::stat(file.c_str(), &status) != 0) fail_reading(file, errno);
    const auto& changed = status.st_mtim;
    // No name holds a zero.
    hash.update(fmt::format("{} {} {} {}", status.st_size, changed.tv_sec, changed.tv_nsec, name) + '\0');
  }
  return {{"path", as_utf8(fs::canonical(root).string())}, {"files", names.size()}, {"sha256", hash.hex()}};
}

Json file_facts(const std::vector<Path>& places) {
  Json result = Json::array();
  for (const Path& place : places) {
    Json one{{"name", place.filename().string()}};
    if (fs::is_directory(place)) {
      Sha256 hash;
      uint64_t bytes = 0;
      const std::vector<Path> files = files_below(place);
      for (const Path& file : files) {
        bytes += fs::file_size(file);
        hash.update(fmt::format("{} {}\n", sha256_of_file(file), fs::relative(file, place).string()));
      }
      one.update({{"files", files.size()}, {"bytes", bytes}, {"sha256", hash.hex()}});
    } else {
      one.update({{"bytes", size_of_plain_file(place)}, {"sha256", sha256_of_file(place)}});
    }
    result.push_back(one);
  }
  return result;
}

std::vector<Path> release_folders(const Path& folder) {
  std::vector<Path> unpacked;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory() && entry.path().filename().string().starts_with("lra_release"))
      unpacked.push_back(entry.path());
  std::sort(unpacked.begin(), unpacked.end());
  std::vector<Path> result{folder};
  for (const Path& place : unpacked) {
    result.push_back(place);
    result.push_back(place / "lra_release");
    result.push_back(place / "lra_release" / "lra_release");
  }
  return result;
}

std::vector<int64_t> seeded_order(int64_t count, uint64_t seed, const std::string& purpose) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  Stream numbers(derive_seed(seed, purpose));
  for (int64_t i = count - 1; i > 0; --i)
    std::swap(order[static_cast<size_t>(i)], order[numbers.next_below(static_cast<uint64_t>(i) + 1)]);
  return order;
}

}  // namespace xformer::data
