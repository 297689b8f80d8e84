// ListOps as the rest of the program sees it: options, files, generator, cache.
#include <catch2/catch.hpp>
#include <cerrno>

#include "core/error.h"
#include "core/hash.h"
#include "data/datasets.h"
#include "listops_text.h"
#include "readers/listops.h"
#include "scratch.h"

namespace xformer::listops_adapter_test {

using namespace data;
using Catch::Matchers::Contains;
using scratch::Folder;

DatasetDescriptor descriptor() { return find_dataset("listops"); }

DataLocation location(const Path& folder, const Path& cache, bool require_all_splits = true) {
  return {folder, cache, require_all_splits};
}

std::unique_ptr<DataSource> open(const Path& folder, const Path& cache, const Json& options = Json::object(),
                                 bool require_all_splits = true) {
  return descriptor().open(options, location(folder, cache, require_all_splits), {});
}

std::string refusal(const Path& folder, const Path& cache, bool require_all_splits = true) {
  return scratch::message_of<DataError>([&] { (void)open(folder, cache, Json::object(), require_all_splits); });
}

const Json kSmall{{"train_examples", 20}, {"dev_examples", 4}, {"test_examples", 3}};

TEST_CASE("the descriptor states classes, vocabulary, length and what only the generator reads") {
  const DatasetDescriptor listops = descriptor();
  CHECK(listops.name == "listops");
  const DataShape shape = listops.shape(Json::object());
  CHECK((shape.target.classes() == 10 && shape.vocabulary == 16 && !listops.accepts_length));
  CHECK(shape.max_len == 2000);
  CHECK(listops.shape({{"max_length", 600}}).max_len == 600);
  CHECK(listops.generator_options == std::vector<std::string>{"min_length", "max_depth", "max_args", "train_examples",
                                                              "dev_examples", "test_examples", "generator_seed"});
  CHECK(listops.options.size() == 14);
}

TEST_CASE("without a folder the generator makes the data, once") {
  const Folder cache;
  const auto source = open({}, cache.path(), kSmall);
  CHECK((source->size(Split::kTrain) == 20 && source->size(Split::kDev) == 4 && source->size(Split::kTest) == 3));
  CHECK(source->info().origin == "generated");
  CHECK(source->info().details["generator"]["train_examples"] == 20);
  CHECK(source->info().details["generator"]["generator_seed"] == 0);
  CHECK(source->info().details["vocabulary_sha256"] == readers::listops::vocabulary_sha256());
  std::vector<std::string> told;
  const auto again = descriptor().open(kSmall, location({}, cache.path()),
                                       [&](std::string_view what, uint64_t, uint64_t) { told.emplace_back(what); });
  CHECK(told.empty());
  CHECK(again->info().sha256 == source->info().sha256);
  Json other = kSmall;
  other["generator_seed"] = 1;
  CHECK(open({}, cache.path(), other)->info().sha256 != source->info().sha256);
}

TEST_CASE("impossible generator settings are refused before anything is written") {
  const Folder cache;
  CHECK_THROWS_AS(open({}, cache.path(), {{"min_length", 10}, {"max_length", 11}}), UserError);
  CHECK_THROWS_AS(open({}, cache.path(), {{"max_args", 1}}), UserError);
  CHECK(scratch::names_in(cache.path()).empty());
}

TEST_CASE("files are read under all their names, and equal content has an equal hash") {
  const Folder folder, cache;
  const std::array<const char*, 3> parts{"train", "val", "test"};
  std::string hash;
  for (const char* separator : {"_", "."}) {
    const Path data = folder / (std::string("by") + separator);
    std::filesystem::create_directory(data);
    listops_text::put_splits(data);
    for (const char* part : parts)
      std::filesystem::rename(data / (std::string("basic_") + part + ".tsv"),
                              data / (std::string("basic") + separator + part + ".tsv"));
    const auto source = open(data, cache.path());
    CHECK((source->size(Split::kTrain) == 3 && source->size(Split::kDev) == 1 && source->size(Split::kTest) == 2));
    CHECK(source->info().origin == "files");
    CHECK(source->info().details["files"]["dev"]["name"] == std::string("basic") + separator + "val.tsv");
    CHECK(source->info().details["files"]["train"]["sha256"].get<std::string>().size() == 64);
    if (hash.empty()) hash = source->info().sha256;
    CHECK(source->info().sha256 == hash);
  }
}

TEST_CASE("a changed file is packed anew, an unchanged one is not read") {
  const Folder folder, cache;
  listops_text::put_splits(folder.path());
  const std::string before = open(folder.path(), cache.path())->info().sha256;
  scratch::put(folder / "basic_val.tsv", "Source\tTarget\n[MED 1 8 ]\t4\n3\t3\n");
  const auto changed = open(folder.path(), cache.path());
  CHECK(changed->size(Split::kDev) == 2);
  CHECK(changed->info().sha256 != before);
}

TEST_CASE("expressions of files are cut on the right at max_length, which is counted") {
  const Folder folder, cache;
  listops_text::put_splits(folder.path());
  const auto source = open(folder.path(), cache.path(), {{"max_length", 4}});
  CHECK(source->read(Split::kTrain, 1).ids[0].size() == 4);
  CHECK(source->info().details["cut_to_max_length"] == 1);
  CHECK_THAT(descriptor().show(source->read(Split::kTrain, 1), source->info()),
             Contains("[MAX 4 [MIN 2") && Contains("cannot be evaluated"));
}

TEST_CASE("an example is shown with its length, label and value") {
  const Folder folder, cache;
  listops_text::put_splits(folder.path());
  const auto source = open(folder.path(), cache.path());
  CHECK(descriptor().show(source->read(Split::kTrain, 1), source->info()) ==
        "[MAX 4 [MIN 2 3 ] ]\nlength 7, label 4, evaluates to 4");
}

TEST_CASE("rows that occur in two splits are counted and the first pair is named") {
  const Folder folder, cache;
  listops_text::put_splits(folder.path());
  scratch::put(folder / "basic_test.tsv", "Source\tTarget\n[SM 5 5 ]\t0\n( ( ( [SM 1 ) 2 ) ] )\t3\n7\t7\n7\t7\n");
  const Json details = open(folder.path(), cache.path())->info().details;
  CHECK(details["duplicates_across_splits"] == 2);
  CHECK(details["first_duplicate_across_splits"] == "basic_test.tsv:3 repeats basic_train.tsv:2");
  CHECK(details["duplicates_within_splits"]["test"] == 1);
  CHECK(details["duplicates_within_splits"]["train"] == 0);
}

TEST_CASE("a folder without a split is refused with what was looked for and what is there") {
  const Folder folder, cache;
  listops_text::put_splits(folder.path());
  std::filesystem::remove(folder / "basic_val.tsv");
  CHECK_THAT(refusal(folder.path(), cache.path()), Contains("no dev split in " + folder.path().string()) &&
                                                       Contains("basic_val.tsv, basic_val.tsv.gz") &&
                                                       Contains("found basic_test.tsv, basic_train.tsv"));
  const auto partial = open(folder.path(), cache.path(), Json::object(), false);
  CHECK((partial->size(Split::kTrain) == 3 && partial->size(Split::kDev) == 0 && partial->size(Split::kTest) == 2));
}

TEST_CASE("a folder without any file, no folder and a file in its place are refused") {
  const Folder folder, cache;
  CHECK_THAT(refusal(folder.path(), cache.path(), false), Contains("the folder is empty") && Contains("test_d20s.tsv"));
  CHECK_THAT(refusal(folder / "none", cache.path()),
             Contains("no file or folder") && Contains((folder / "none").string()));
  CHECK_THAT(refusal(scratch::put(folder / "file", "x"), cache.path()), Contains("found the file"));
}

TEST_CASE("the original test set is a test split only") {
  const Folder folder, cache;
  scratch::put(folder / "test_d20s.tsv", "3\t( ( ( [SM 1 ) 2 ) ] )\n7\t7\n");
  const auto source = open(folder.path(), cache.path(), Json::object(), false);
  CHECK((source->size(Split::kTrain) == 0 && source->size(Split::kTest) == 2));
  CHECK(source->info().details["layout"] == "original");
  CHECK_THAT(refusal(folder.path(), cache.path()), Contains("no train split") && Contains("a test split only"));
}

TEST_CASE("every kind of bad file is one DataError with file and line, and leaves no cache") {
  struct Case {
    const char* content;
    const char* where;
    const char* said;
  };
  const auto bad = GENERATE(Case{"", "basic_val.tsv", "is empty"},
                            Case{"Quelle\tZiel\n1\t1\n", "basic_val.tsv:1:", "expected the header"},
                            Case{"Source\tTarget\n1\t1\n2\t12\n", "basic_val.tsv:3:", "label from 0 to 9"},
                            Case{"Source\tTarget\n[MIX 1 2 ]\t2\n", "basic_val.tsv:2:", "'[MIX'"},
                            Case{"\x1f\x8b\x08", "basic_val.tsv", "cut off"});
  const Folder folder, cache;
  listops_text::put_splits(folder.path());
  scratch::put(folder / "basic_val.tsv", bad.content);
  CHECK_THAT(refusal(folder.path(), cache.path()),
             Contains((folder.path() / bad.where).string()) && Contains(bad.said));
  CHECK(scratch::names_in(cache.path() / "listops") == std::vector<std::string>{".lock"});
}

TEST_CASE("a line of 10 MB is refused with file and line") {
  const Folder folder, cache;
  listops_text::put_splits(folder.path());
  scratch::put(folder / "basic_train.tsv", "Source\tTarget\n" + std::string(10'000'000, '1') + "\t1\n");
  CHECK_THAT(refusal(folder.path(), cache.path()), Contains("basic_train.tsv:2:") && Contains("1.0 MB"));
}

TEST_CASE("a full disk while the cache is built is a ResourceError and leaves no cache") {
  const Folder folder, cache;
  listops_text::put_splits(folder.path());
  const scratch::Fault fault(0, ENOSPC);
  CHECK_THAT(scratch::message_of<ResourceError>([&] { (void)open(folder.path(), cache.path()); }),
             Contains("No space left") && Contains(cache.path().string()));
  CHECK(scratch::names_in(cache.path() / "listops") == std::vector<std::string>{".lock"});
}

TEST_CASE("the sample of the repository opens as it is described in its manifest") {
  const Folder cache;
  const Path dataset = Path(__FILE__).parent_path() / "../../datasets/listops";
  const Json manifest = Json::parse(scratch::get(dataset / "manifest.json"));
  const auto source = open(dataset / "sample", cache.path());
  for (const Split split : kAllSplits) {
    const Json& file = manifest.at("sample").at(split_name(split));
    CHECK(source->size(split) == file.at("examples").get<int64_t>());
    CHECK(sha256_of_file(dataset / file.at("path").get<std::string>()) == file.at("sha256"));
  }
  CHECK(manifest.at("name") == descriptor().name);
  CHECK(manifest.at("classes") == descriptor().shape(Json::object()).target.classes());
  CHECK(manifest.at("vocabulary_sha256") == readers::listops::vocabulary_sha256());
}

TEST_CASE("the real files pack, whole and without a repeated row") {
  const auto folder = scratch::real_data("listops");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with listops/");
    SUCCEED();
    return;
  }
  const Folder cache;
  const auto arena = open(*folder / "lra_script_output", cache.path());
  CHECK(arena->info().sizes == std::array<int64_t, 3>{2000, 500, 500});
  CHECK(arena->info().details["duplicates_across_splits"] == 0);
  CHECK(arena->info().details["cut_to_max_length"] == 0);
  const auto original = open(*folder, cache.path(), Json::object(), false);
  CHECK(original->info().sizes == std::array<int64_t, 3>{0, 0, 10000});
}

}  // namespace xformer::listops_adapter_test
