#include "data/text/imdb_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "core/names.h"
#include "core/plain_files.h"
#include "core/text.h"
#include "data/what_is_there.h"
#include "readers/archive.h"

namespace xformer::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<Split, 2> kSplits{Split::kTrain, Split::kTest};
constexpr std::array<const char*, 2> kClassFolders{"neg", "pos"};  // by label
constexpr uint64_t kLongestReview = 1'000'000;                     // the longest has 13,704 bytes
constexpr uint64_t kMostText = 1'000'000'000;                      // of an archive, which is held until sorted

struct Found {
  Split split = Split::kTrain;
  int64_t label = 0, id = 0, rating = 0;
  std::string path;  // of the file, or of the entry
  std::string text;  // of an entry
};

std::string class_folder(Split split, size_t label) {
  return fmt::format("{}/{}", split_name(split), kClassFolders[label]);
}

// Digits alone, few enough for an int64_t.
std::optional<int64_t> whole_number(std::string_view digits) {
  int64_t value = 0;
  if (digits.empty() || digits.front() == '-') return std::nullopt;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (problem != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// "123_8.txt" -> id 123, rating 8. `where` opens the message.
void take_name(std::string_view name, const std::string& where, Found& review) {
  const size_t underscore = name.find('_');
  std::optional<int64_t> id, rating;
  if (underscore != std::string_view::npos && name.ends_with(".txt") && name.size() - 4 > underscore) {
    id = whole_number(name.substr(0, underscore));
    rating = whole_number(name.substr(underscore + 1, name.size() - 4 - underscore - 1));
  }
  XF_CHECK(id && rating && *rating >= 1 && *rating <= 10, DataError,
           "{}: expected a file <id>_<rating>.txt with a rating from 1 to 10 in a class folder", where);
  review.id = *id;
  review.rating = *rating;
}

void check_text(std::string_view text, const std::string& where) {
  XF_CHECK(!text.empty(), DataError, "{}: expected a review, found an empty file", where);
}

// By split, class and id; every id once, and none of the four folders empty. `where` makes the message's beginning.
template <class Where>
void sort_and_check(std::vector<Found>& reviews, const Path& place, const Where& where) {
  const auto key = [](const Found& review) { return std::tuple(review.split, review.label, review.id); };
  std::sort(reviews.begin(), reviews.end(), [&](const Found& left, const Found& right) {
    return std::tuple(key(left), left.path) < std::tuple(key(right), right.path);
  });
  const auto twice = std::adjacent_find(reviews.begin(), reviews.end(),
                                        [&](const Found& left, const Found& right) { return key(left) == key(right); });
  if (twice != reviews.end())
    throw DataError(fmt::format("{}: the id {} comes twice in its class; the other file is {}", where(*(twice + 1)),
                                twice->id, twice->path));
  for (const Split split : kSplits)
    for (size_t label = 0; label < kClassFolders.size(); ++label) {
      const bool any = std::any_of(reviews.begin(), reviews.end(), [&](const Found& review) {
        return review.split == split && review.label == static_cast<int64_t>(label);
      });
      XF_CHECK(any, DataError, "no reviews in {} of {}: expected files <id>_<rating>.txt there",
               class_folder(split, label), place.string());
    }
}

void hand_over(const Found& review, std::string_view text, const AddReview& add) {
  add({review.split, review.label, review.id, review.rating, text});
}

ImdbFiles find(const Path& place) {
  XF_CHECK(fs::exists(place), DataError, "no folder {}: expected one with the IMDb reviews", place.string());
  if (!fs::is_directory(place)) return {{}, place};
  for (const Path& folder : {place, place / "aclImdb"}) {
    if (!fs::is_directory(folder / "train") && !fs::is_directory(folder / "test")) continue;
    for (const Split split : kSplits)
      for (size_t label = 0; label < kClassFolders.size(); ++label)
        XF_CHECK(fs::is_directory(folder / class_folder(split, label)), DataError,
                 "no folder {}: expected {} and {} in train/ and test/; {}",
                 (folder / class_folder(split, label)).string(), kClassFolders[0], kClassFolders[1],
                 what_is_there(folder));
    return {folder, {}};
  }
  std::vector<Path> archives;
  for (const auto& entry : fs::directory_iterator(place))
    if (entry.is_regular_file() && matches_pattern("aclImdb*.tar.gz", entry.path().filename().string()))
      archives.push_back(entry.path());
  XF_CHECK(!archives.empty(), DataError,
           "no IMDb reviews in {}: expected the folder aclImdb (or its train/ and test/), or aclImdb_v1.tar.gz; {}",
           place.string(), what_is_there(place));
  return {{}, *std::min_element(archives.begin(), archives.end())};
}

void read_folder(const Path& root, const AddReview& add, const ProgressCallback& progress) {
  std::vector<Found> reviews;
  for (const Split split : kSplits)
    for (size_t label = 0; label < kClassFolders.size(); ++label) {
      const Path folder = root / class_folder(split, label);
      for (const auto& entry : fs::directory_iterator(folder)) {
        Found review{split, static_cast<int64_t>(label), 0, 0, entry.path().string(), {}};
        const std::string other = other_than_a_file(entry.path());
        XF_CHECK(other.empty(), DataError, "{}: expected files alone in a class folder, found {}", review.path, other);
        take_name(entry.path().filename().string(), review.path, review);
        reviews.push_back(std::move(review));
      }
    }
  sort_and_check(reviews, root, [](const Found& review) { return review.path; });
  for (size_t i = 0; i < reviews.size(); ++i) {
    if (progress) progress("reading the reviews", i, reviews.size());
    const std::string& path = reviews[i].path;
    XF_CHECK(fs::file_size(path) <= kLongestReview, DataError, "{}: expected a review of at most {}, found {}", path,
             format_bytes(kLongestReview), format_bytes(fs::file_size(path)));
    const std::string text = read_file(path);
    check_text(text, path);
    hand_over(reviews[i], text, add);
  }
}

// .../train/neg/12_3.txt; nothing for any other path.
std::optional<Found> labelled_entry(const std::string& path) {
  const std::vector<std::string_view> parts = split(path, '/');
  if (parts.size() < 3) return std::nullopt;
  for (const Split candidate : kSplits)
    for (size_t label = 0; label < kClassFolders.size(); ++label)
      if (parts[parts.size() - 3] == split_name(candidate) && parts[parts.size() - 2] == kClassFolders[label])
        return Found{candidate, static_cast<int64_t>(label), 0, 0, path, {}};
  return std::nullopt;
}

void read_archive(const Path& archive, const AddReview& add, const ProgressCallback& progress) {
  std::vector<Found> reviews;
  uint64_t bytes = 0;
  const std::string what = "reading " + archive.filename().string();
  readers::for_each_entry(archive, {}, [&](const std::string& path, readers::EntryReader& reader) {
    if (progress) progress(what, reader.archive_position(), reader.archive_bytes());
    std::optional<Found> review = labelled_entry(path);
    if (!review) return;
    take_name(Path(path).filename().string(), reader.where(), *review);
    review->text = reader.read_all(kLongestReview);
    check_text(review->text, reader.where());
    bytes += review->text.size();
    XF_CHECK(bytes <= kMostText, DataError, "{}: expected at most {} of reviews", archive.string(),
             format_bytes(kMostText));
    reviews.push_back(std::move(*review));
  });
  sort_and_check(reviews, archive, [&](const Found& review) {
    return fmt::format("{}, entry {}", archive.string(), quoted(review.path, review.path.size()));
  });
  for (const Found& review : reviews) hand_over(review, review.text, add);
}

}  // namespace

ImdbFiles find_imdb_files(const Path& place) {
  return find_or_offer(place, [](const Path& one) { return find(one); });
}

void read_imdb(const ImdbFiles& files, const AddReview& add, const ProgressCallback& progress) {
  if (files.archive.empty()) read_folder(files.folder, add, progress);
  else read_archive(files.archive, add, progress);
}

}  // namespace xformer::data
