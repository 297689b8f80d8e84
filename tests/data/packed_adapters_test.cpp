// The adapters of datasets in files: text, retrieval, image, uea and tabular, on files of our own and on genuine ones.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <numeric>

#include "archive_maker.h"
#include "core/error.h"
#include "core/hash.h"
#include "data/adapter_place.h"
#include "data/batches/batcher.h"
#include "data/cache/cache.h"
#include "data/check.h"
#include "data/datasets.h"
#include "scratch.h"

namespace xformer::packed_adapters_test {

using namespace data;
using adapter_place::options_of;
using adapter_place::Place;
using Catch::Matchers::Contains;
using scratch::Folder;

namespace {

void make_reviews(const Path& folder, int64_t each) {
  for (const char* split : {"train", "test"})
    for (const char* label : {"neg", "pos"}) {
      const Path place = folder / "aclImdb" / split / label;
      std::filesystem::create_directories(place);
      for (int64_t i = 0; i < each; ++i)
        scratch::put(place / fmt::format("{}_{}.txt", i, label[0] == 'n' ? 2 : 9),
                     fmt::format("{} {} {}", split, label, std::string(static_cast<size_t>(i), 'x')));
    }
}

// Genuine files, or nullopt where they are not.
std::optional<Path> genuine(const std::string& name) {
  const char* root = std::getenv("XFORMER_TEST_DATA");
  if (root == nullptr) {
    WARN("skipped: XFORMER_TEST_DATA is not set");
    return std::nullopt;
  }
  return Path(root) / name;
}

}  // namespace

TEST_CASE("text: bytes from 1 up, labels from folders, dev by rule, one cache for all lengths") {
  const Place place;
  make_reviews(place.folder.path(), 20);
  const auto source = place.open("text", {{"length", 12}});
  CHECK((source->size(Split::kTrain) == 40 && source->size(Split::kTest) == 40 && source->size(Split::kDev) == 40));
  CHECK(source->info().shape.max_len == 12);
  HostBatch batch;
  fill_batch(*source, Split::kTest, {{0, 19}, 16}, 2, batch);
  CHECK(batch.whole("tokens")[0] == 't' + 1);
  CHECK(std::accumulate(batch.key_valid.begin(), batch.key_valid.end(), 0) == 9 + 12);  // "test neg ", cut to 12
  CHECK(batch.whole("label") == std::vector<int64_t>{0, 0});
  const auto longer = place.open("text", {{"length", 4000}});
  CHECK(longer->info().sha256 == source->info().sha256);
  CHECK(longer->info().shape.max_len == 4000);
  const auto held = place.open("text", {{"dev", "holdout"}});
  CHECK((held->size(Split::kTrain) == 36 && held->size(Split::kDev) == 4));
  CHECK(held->info().sha256 != source->info().sha256);
  CHECK_THAT(find_dataset("text").show(source->read(Split::kTest, 30), source->info()), Contains("positive"));
  const CheckReport report = find_dataset("text").check(options_of("text"), place.location(), {});
  CHECK(report.passed);
  CHECK_THAT(report.json().dump(), Contains("published are 25000"));
}

TEST_CASE("text: characters of Python's repr, as its print has them") {
  const Place place;
  make_reviews(place.folder.path(), 3);
  // What python3 -c 'print(str(open(FILE, "rb").read()))' prints of the same bytes.
  const std::vector<std::pair<std::string, std::string>> printed{{"plain ~", R"(b'plain ~')"},
                                                                 {"it's", R"(b"it's")"},
                                                                 {"it's \"so\"", R"(b'it\'s "so"')"},
                                                                 {"a\\b\t\r\n", R"(b'a\\b\t\r\n')"},
                                                                 {"\xc3\xa9\x01\x7f", R"(b'\xc3\xa9\x01\x7f')"}};
  for (size_t i = 0; i < printed.size(); ++i)
    scratch::put(place.folder / fmt::format("aclImdb/test/neg/{}_2.txt", i), printed[i].first);
  const auto source = place.open("text", {{"characters", "repr"}, {"length", 50}});
  CHECK(source->info().shape.vocabulary == 96);
  std::vector<std::string> shown;
  for (int64_t i = 0; i < source->size(Split::kTest); ++i)
    shown.push_back(find_dataset("text").show(source->read(Split::kTest, i), source->info()));
  for (const auto& [raw, meant] : printed) {
    CAPTURE(meant);
    CHECK(std::count_if(shown.begin(), shown.end(), [&](const std::string& one) {
            return one.starts_with(fmt::format("{}\n{} bytes, label 0", meant, meant.size()));
          }) == 1);
  }
  HostBatch batch;
  fill_batch(*source, Split::kTest, {{0, 1}, 64}, 2, batch);
  CHECK((batch.whole("tokens")[0] == 'b' - ' ' + 1 &&
         *std::max_element(batch.whole("tokens").begin(), batch.whole("tokens").end()) < 96));
  CHECK(place.open("text")->info().sha256 != source->info().sha256);
}

TEST_CASE("check names inputs that occur twice, in two splits or in one, and leaves out a dev split that is test") {
  const Place place;
  make_reviews(place.folder.path(), 3);
  const auto notes = [&] {
    std::vector<std::string> result;
    for (const CheckItem& item : find_dataset("text").check(options_of("text"), place.location(), {}).items)
      if (item.check.starts_with("no input")) result.push_back(item.detail);
    return result;
  };
  CHECK(notes() == std::vector<std::string>{"none does; dev, which is test, was left out", "none does", "none does"});
  scratch::put(place.folder / "aclImdb/test/neg/0_2.txt", scratch::get(place.folder / "aclImdb/train/neg/0_2.txt"));
  scratch::put(place.folder / "aclImdb/test/pos/1_9.txt", scratch::get(place.folder / "aclImdb/test/pos/0_9.txt"));
  const std::vector<std::string> found = notes();
  REQUIRE(found.size() == 3);
  CHECK_THAT(found[0], Contains("split has too: 1;") && Contains("test:") && Contains("train:"));
  CHECK_THAT(found[1], Contains("has already: 1;") && Contains("test:"));
  CHECK(found[2] == "none does");
  scratch::put(place.folder / "aclImdb/test/pos/2_9.txt", scratch::get(place.folder / "aclImdb/test/neg/1_2.txt"));
  CHECK_THAT(notes()[2], Contains("another answer too: 1;"));
}

TEST_CASE("text: ratings that are not those of their class, and reviews that are not the published ones, are noted") {
  const Place place;
  make_reviews(place.folder.path(), 3);
  scratch::put(place.folder / "aclImdb/train/pos/7_2.txt", "bad");
  scratch::put(place.folder / "aclImdb/test/neg/8_5.txt", "so so");
  const std::string text = find_dataset("text").check(options_of("text"), place.location(), {}).text();
  CHECK_THAT(text, Contains("2; the first: train/pos/7_2.txt"));
  CHECK_THAT(text, Contains("note  the reviews are not the published ones"));
  CHECK_THAT(text, Contains("note  train has 7 reviews"));
  // A note says what is, not the claim that it contradicts.
  CHECK_THAT(text, !Contains("note  there are as many") && !Contains("note  every review"));
  const auto source = place.open("text");
  CHECK(source->name(Split::kTest, 0) == "test/neg/0_2.txt");
  CHECK(source->name(Split::kDev, 4) == source->name(Split::kTest, 4));
  CHECK(example_json(source->read(Split::kTest, 0), *source, Split::kTest, 0).dump() ==
        R"({"split":"test","index":0,"file":"test/neg/0_2.txt","class":"negative","label":0,)"
        R"("tokens":[[117,102,116,117,33,111,102,104,33]]})");
}

TEST_CASE("text: the genuine reviews are the published ones, from their archive and unpacked") {
  const auto imdb = genuine("imdb");
  if (!imdb) {
    SUCCEED("skipped");
    return;
  }
  const Folder cache;
  DataLocation location;
  location.folder = *imdb;
  location.cache = cache.path();
  const std::string text = find_dataset("text").check(options_of("text"), location, {}).text();
  CHECK_THAT(text, Contains("ok    every review is the published one: the 50,000 labelled reviews"));
  CHECK_THAT(text, !Contains("whose stars"));
}

TEST_CASE("text: a missing class folder and no folder at all are one error, and leave no cache") {
  const Place place;
  make_reviews(place.folder.path(), 3);
  std::filesystem::remove_all(place.folder / "aclImdb/train/pos");
  CHECK_THROWS_WITH(place.open("text"), Contains("pos"));
  CHECK(place.cache_is_empty());
  DataLocation nowhere;
  CHECK_THROWS_WITH(find_dataset("text").open(options_of("text"), nowhere, {}),
                    Contains("--data DIR") && Contains("aclImdb"));
}

TEST_CASE("retrieval: pairs of cut documents, both valid on their own") {
  const Place place;
  for (const char* part : {"train", "eval", "test"})
    scratch::put(place.folder / fmt::format("new_aan_pairs.{}.tsv", part),
                 "1.0\ta\tb\tfirst document\tsecond\n0.0\tc\td\tx\tyz\n");
  const auto source = place.open("retrieval", {{"length", 6}});
  CHECK(source->size(Split::kDev) == 2);
  HostBatch batch;
  fill_batch(*source, Split::kTrain, {{0, 1}, 8}, 3, batch);
  REQUIRE(batch.whole("tokens").size() == 3 * 2 * 8);
  CHECK(batch.whole("tokens")[0] == 'f' + 1);
  CHECK(batch.whole("tokens")[8] == 's' + 1);
  CHECK(std::accumulate(batch.key_valid.begin(), batch.key_valid.end(), 0) == 6 + 6 + 1 + 2);
  CHECK(batch.whole("label") == std::vector<int64_t>{1, 0, 0});
  std::filesystem::remove(place.folder / "new_aan_pairs.eval.tsv");
  CHECK_THROWS_WITH(place.open("retrieval"), Contains("new_aan_pairs.eval.tsv") && Contains("found"));
  scratch::put(place.folder / "new_aan_pairs.eval.tsv", "0.5\ta\tb\tx\ty\n");
  CHECK_THROWS_WITH(place.open("retrieval"), Contains("new_aan_pairs.eval.tsv:1"));
}

TEST_CASE("image: grey levels as ids, black as padding or not, from one cache") {
  const Place place;
  std::string batch;
  for (int i = 0; i < 10; ++i) batch.append(1, static_cast<char>(i)).append(3072, static_cast<char>(i * 20));
  for (const char* name :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"})
    scratch::put(place.folder / (std::string(name) + ".bin"), batch);
  const auto source = place.open("image"), clean = place.open("image", {{"mask_zero_pixels", false}});
  CHECK((source->size(Split::kTrain) == 45 && source->size(Split::kDev) == 5 && source->size(Split::kTest) == 10));
  CHECK(source->info().sha256 == clean->info().sha256);
  HostBatch masked, all;
  fill_batch(*source, Split::kTest, {{0, 1}, 1024}, 2, masked);
  fill_batch(*clean, Split::kTest, {{0, 1}, 1024}, 2, all);
  CHECK(std::accumulate(masked.key_valid.begin(), masked.key_valid.end(), 0) == 1024);
  CHECK(std::accumulate(all.key_valid.begin(), all.key_valid.end(), 0) == 2048);
  CHECK(masked.whole("tokens")[1024] == 20);
  CHECK_THAT(find_dataset("image").show(source->read(Split::kTest, 8), source->info()), Contains("ship"));
  scratch::put(place.folder / "test_batch.bin", batch + "x");
  CHECK_THROWS_WITH(place.open("image"), Contains("3,073") || Contains("3073"));
}

namespace {

void put_series(const Path& folder, const std::string& name, const std::string& train, const std::string& test,
                const std::string& labels = "b a") {
  const std::string header = fmt::format(
      "@problemName {}\n@timeStamps false\n@missing false\n@univariate false\n@dimensions 2\n@equalLength false\n"
      "@classLabel true {}\n@data\n",
      name, labels);
  scratch::put(folder / (name + "_TRAIN.ts"), header + train);
  scratch::put(folder / (name + "_TEST.ts"), header + test);
}

}  // namespace

TEST_CASE("uea: standardised by train, labels in the header's order, one length, protocols' dev") {
  const Place place;
  std::filesystem::create_directories(place.folder / "Tiny");
  put_series(place.folder / "Tiny", "Tiny", "1,3:5,5:b\n5,7:5,5:a\n1,3:5,5:b\n5,7:5,5:a\n", "4,4,4:6,6,6:a\n");
  const auto source = place.open("uea/Tiny");
  CHECK((source->size(Split::kTrain) == 4 && source->size(Split::kDev) == 1 && source->size(Split::kTest) == 1));
  const DataShape& shape = source->info().shape;
  CHECK((shape.max_len == 3 && shape.width == 2 && shape.target.classes() == 2 && shape.vocabulary == 0));
  CHECK(source->read(Split::kTrain, 0).label == 0);
  CHECK(source->read(Split::kTest, 0).label == 1);
  const double deviation = std::sqrt(40.0 / 7);  // of 1 3 5 7 1 3 5 7 around 4
  CHECK(source->read(Split::kTrain, 1).values[2] == Approx(3 / deviation));
  CHECK(source->read(Split::kTest, 0).values[0] == 0);
  HostBatch batch;
  fill_batch(*source, Split::kTrain, {{1}, 3}, 2, batch);
  CHECK(batch.key_valid == std::vector<uint8_t>{1, 1, 0, 0, 0, 0});
  CHECK(batch.numbers("values")[2] == Approx(3 / deviation));
  const auto held = place.open("uea/Tiny", {{"dev", "holdout"}});
  CHECK((held->size(Split::kTrain) == 2 && held->size(Split::kDev) == 2));
  CHECK(find_dataset("uea/Tiny").check(options_of("uea/Tiny"), place.location(), {}).passed);
  CHECK_THAT(find_dataset("uea/Tiny").show(source->read(Split::kTest, 0), source->info()), Contains("label 1 (a)"));
}

TEST_CASE("uea: headers that contradict rows, and sets that are not there") {
  const Place place;
  put_series(place.folder.path(), "Tiny", "1,3:5,5:b\n1,2:3,4:c\n", "4,4:6,6:a\n");
  CHECK_THROWS_WITH(place.open("uea/Tiny"), Contains("Tiny_TRAIN.ts:10"));
  CHECK(place.cache_is_empty());
  CHECK_THROWS_WITH(place.open("uea/Other"), Contains("Other_TRAIN"));
  std::filesystem::create_directories(place.folder / "JapaneseVowels");
  CHECK_THROWS_WITH(place.open("uea/JapanesVowels"), Contains("did you mean 'JapaneseVowels'?"));
  put_series(place.folder.path(), "Same", "1,3:5,5:b\n1,2:3,4:b\n", "4,4:6,6:a\n");
  CHECK_THROWS_WITH(place.open("uea/Same"), Contains("Same_TRAIN.ts") && Contains("one class"));
}

TEST_CASE("uea: a check names variables and classes, rare classes are noted, faults of test have file and line") {
  const Place place;
  put_series(place.folder.path(), "Tiny", "1,3:5,6:b\n5,7:5,5:a\n1,3:5,5:b\n", "4,4,4:6,6,6:a\n");
  const auto checked = [&] {
    return find_dataset("uea/Tiny").check(options_of("uea/Tiny", {{"dev", "test"}}), place.location(), {}).text();
  };
  CHECK_THAT(checked(), Contains("2 variables, at most 3 steps, 2 classes: b, a"));
  CHECK_THAT(checked(), Contains("note  only one training example of class 'a'"));
  put_series(place.folder.path(), "Tiny", "1,3:5,6:b\n5,7:5,5:a\n1,3:5,5:b\n", "4,4,4:6,6,6:a\n4,4,3e38:6,6,6:b\n");
  CHECK_NOTHROW(checked());
  put_series(place.folder.path(), "Tiny", "0,1e-30:5,6:b\n0,0:5,5:a\n0,0:5,5:b\n", "4,4,4:6,6,6:a\n4,4,3e38:6,6,6:b\n");
  CHECK_THROWS_WITH(checked(), Contains((place.folder / "Tiny_TEST.ts").string() + ":10"));
}

TEST_CASE("uea: an archive that holds something else says what, not where the cache lies") {
  const Place place;
  scratch::put(place.folder / "Tiny.zip",
               scratch::archive_of(scratch::ArchiveKind::kZip,
                                   {{"Tiny/inner.zip", "PK", AE_IFREG, ""}, {"Tiny/notes.txt", "none", AE_IFREG, ""}}));
  const std::string message = scratch::message_of<DataError>([&] { (void)place.open("uea/Tiny"); });
  CHECK_THAT(message,
             Contains((place.folder / "Tiny.zip").string()) && Contains("found Tiny/inner.zip, Tiny/notes.txt"));
  CHECK_THAT(message, !Contains(place.cache.path().string()));
}

TEST_CASE("tabular: numbers, codes and targets of a CSV by its schema") {
  const Place place;
  scratch::put(place.folder / "train.csv", "size,colour,price\n1,red,10\n2,blue,20\n3,red,30\n4,red,60\n");
  scratch::put(place.folder / "val.csv", "size,colour,price\n1,red,10\n");
  scratch::put(place.folder / "test.csv", "size,colour,price\n2,green,20\n");
  const Json options{{"schema", "target=price categorical=colour kind=regression"}, {"normalisation", "standard"}};
  const auto source = place.open("tabular/houses", options);
  const DataShape& shape = source->info().shape;
  CHECK((shape.max_len == 2 && shape.width == 1 && shape.target.kind == "regression"));
  CHECK(shape.categories == std::vector<int64_t>{3});  // blue, red, and what train lacks
  const double mean = 30, deviation = std::sqrt((400.0 + 100 + 0 + 900) / 4);
  CHECK(shape.target.parameters["scale"].get<double>() == Approx(deviation));
  CHECK(source->read(Split::kTrain, 3).target == Approx((60 - mean) / deviation));
  CHECK(source->read(Split::kTrain, 3).values[0] == Approx(1.5 / std::sqrt(1.25)));
  CHECK(source->read(Split::kTrain, 0).values[1] == 1);
  CHECK(source->read(Split::kTest, 0).values[1] == 2);
  CHECK(source->info().details["unseen_categories"]["test"]["colour"] == 1);
  // What a run writes there is no file of the table; one that takes the place of another is.
  std::filesystem::create_directories(place.folder / "runs");
  scratch::put(place.folder / "runs" / "train.csv", "size,colour,price\n");
  scratch::put(place.folder / "notes.txt", "by whom");
  static_cast<void>(place.open("tabular/houses", options));
  CHECK(scratch::names_in(place.cache / "tabular" / "houses").size() == 2);  // one cache, and the lock
  std::filesystem::rename(place.folder / "train.csv", place.folder / "other");
  std::filesystem::rename(place.folder / "val.csv", place.folder / "train.csv");
  std::filesystem::rename(place.folder / "other", place.folder / "val.csv");
  CHECK_THROWS_WITH(place.open("tabular/houses", options), Contains("train.csv: the target is 10 in all 1 rows"));
  std::filesystem::rename(place.folder / "train.csv", place.folder / "other");
  std::filesystem::rename(place.folder / "val.csv", place.folder / "train.csv");
  std::filesystem::rename(place.folder / "other", place.folder / "val.csv");
  scratch::put(place.folder / "test.csv", "size,colour,price\nbig,green,20\n");
  CHECK_THROWS_WITH(place.open("tabular/houses", options), Contains("test.csv:2") && Contains("size"));
  CHECK_THROWS_AS(find_dataset("tabular/houses").check_options(options_of("tabular/houses", {{"schema", "trget=x"}})),
                  UserError);
}

TEST_CASE("the samples of the repository open, and are the files that their manifests name") {
  const Path datasets = Path(__FILE__).parent_path() / "../../datasets";
  const Folder cache;
  const std::vector<std::pair<std::string, Json>> tasks{
      {"text", Json::object()},
      {"retrieval", Json::object()},
      {"image", Json::object()},
      {"uea/Waves", Json::object()},
      {"pathfinder32", Json::object()},
      {"smnist/strokes", Json::object()},
      {"speech-commands/tones", {{"rate", 8000}, {"length", 300}}},
      {"tabular/rents", {{"schema", "target=rent categorical=heating kind=regression"}}}};
  for (const auto& [task, options] : tasks) {
    CAPTURE(task);
    const std::string dataset = task == "pathfinder32" ? "pathfinder" : task.substr(0, task.find('/'));
    const Json manifest = Json::parse(scratch::get(datasets / dataset / "manifest.json"));
    CHECK(manifest.at("name") == dataset);
    for (const Json& file : manifest.at("sample"))
      CHECK(sha256_of_file(datasets / dataset / file.at("path").get<std::string>()) == file.at("sha256"));
    DataLocation location;
    location.folder = datasets / dataset / "sample";
    if (dataset == "tabular") location.folder /= "rents";
    location.cache = cache.path();
    const auto source = find_dataset(task).open(options_of(task, options), location, {});
    for (const Split split : kAllSplits) CHECK(source->size(split) > 0);
  }
}

TEST_CASE("genuine sets come through their adapters with the published counts") {
  const auto uea = genuine("uea");
  if (!uea) {
    SUCCEED("skipped");
    return;
  }
  const Path tabular = uea->parent_path() / "tabular";
  const Folder cache;
  const auto open = [&](const std::string& task, const Path& folder) {
    DataLocation location;
    location.folder = folder;
    location.cache = cache.path();
    const CheckReport report = find_dataset(task).check(options_of(task), location, {});
    CAPTURE(task, report.json().dump(1));
    CHECK(report.passed);
    for (const CheckItem& item : report.items)  // a table may say the same of two people, and these sets have no dev
      CHECK((item.outcome == CheckOutcome::kPassed || item.check.starts_with("no input occurs") ||
             (task.starts_with("uea/") && item.check == "dev and test are two splits")));
    return find_dataset(task).open(options_of(task), location, {});
  };
  CHECK(open("uea/JapaneseVowels", *uea)->info().shape.max_len == 29);
  CHECK(open("uea/Handwriting", *uea / "Handwriting")->size(Split::kTest) == 850);
  const auto houses = open("tabular/california-housing", tabular / "california_housing");
  CHECK(houses->info().shape.target.parameters["scale"].get<double>() == Approx(1.15).epsilon(0.02));
  CHECK(open("tabular/adult", tabular / "adult")->info().shape.categories ==
        find_dataset("tabular/adult").shape(options_of("tabular/adult")).categories);
}

}  // namespace xformer::packed_adapters_test
