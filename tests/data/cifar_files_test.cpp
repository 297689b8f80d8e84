// CIFAR-10 found and read in every form a user may have it.
#include "data/images/cifar_files.h"

#include <catch2/catch.hpp>
#include <map>

#include "archive_maker.h"
#include "cifar_batches.h"
#include "core/error.h"
#include "scratch.h"

namespace xformer::cifar_files_test {

using namespace data;
using Catch::Matchers::Contains;
using scratch::archive_of;
using scratch::ArchiveKind;
using scratch::Folder;
using scratch::Member;

const std::vector<std::string> kNames{"data_batch_1", "data_batch_2", "data_batch_3",
                                      "data_batch_4", "data_batch_5", "test_batch"};

// Batch i has i + 2 images that no other batch has.
std::vector<scratch::CifarImage> images_of_batch(size_t i) { return scratch::cifar_images(i + 2, i * 10); }

std::string batch(size_t i, bool python) {
  return python ? scratch::python_batch(images_of_batch(i)) : scratch::binary_batch(images_of_batch(i));
}

void put_batches(const Path& folder, bool python) {
  std::filesystem::create_directories(folder);
  for (size_t i = 0; i < kNames.size(); ++i)
    scratch::put(folder / (kNames[i] + (python ? "" : ".bin")), batch(i, python));
}

// In the order of the publisher's own archive, with what else lies there.
std::string archive_with(bool python, size_t without = 99) {
  const std::string top = python ? "cifar-10-batches-py/" : "cifar-10-batches-bin/";
  std::vector<Member> members{{top, "", AE_IFDIR, ""}};
  for (const size_t i : {3U, 5U, 2U, 1U, 4U, 0U})
    if (i != without) members.push_back({top + kNames[i] + (python ? "" : ".bin"), batch(i, python), AE_IFREG, ""});
  members.push_back({top + "readme.html", "words", AE_IFREG, ""});
  members.push_back({top + "batches.meta", "words", AE_IFREG, ""});
  return archive_of(ArchiveKind::kTarGz, members);
}

struct Grey {
  Split split;
  int64_t label;
  std::vector<uint8_t> pixels;
  bool operator==(const Grey&) const = default;
};

std::vector<Grey> read(const Path& place, std::vector<std::string>* notes = nullptr) {
  std::vector<Grey> images;
  auto said = read_cifar(find_cifar_files(place),
                         [&](Split split, int64_t label, std::span<const uint8_t, readers::cifar::kPixels> grey) {
                           images.push_back({split, label, {grey.begin(), grey.end()}});
                         },
                         {});
  if (notes != nullptr) *notes = std::move(said);
  return images;
}

std::string refusal(const Path& place) {
  return scratch::message_of<DataError>([&] { (void)read(place); });
}

std::vector<Grey> expected_images() {
  std::vector<Grey> images;
  for (size_t i = 0; i < kNames.size(); ++i)
    for (const scratch::CifarImage& image : images_of_batch(i)) {
      Grey grey{i < 5 ? Split::kTrain : Split::kTest, image.label, {}};
      const auto colour = [&](size_t at) { return static_cast<uint8_t>(image.colours[at]); };
      for (size_t j = 0; j < 1024; ++j)
        grey.pixels.push_back(readers::cifar::grey(colour(j), colour(1024 + j), colour(2048 + j)));
      images.push_back(std::move(grey));
    }
  return images;
}

TEST_CASE("both versions give the same images, from their folder, its parent and an archive") {
  const bool python = GENERATE(false, true);
  const Folder folder;
  const Path below = folder / (python ? "cifar-10-batches-py" : "cifar-10-batches-bin");
  const std::vector<Grey> expected = expected_images();
  REQUIRE(expected.size() == 27);
  put_batches(below, python);
  CHECK(read(below) == expected);
  CHECK(read(folder.path()) == expected);
  CHECK(find_cifar_files(folder.path()).paths().size() == 6);
  std::filesystem::remove_all(below);
  const Path archive = scratch::put(folder / "cifar-10-python.tar.gz", archive_with(python));  // content, not name
  CHECK(read(folder.path()) == expected);
  CHECK(read(archive) == expected);
  CHECK(find_cifar_files(folder.path()).paths() == std::vector<Path>{archive});
}

TEST_CASE("a short batch is accepted and said") {
  const Folder folder;
  put_batches(folder.path(), false);
  std::vector<std::string> notes;
  (void)read(folder.path(), &notes);
  REQUIRE(notes.size() == 6);
  CHECK(notes[4] == "data_batch_5.bin has 6 images, the publisher's has 10,000");
  const auto whole = scratch::cifar_images(10'000);
  scratch::put(folder / "data_batch_5.bin", scratch::binary_batch(whole));
  CHECK(read(folder.path(), &notes).size() == 27 - 6 + 10'000);
  CHECK(notes.size() == 5);
}

TEST_CASE("missing batches are named with what is there") {
  const Folder folder;
  CHECK_THAT(refusal(folder.path()), Contains("cifar-10-binary.tar.gz") && Contains("the folder is empty"));
  CHECK_THAT(refusal(folder / "nowhere"), Contains("no folder") && Contains("nowhere"));
  scratch::put(folder / "cifar-100-python.tar.gz", "x");
  CHECK_THAT(refusal(folder.path()), Contains("found cifar-100-python.tar.gz"));
  put_batches(folder.path(), true);
  std::filesystem::remove(folder / "data_batch_3");
  std::filesystem::remove(folder / "test_batch");
  CHECK_THAT(refusal(folder.path()), Contains("lacks data_batch_3, test_batch") && Contains("data_batch_2"));
  const Path archive = scratch::put(folder / "a.tar.gz", archive_with(true, 3));
  CHECK_THAT(refusal(archive), Contains("lacks data_batch_4") && Contains("cifar-10-batches-py/test_batch"));
  const Path none = scratch::put(folder / "b.tar.gz", archive_of(ArchiveKind::kTarGz, {}));
  CHECK_THAT(refusal(none), Contains("lacks data_batch_1") && Contains("holds no file"));
}

TEST_CASE("damage is told with file and record, in a folder and in an archive") {
  const Folder folder;
  put_batches(folder.path(), false);
  std::string bad = batch(1, false);
  bad[2 * 3073] = 99;
  scratch::put(folder / "data_batch_2.bin", bad);
  CHECK_THAT(refusal(folder.path()), Contains((folder / "data_batch_2.bin").string()) && Contains("record 3 of 3"));
  scratch::put(folder / "data_batch_2.bin", "");
  CHECK_THAT(refusal(folder.path()), Contains("found 0 bytes"));
  const Path archive =
      scratch::put(folder / "a.tar.gz", archive_of(ArchiveKind::kTarGz, {{"x/data_batch_2.bin", bad, AE_IFREG, ""}}));
  CHECK_THAT(refusal(archive), Contains("a.tar.gz, entry 'x/data_batch_2.bin'") && Contains("record 3 of 3"));
  const Path twice = scratch::put(
      folder / "b.tar.gz", archive_of(ArchiveKind::kTarGz, {{"x/data_batch_2.bin", batch(1, false), AE_IFREG, ""},
                                                            {"y/data_batch_2", batch(1, true), AE_IFREG, ""}}));
  CHECK_THAT(refusal(twice), Contains("'y/data_batch_2'") && Contains("twice"));
  const std::string whole = archive_with(true);
  CHECK_THAT(refusal(scratch::put(folder / "c.tar.gz", whole.substr(0, whole.size() / 2))), Contains("cut off"));
}

TEST_CASE("the real batches have their counts, classes and first labels") {
  const auto folder = scratch::real_data("cifar10");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with cifar10/");
    SUCCEED();
    return;
  }
  std::vector<std::string> notes;
  const std::vector<Grey> images = read(*folder, &notes);
  CHECK(notes.size() == 6);
  CHECK(notes[0] == "data_batch_1.bin has 4,000 images, the publisher's has 10,000");
  std::map<Split, std::vector<int64_t>> labels;
  for (const Grey& image : images) labels[image.split].push_back(image.label);
  CHECK(labels[Split::kTrain].size() == 4000 + 4 * 1017);
  CHECK(labels[Split::kTest].size() == 1017);
  labels[Split::kTrain].resize(10);
  labels[Split::kTest].resize(10);
  CHECK(labels[Split::kTrain] == std::vector<int64_t>{6, 9, 9, 4, 1, 1, 2, 7, 8, 3});
  CHECK(labels[Split::kTest] == std::vector<int64_t>{3, 8, 8, 0, 6, 6, 1, 6, 3, 1});
}

}  // namespace xformer::cifar_files_test
