// Whatever lies where data was expected, opening a task ends in an error of ours that says so, and never waits.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <set>

#include "adapter_place.h"
#include "core/error.h"
#include "data/check.h"

namespace xformer::odd_places_test {

using namespace data;
using adapter_place::options_of;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

struct Sample {
  const char *task, *folder;
  Json options = Json::object();
};

const std::vector<Sample> kSamples{
    {"listops", "listops/sample"},
    {"text", "text/sample"},
    {"retrieval", "retrieval/sample"},
    {"image", "image/sample"},
    {"image-folder", "image-folder/sample", {{"side", 16}, {"patch", 8}}},
    {"pathfinder32", "pathfinder/sample"},
    {"uea/Waves", "uea/sample"},
    {"tabular/rents", "tabular/sample/rents", {{"schema", "target=rent categorical=heating kind=regression"}}},
    {"bytes/notes", "bytes/sample", {{"length", 32}}},
    {"longdoc/places", "longdoc/sample"},
    {"summarise/harbour", "summarise/sample"},
    {"qa/harbour", "qa/sample"},
    {"genome/gates", "genome/sample"},
    {"scifar", "image/sample"},
    {"smnist/strokes", "smnist/sample"},
    {"speech-commands/tones", "speech-commands/sample", {{"rate", 8000}, {"length", 300}}},
    {"transactions/mine",
     "transactions/sample",
     {{"schema", "dates=iso label=late categorical=kind,channel amounts=sum"}}}};

// What is put in the place of a file or a folder that is gone.
struct Condition {
  const char* name;
  std::function<void(const Path& place)> make;
};

const std::vector<Condition> kConditions{
    {"nothing", [](const Path&) {}},
    {"a folder", [](const Path& place) { fs::create_directory(place); }},
    {"another file", [](const Path& place) { scratch::put(place, "none\n"); }},
    {"an empty file", [](const Path& place) { scratch::put(place, ""); }},
    {"an archive", [](const Path& place) { scratch::put(place, std::string("PK\3\4") + std::string(60, '\0')); }},
    {"a pointer",
     [](const Path& place) { scratch::put(place, "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"); }},
    {"a link that leads nowhere", [](const Path& place) { fs::create_symlink("nowhere", place); }},
    {"a link to itself", [](const Path& place) { fs::create_symlink(place.filename(), place); }},
    {"a pipe", [](const Path& place) { REQUIRE(::mkfifo(place.c_str(), 0666) == 0); }},
    {"a device", [](const Path& place) { fs::create_symlink("/dev/null", place); }},
    {"a folder that may not be read",
     [](const Path& place) {
       fs::create_directory(place);
       fs::permissions(place, fs::perms::none);
     }},
    {"a file that may not be read", [](const Path& place) {
       scratch::put(place, "none");
       fs::permissions(place, fs::perms::none);
     }}};

// Root may read everything; nobody may not.
class AsNobody {
 public:
  AsNobody() {
    if (::geteuid() == 0) was_root_ = ::seteuid(65534) == 0;
  }
  ~AsNobody() {
    if (was_root_ && ::seteuid(0) != 0) std::abort();
  }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  bool was_root_ = false;
};

// The sample in a folder that is writable for all, and a cache that is.
struct Copy {
  scratch::Folder folder, cache;
  Path data = folder / "data";
  explicit Copy(const Sample& sample) {
    fs::copy(Path(__FILE__).parent_path() / "../../datasets" / sample.folder, data, fs::copy_options::recursive);
    for (const Path& place : {folder.path(), cache.path()}) fs::permissions(place, fs::perms::all);
  }
  ~Copy() {
    for (const auto& entry :
         fs::recursive_directory_iterator(data, fs::directory_options::skip_permission_denied, error))
      if (!entry.is_symlink()) fs::permissions(entry.path(), fs::perms::owner_all, error);
  }
  std::error_code error;
};

// What came of opening or checking: "" for success, "3" or "4" and the message for an error of ours.
std::string ended(const std::function<void()>& action) {
  try {
    action();
    return "";
  } catch (const DataError& error) {
    return std::string("3 ") + error.what();
  } catch (const ResourceError& error) {
    return std::string("4 ") + error.what();
  } catch (const std::exception& error) {
    return std::string("70 ") + error.what();
  }
}

void try_all(const Sample& sample, const Path& place, const Condition& condition) {
  const DatasetDescriptor& dataset = find_dataset(sample.task);
  const Json options = options_of(sample.task, sample.options);
  CAPTURE(sample.task, place.string(), condition.name);
  const Copy copy(sample);
  fs::remove_all(copy.data / place);
  const Path changed = place.empty() ? copy.data : copy.data / place;
  condition.make(changed);
  DataLocation location;
  location.folder = copy.data;
  location.cache = copy.cache.path();
  const AsNobody nobody;
  const std::string opened = ended([&] { static_cast<void>(dataset.open(options, location, {})); });
  location.require_all_splits = false;
  const std::string checked = ended([&] { static_cast<void>(dataset.check(options, location, {})); });
  for (const std::string& end : {opened, checked}) {
    CAPTURE(end);
    CHECK(!end.starts_with("70"));
    CHECK(end.find("XFORMER_CACHE") == std::string::npos);  // the cache is not what is wrong
    if (place.empty()) CHECK(!end.empty());
  }
}

}  // namespace

