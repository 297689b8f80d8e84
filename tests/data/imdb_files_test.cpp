// The IMDb reviews found and read as a folder and as an archive.
#include "data/text/imdb_files.h"

#include <catch2/catch.hpp>
#include <map>

#include "archive_maker.h"
#include "core/error.h"
#include "scratch.h"

namespace xformer::imdb_files_test {

using namespace data;
using Catch::Matchers::Contains;
using scratch::archive_of;
using scratch::ArchiveKind;
using scratch::Folder;
using scratch::Member;

struct Review {
  Split split;
  int64_t label, id, rating;
  std::string text;
  bool operator==(const Review&) const = default;
};

std::vector<Review> read(const Path& place) {
  std::vector<Review> reviews;
  read_imdb(find_imdb_files(place),
            [&](const ImdbReview& review) {
              reviews.push_back({review.split, review.label, review.id, review.rating, std::string(review.text)});
            },
            {});
  return reviews;
}

std::string refusal(const Path& place) {
  return scratch::message_of<DataError>([&] { (void)read(place); });
}

using Files = std::map<std::string, std::string>;  // below aclImdb/

const Files kFiles{{"README", "words"},
                   {"train/urls_neg.txt", "words"},
                   {"train/neg/10_1.txt", "worst"},
                   {"train/neg/2_4.txt", "not good<br />"},
                   {"train/pos/0_10.txt", "b\xc3\xa4st"},
                   {"train/unsup/0_0.txt", "unknown"},
                   {"test/neg/0_3.txt", "bad"},
                   {"test/pos/1_7.txt", "good"},
                   {"test/pos/0_8.txt", "better"}};
const std::vector<Review> kReviews{{Split::kTrain, 0, 2, 4, "not good<br />"}, {Split::kTrain, 0, 10, 1, "worst"},
                                   {Split::kTrain, 1, 0, 10, "b\xc3\xa4st"},   {Split::kTest, 0, 0, 3, "bad"},
                                   {Split::kTest, 1, 0, 8, "better"},          {Split::kTest, 1, 1, 7, "good"}};

void put_files(const Path& folder, const Files& files) {
  for (const auto& [name, content] : files) {
    std::filesystem::create_directories((folder / name).parent_path());
    scratch::put(folder / name, content);
  }
}

std::string archive_with(const Files& files) {
  std::vector<Member> members;
  for (const auto& [name, content] : files) members.push_back({"aclImdb/" + name, content, AE_IFREG, ""});
  std::swap(members.front(), members.back());
  return archive_of(ArchiveKind::kTarGz, members);
}

// What both forms say of the same files.
std::vector<std::string> refusals(const Files& files) {
  const Folder folder, other;
  put_files(folder / "aclImdb", files);
  scratch::put(other / "aclImdb_v1.tar.gz", archive_with(files));
  return {refusal(folder.path()), refusal(other.path())};
}

TEST_CASE("a folder, its parent and an archive give the same reviews in the same order") {
  const Folder folder;
  put_files(folder / "aclImdb", kFiles);
  CHECK(read(folder.path()) == kReviews);
  CHECK(read(folder / "aclImdb") == kReviews);
  std::filesystem::rename(folder / "aclImdb", folder / "elsewhere");
  const Path archive = scratch::put(folder / "aclImdb_v1.tar.gz", archive_with(kFiles));
  CHECK(read(folder.path()) == kReviews);
  CHECK(read(archive) == kReviews);
  CHECK(read(folder / "elsewhere") == kReviews);
}

TEST_CASE("a missing or empty class folder is named") {
  Files files = kFiles;
  files.erase("test/neg/0_3.txt");
  for (const std::string& said : refusals(files)) CHECK_THAT(said, Contains("test/neg"));
  const Folder folder;
  put_files(folder.path(), kFiles);
  std::filesystem::remove(folder / "test" / "neg" / "0_3.txt");
  CHECK_THAT(refusal(folder.path()), Contains("no reviews in test/neg"));
  std::filesystem::remove_all(folder / "test");
  CHECK_THAT(refusal(folder.path()), Contains("no folder " + (folder / "test" / "neg").string()));
}

TEST_CASE("an empty review, another file name and an id that comes twice are refused with their path") {
  struct Case {
    std::string name, content, said;
  };
  const Case bad = GENERATE(
      Case{"test/pos/5_9.txt", "", "found an empty file"}, Case{"train/neg/a_1.txt", "x", "<id>_<rating>.txt"},
      Case{"train/neg/5.txt", "x", "<id>_<rating>.txt"}, Case{"train/neg/5_.txt", "x", "<id>_<rating>.txt"},
      Case{"train/neg/_5.txt", "x", "<id>_<rating>.txt"}, Case{"train/neg/5_1.text", "x", "<id>_<rating>.txt"},
      Case{"train/neg/5_11.txt", "x", "from 1 to 10"}, Case{"train/neg/5_0.txt", "x", "from 1 to 10"},
      Case{"train/neg/-5_1.txt", "x", "<id>_<rating>.txt"}, Case{"train/neg/.DS_Store", "x", "<id>_<rating>.txt"},
      Case{"train/neg/99999999999999999999_1.txt", "x", "<id>_<rating>.txt"},
      Case{"train/neg/2_1.txt", "x", "the id 2 comes twice"});
  Files files = kFiles;
  files[bad.name] = bad.content;
  const std::string named = bad.said.starts_with("the id") ? "train/neg/2_4.txt" : bad.name;
  for (const std::string& said : refusals(files)) CHECK_THAT(said, Contains(named) && Contains(bad.said));
}

TEST_CASE("a review of more than a million bytes is refused before it is held") {
  Files files = kFiles;
  files["train/pos/77_7.txt"] = std::string(1'000'001, 'x');
  for (const std::string& said : refusals(files)) CHECK_THAT(said, Contains("77_7.txt") && Contains("1.0 MB"));
}

TEST_CASE("a place without the reviews is told with what is there") {
  const Folder folder;
  CHECK_THAT(refusal(folder.path()), Contains("aclImdb_v1.tar.gz") && Contains("the folder is empty"));
  CHECK_THAT(refusal(folder / "nowhere"), Contains("no folder"));
  scratch::put(folder / "reviews.csv", "x");
  CHECK_THAT(refusal(folder.path()), Contains("found reviews.csv"));
  const std::string whole = archive_with(kFiles);
  const Path cut = scratch::put(folder / "aclImdb_v1.tar.gz", whole.substr(0, whole.size() - 9));
  CHECK_THAT(refusal(folder.path()), Contains(cut.string()) && Contains("cut off"));
}

TEST_CASE("the real reviews have their counts, lengths and ratings") {
  const auto folder = scratch::real_data("imdb");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with imdb/");
    SUCCEED();
    return;
  }
  std::map<std::pair<Split, int64_t>, int64_t> counts;
  std::map<int64_t, int64_t> ratings;  // of the training split
  size_t shortest = 1 << 20, longest = 0;
  int64_t out_of_order = 0;
  std::tuple<Split, int64_t, int64_t> last{Split::kTrain, 0, -1};
  read_imdb(find_imdb_files(*folder),
            [&](const ImdbReview& review) {
              ++counts[{review.split, review.label}];
              if (review.split == Split::kTrain) ++ratings[review.rating];
              shortest = std::min(shortest, review.text.size());
              longest = std::max(longest, review.text.size());
              const std::tuple now{review.split, review.label, review.id};
              out_of_order += last < now ? 0 : 1;
              last = now;
            },
            {});
  for (const Split split : {Split::kTrain, Split::kTest})
    for (const int64_t label : {0, 1}) CHECK(counts[{split, label}] == 12'500);
  CHECK(ratings == std::map<int64_t, int64_t>{
                       {1, 5100}, {2, 2284}, {3, 2420}, {4, 2696}, {7, 2496}, {8, 3009}, {9, 2263}, {10, 4732}});
  CHECK(shortest == 32);
  CHECK(longest == 13'704);
  CHECK(out_of_order == 0);
}

}  // namespace xformer::imdb_files_test
