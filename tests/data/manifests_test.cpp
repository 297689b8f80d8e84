// What the project knows of a dataset's files: manifests compiled in, and files compared with them.
#include "data/manifests.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "scratch.h"

namespace xformer::manifests_test {

using namespace data;
using Catch::Matchers::Contains;

TEST_CASE("every dataset of the repository has its manifest in the program, without what is said of its sample") {
  const Path datasets = Path(__FILE__).parent_path() / "../../datasets";
  int64_t count = 0;
  for (const auto& folder : std::filesystem::directory_iterator(datasets)) {
    const std::string name = folder.path().filename();
    CAPTURE(name);
    Json written = Json::parse(scratch::get(folder.path() / "manifest.json"));
    written.erase("sample");
    const auto unordered = [](const Json& json) { return nlohmann::json::parse(json.dump()); };
    CHECK(unordered(manifest_of(name)) == unordered(written));
    CHECK(written.at("files").is_array());
    ++count;
  }
  CHECK(count == static_cast<int64_t>(manifest_texts().size()));
  CHECK(manifest_of("uea/Handwriting").at("name") == "uea");
  CHECK(manifest_of("no-such-task").empty());
}

TEST_CASE("a file that is not the one whose hash is known fails the check, which names it") {
  const auto checked = [](const std::string& task, const Path& folder) {
    CheckReport report;
    check_known_files(task, folder, report);
    return report;
  };
  CHECK(checked("listops", "").items.empty());  // made, not read
  const scratch::Folder folder;
  REQUIRE(checked("tabular/adult", folder.path()).items.size() == 1);  // nothing is known of what is there
  CHECK_THAT(checked("tabular/adult", folder.path()).text(), Contains("note  the contents were not compared"));
  scratch::put(folder / "adult.data", "39, State-gov\n");
  const CheckReport cut = checked("tabular/adult", folder.path());
  CHECK_FALSE(cut.passed);
  REQUIRE(cut.items.size() == 1);
  CHECK_THAT(cut.items[0].detail, Contains("adult.data has 14 bytes, expected 3974305"));
  scratch::put(folder / "adult.data", std::string(3974305, 'x'));
  CHECK_THAT(
      checked("tabular/adult", folder.path()).items.at(0).detail,
      Contains("sha256") && Contains("expected 5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"));
  scratch::put(folder / "cifar-10-binary.tar.gz", "abc");  // the archive itself may be --data
  CHECK_THAT(checked("image", folder / "cifar-10-binary.tar.gz").items.at(0).detail,
             Contains("cifar-10-binary.tar.gz has 3 bytes, expected 170052171"));
}

TEST_CASE("a file of unknown hash is compared with what was fetched first, and batches with theirs") {
  const auto checked = [](const std::string& task, const Path& folder) {
    CheckReport report;
    check_known_files(task, folder, report);
    return report.text();
  };
  const scratch::Folder folder;
  scratch::put(folder / "Waves.zip", "abc");
  scratch::put(folder / "fetched.json",
               R"({"Waves.zip": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"})");
  CHECK_THAT(checked("uea/Waves", folder.path()), Contains("ok    files are those whose hash is known: Waves.zip"));
  CHECK_THAT(checked("uea/Waves", folder / "Waves.zip"), Contains("ok "));
  scratch::put(folder / "Waves.zip", "abd");
  CHECK_THAT(checked("uea/Waves", folder.path()), Contains("FAIL") && Contains("expected ba7816bf"));
  for (const Path& place : {folder.path(), folder / "cifar-10-batches-py"}) {
    std::filesystem::create_directories(place);
    scratch::put(place / "data_batch_2", "abc");
    CHECK_THAT(checked("image", folder.path()), Contains("expected d4bba439e000b95fd0a9bffe97cbabec"));
    std::filesystem::remove(place / "data_batch_2");
  }
}

TEST_CASE("genuine files are the ones that are known") {
  const char* root = std::getenv("XFORMER_TEST_DATA");
  if (root == nullptr) {
    WARN("skipped: XFORMER_TEST_DATA is not set");
    SUCCEED("skipped");
    return;
  }
  const scratch::Folder folder;  // kept compressed there
  for (const char* name : {"adult.data", "adult.test"})
    REQUIRE(std::system(fmt::format("gzip -dc '{}/tabular/adult/{}.gz' > '{}'", root, name, (folder / name).string())
                            .c_str()) == 0);
  CheckReport report;
  check_known_files("tabular/adult", folder.path(), report);
  REQUIRE(report.items.size() == 1);
  CHECK(report.items[0].detail == "adult.data; adult.test");
  CHECK(report.passed);
}

}  // namespace xformer::manifests_test