TEST_CASE("whatever lies in the place of a task's files or folders is an error of ours, or does not matter") {
  for (const Sample& sample : kSamples) {
    std::vector<Path> places{Path()};
    {
      const Copy copy(sample);
      std::set<std::string> seen;  // one file stands for all of its folder and kind
      for (const auto& entry : fs::recursive_directory_iterator(copy.data)) {
        const Path place = fs::relative(entry.path(), copy.data);
        const std::string task = sample.task;
        const bool each = task == "tabular/rents" || task == "transactions/mine";
        const std::string kind = each ? place.stem() : place.extension();
        if (entry.is_directory() || seen.insert((place.parent_path() / kind).string()).second) places.push_back(place);
      }
    }
    for (const Path& place : places)
      for (const Condition& condition : kConditions) try_all(sample, place, condition);
  }
}

TEST_CASE("what cannot be read is named for what it is") {
  const auto refusal = [](const Sample& sample, const std::string& place, const char* condition) {
    const Copy copy(sample);
    const Path changed = place.empty() ? copy.data : copy.data / place;
    fs::remove_all(changed);
    for (const Condition& one : kConditions)
      if (one.name == std::string(condition)) one.make(changed);
    DataLocation location;
    location.folder = copy.data;
    location.cache = copy.cache.path();
    const AsNobody nobody;
    return ended([&] {
      static_cast<void>(find_dataset(sample.task).open(options_of(sample.task, sample.options), location, {}));
    });
  };
  const Sample &listops = kSamples[0], &text = kSamples[1], &retrieval = kSamples[2], &images = kSamples[4];
  CHECK_THAT(refusal(listops, "basic_val.tsv", "a folder"), Contains("basic_val.tsv: expected a file, found a folder"));
  CHECK_THAT(refusal(listops, "basic_val.tsv", "a pipe"), Contains("basic_val.tsv: expected a file, found a pipe"));
  CHECK_THAT(refusal(listops, "basic_val.tsv", "a device"), Contains("found a device"));
  CHECK_THAT(refusal(listops, "basic_val.tsv", "a link that leads nowhere"),
             Contains("basic_val.tsv (a link that leads nowhere)"));
  CHECK_THAT(refusal(listops, "basic_val.tsv", "a file that may not be read"),
             Contains("4 cannot read") && Contains("basic_val.tsv: Permission denied"));
  CHECK_THAT(refusal(listops, "basic_val.tsv", "a pointer"), Contains("git lfs pull"));
  CHECK_THAT(refusal(text, "aclImdb/test", "nothing"), Contains("3 no folder") && Contains("aclImdb/test/neg"));
  CHECK_THAT(refusal(text, "aclImdb/test/pos", "a link that leads nowhere"), Contains("aclImdb/test/pos"));
  CHECK_THAT(refusal(retrieval, "new_aan_pairs.eval.tsv", "a folder"),
             Contains("new_aan_pairs.eval.tsv: expected a file, found a folder"));
  CHECK_THAT(refusal(images, "", "an archive"), Contains("found the file") && Contains("unpacked first"));
  CHECK_THAT(refusal(images, "", "a pipe"), Contains("expected a folder or a file, found a pipe"));
  CHECK_THAT(refusal(images, "", "a link to itself"), Contains("a link that leads to itself"));
  CHECK_THAT(refusal(images, "", "nothing"), Contains("there is no file or folder"));
}

TEST_CASE("a folder beside the one that was meant is found or offered") {
  const auto open = [](const Sample& sample, const Copy& copy, const Path& folder) {
    DataLocation location;
    location.folder = folder;
    location.cache = copy.cache.path();
    return ended([&] {
      static_cast<void>(find_dataset(sample.task).open(options_of(sample.task, sample.options), location, {}));
    });
  };
  for (const Sample& sample : kSamples) {
    CAPTURE(sample.task);
    const Copy copy(sample);
    fs::create_directory(copy.folder / "other");
    const bool found = std::string(sample.task) == "image-folder";  // archives bring folders of their own
    const std::string outside = open(sample, copy, copy.folder.path());
    if (found) CHECK(outside.empty());
    else if (std::string(sample.task).starts_with("tabular/")) CHECK_THAT(outside, Contains("no table in"));
    else CHECK_THAT(outside, Contains("did you mean --data " + copy.data.string() + "?"));
    CHECK_THAT(open(sample, copy, copy.folder / "other"), !Contains("did you mean"));
  }
  const Copy reviews(kSamples[1]), table(kSamples[7]);
  CHECK_THAT(open(kSamples[1], reviews, reviews.data / "aclImdb" / "train"),
             Contains("did you mean --data " + (reviews.data / "aclImdb").string() + "?"));
  fs::create_directory(table.folder / "deep");
  fs::rename(table.data, table.folder / "deep" / "Rents");
  CHECK(open(kSamples[7], table, table.folder.path()).empty());  // by the set's name
  fs::create_directory(table.data);
  Sample wrong = kSamples[7];
  wrong.task = "tabular/rent";
  CHECK_THAT(open(wrong, table, table.folder / "deep"), Contains("did you mean tabular/Rents?"));
}

}  // namespace xformer::odd_places_test
