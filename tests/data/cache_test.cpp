// The packed cache: built once, whole or absent, and checked before it is believed.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>

#include "core/error.h"
#include "core/hash.h"
#include "data/cache/cache.h"
#include "scratch.h"

namespace xformer::cache_test {

using namespace data;
using Catch::Matchers::Contains;
using scratch::Folder;

CacheRequest request_in(const Path& cache, int64_t variant = 0) {
  return {cache, "sample", Json{{"adapter", 1}, {"variant", variant}}};
}

// Three train examples (one empty), one dev example, no test example.
void build_sample(const AddExample& add, DataInfo& info) {
  const std::vector<uint8_t> tokens{1, 2, 3, 4, 5};
  info.shape = {.max_len = 5, .vocabulary = 16, .target = class_target(10)};
  add(Split::kTrain, {{tokens}, {}, 9});
  add(Split::kTrain, {{}, {}, 0});
  add(Split::kDev, {{std::span(tokens).first(1)}, {}, 3});
  add(Split::kTrain, {{std::span(tokens).last(2)}, {}, 7});
  info.origin = "files";
  info.details = {{"colour", "blue"}};
  info.dropped = {{Split::kDev, "unreadable", 2}};
}

std::unique_ptr<DataSource> open_sample(const Path& cache) { return open_cached(request_in(cache), build_sample, {}); }

void check_sample(const DataSource& source) {
  REQUIRE(source.size(Split::kTrain) == 3);
  CHECK(source.size(Split::kDev) == 1);
  CHECK(source.size(Split::kTest) == 0);
  const auto tokens = [&](Split split, int64_t index) {
    const std::span<const uint8_t> ids = source.read(split, index).ids[0];
    return std::vector<uint8_t>(ids.begin(), ids.end());
  };
  CHECK(tokens(Split::kTrain, 0) == std::vector<uint8_t>{1, 2, 3, 4, 5});
  CHECK(tokens(Split::kTrain, 1).empty());
  CHECK(tokens(Split::kTrain, 2) == std::vector<uint8_t>{4, 5});
  CHECK(tokens(Split::kDev, 0) == std::vector<uint8_t>{1});
  CHECK(source.read(Split::kTrain, 0).label == 9);
  CHECK(source.read(Split::kTrain, 2).label == 7);
  CHECK_THROWS_AS(source.read(Split::kTrain, 3), InternalError);
  CHECK_THROWS_AS(source.read(Split::kTest, 0), InternalError);
}

// Of the dataset's folder without the lock file, which stays.
std::vector<std::string> left_in(const Path& cache) {
  std::vector<std::string> names;
  if (std::filesystem::exists(cache / "sample")) names = scratch::names_in(cache / "sample");
  std::erase(names, ".lock");
  return names;
}

void never_build(const AddExample&, DataInfo&) { throw std::logic_error("the raw data was read again"); }

std::string damage(const Path& cache) {
  return scratch::message_of<DataError>([&] { (void)open_cached(request_in(cache), never_build, {}); });
}

TEST_CASE("a cache gives what was added, and a second opening maps without building") {
  const Folder folder;
  check_sample(*open_sample(folder.path()));
  const auto again = open_cached(request_in(folder.path()), never_build, {});
  check_sample(*again);
  const DataInfo& info = again->info();
  CHECK(info.origin == "files");
  CHECK(info.sizes == std::array<int64_t, 3>{3, 1, 0});
  CHECK(info.details == Json{{"colour", "blue"}});
  REQUIRE(info.dropped.size() == 1);
  CHECK((info.dropped[0].split == Split::kDev && info.dropped[0].reason == "unreadable" && info.dropped[0].count == 2));
  const std::vector<std::string> names = left_in(folder.path());
  REQUIRE(names.size() == 1);
  CHECK(names[0].size() == 16);
  CHECK(scratch::names_in(folder.path() / "sample" / names[0]) ==
        std::vector<std::string>{"dev.bin", "manifest.json", "test.bin", "train.bin"});
}

TEST_CASE("a cache gives back every fact of its shape") {
  const Folder folder;
  const DataShape shape{.max_len = 9,
                        .vocabulary = 16,
                        .id_offset = 1,
                        .zero_is_padding = false,
                        .sequences = 2,
                        .side = 3,
                        .channels = 4,
                        .categories = {5, 6},
                        .target = class_target(9, {.top5 = true, .mixed = true})};
  const auto build = [&](const AddExample&, DataInfo& info) { info.shape = shape; };
  (void)open_cached(request_in(folder.path()), build, {});
  CHECK(open_cached(request_in(folder.path()), never_build, {})->info().shape == shape);
}

TEST_CASE("a cache made while targets were three numbers is still read") {
  const Folder folder;
  open_sample(folder.path());
  const Path manifest = cache_entry(request_in(folder.path())) / "manifest.json";
  Json json = Json::parse(scratch::get(manifest));
  const auto target_of = [&](int number, int64_t classes) {
    json["info"]["shape"].update(
        {{"target", number}, {"classes", classes}, {"target_scale", 2.5}, {"tolerance", 0.25}});
    scratch::put(manifest, json.dump());
    return open_cached(request_in(folder.path()), never_build, {})->info().shape.target;
  };
  CHECK(target_of(0, 10) == class_target(10));
  CHECK(target_of(2, 0) == number_target(2.5, 0.25));
  CHECK_THROWS_AS(target_of(3, 0), DataError);
}

TEST_CASE("the content hash depends on the content alone") {
  const Folder folder;
  const std::string hash = open_sample(folder / "a")->info().sha256;
  CHECK(hash.size() == 64);
  CHECK(open_cached(request_in(folder / "b", 1), build_sample, {})->info().sha256 == hash);
  const auto other = [](const AddExample& add, DataInfo& info) {
    build_sample(add, info);
    add(Split::kTest, {{}, {}, 0});
  };
  CHECK(open_cached(request_in(folder / "c"), other, {})->info().sha256 != hash);
  const auto relabelled = [](const AddExample& add, DataInfo& info) {
    build_sample([&](Split split, const Example& example) { add(split, {example.ids, {}, 1}); }, info);
  };
  CHECK(open_cached(request_in(folder / "d"), relabelled, {})->info().sha256 != hash);
}

TEST_CASE("content hash and files of ids and of numbers are those of every version 2") {
  const Folder folder;
  const auto file = [&](const CacheRequest& request) {
    return sha256(scratch::get(cache_entry(request) / "train.bin"));
  };
  CHECK(open_sample(folder.path())->info().sha256 ==
        "1f729161d1f6867f24f722d23e631050fbec6916053a474e78ff2f2f12e6cf4b");
  CHECK(file(request_in(folder.path())) == "c9b87d02d837804cd0d15cf3cb94c6c44a8124448a0001b3eaa7164714d69c61");
  const auto numbers = [](const AddExample& add, DataInfo& info) {
    info.shape = {.max_len = 2, .width = 2, .target = number_target()};
    add(Split::kTrain, {{}, std::vector<float>{1, 2, 3, 4}, 0, 0.5F});
    add(Split::kTrain, {{}, std::vector<float>{5, 6}, 0, -1.0F});
  };
  const auto source = open_cached(request_in(folder.path(), 1), numbers, {});
  CHECK(file(request_in(folder.path(), 1)) == "52720e95dd4821dca2c720f3f1b6d79e9130f21c27f6d70a741259a3e6306b29");
  CHECK((source->read(Split::kTrain, 1).values[1] == 6 && source->read(Split::kTrain, 0).target == 0.5F));
}

TEST_CASE("names of files that are no UTF-8 are written out in key, details and names") {
  const Folder folder;
  CacheRequest request = request_in(folder.path());
  request.key["path"] = "caf\xe9/a.csv";
  const auto build = [](const AddExample& add, DataInfo& info) {
    info.shape = {.max_len = 1, .vocabulary = 16, .target = class_target(2)};
    const std::vector<uint8_t> tokens{1};
    Example example{{tokens}, {}, 1};
    example.name = "caf\xe9/b";
    add(Split::kTrain, example);
    info.details = {{"classes", {"caf\xe9", "the"}}, {"by", {{"caf\xe9", 3}}}};
  };
  (void)open_cached(request, build, {});
  const auto again = open_cached(request, never_build, {});
  CHECK(again->name(Split::kTrain, 0) == "caf\\xe9/b");
  CHECK(again->info().details == Json{{"classes", {"caf\\xe9", "the"}}, {"by", {{"caf\\xe9", 3}}}});
}

TEST_CASE("large splits go through in pieces and come back whole") {
  const Folder folder;
  std::vector<uint8_t> tokens(100'000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint8_t>(i * 7 % 251);
  const auto build = [&](const AddExample& add, DataInfo& info) {
    info.shape = {.max_len = 100'000, .vocabulary = 256, .target = class_target(10)};
    for (size_t i = 0; i < 50; ++i)
      add(Split::kTrain, {{std::span(tokens).subspan(i)}, {}, static_cast<int64_t>(i % 10)});
  };
  const auto source = open_cached(request_in(folder.path()), build, {});
  int64_t wrong = 0;
  for (size_t i = 0; i < 50; ++i) {
    const Example example = source->read(Split::kTrain, static_cast<int64_t>(i));
    const auto ids = example.ids[0].as<uint8_t>();
    wrong += std::equal(ids.begin(), ids.end(), tokens.begin() + static_cast<int64_t>(i), tokens.end()) &&
                     example.label == static_cast<int64_t>(i % 10)
                 ? 0
                 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a fault at any operation of a build leaves no partial cache, and the next build succeeds") {
  const int error = GENERATE(ENOSPC, EACCES);
  int64_t failures = 0;
  for (int64_t at = 0;; ++at) {
    const Folder folder;
    std::string message;
    {
      const scratch::Fault fault(at, error);
      message = scratch::message_of<ResourceError>([&] { (void)open_sample(folder.path()); });
    }
    INFO("operation " << at << ": " << message);
    if (message.empty()) {
      CHECK(left_in(folder.path()).size() == 1);
      break;
    }
    ++failures;
    CHECK_THAT(message,
               Contains(folder.path().string()) && Contains(std::strerror(error)) && Contains("XFORMER_CACHE"));
    // After the rename only the sync of the parent can fail: then the cache is whole.
    const std::vector<std::string> left = left_in(folder.path());
    if (!left.empty()) CHECK(left[0].size() == 16);
    check_sample(*open_sample(folder.path()));
    CHECK(left_in(folder.path()).size() == 1);
  }
  CHECK(failures >= 3 * 2 + 4 + 3);  // three splits, the manifest, the folder
}

TEST_CASE("an exception of the builder leaves nothing") {
  const Folder folder;
  const auto build = [](const AddExample& add, DataInfo& info) {
    build_sample(add, info);
    throw DataError("basic_train.tsv:3: bad row");
  };
  const std::string message =
      scratch::message_of<DataError>([&] { (void)open_cached(request_in(folder.path()), build, {}); });
  CHECK(message == "basic_train.tsv:3: bad row");
  CHECK(left_in(folder.path()).empty());
}

TEST_CASE("a cache below a regular file is a ResourceError that names the path and the variable") {
  const Folder folder;
  scratch::put(folder / "file", "x");
  const std::string message = scratch::message_of<ResourceError>([&] { (void)open_sample(folder / "file" / "cache"); });
  CHECK_THAT(message, Contains((folder / "file" / "cache").string()) && Contains("XFORMER_CACHE"));
}

TEST_CASE("a folder without write permission is a ResourceError") {
  if (::geteuid() == 0) {
    WARN("skipped: root may write everywhere; the faults above inject EACCES");
    SUCCEED();
    return;
  }
  const Folder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  CHECK_THROWS_AS(open_sample(folder.path()), ResourceError);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
}

TEST_CASE("a killed builder leaves no cache, and the next build removes what it left") {
  const Folder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto build = [](const AddExample& add, DataInfo& info) {
      build_sample(add, info);
      ::kill(::getpid(), SIGKILL);
    };
    (void)open_cached(request_in(folder.path()), build, {});
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  const std::vector<std::string> left = left_in(folder.path());
  REQUIRE(left.size() == 1);
  CHECK_THAT(left[0], Contains(".tmp-"));
  check_sample(*open_sample(folder.path()));
  CHECK(left_in(folder.path()).size() == 1);
  CHECK(left_in(folder.path())[0].size() == 16);
}

TEST_CASE("processes that start together build once") {
  const Folder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto build = [&](const AddExample& add, DataInfo& info) {
        AppendFile(folder / "builds").write("x");
        ::usleep(20'000);  // long enough for the others to meet the lock; nothing depends on it
        build_sample(add, info);
      };
      int code = 1;
      try {
        code = open_cached(request_in(folder.path()), build, {})->size(Split::kTrain) == 3 ? 0 : 1;
      } catch (...) {
      }
      ::_exit(code);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
  CHECK(scratch::get(folder / "builds") == "x");
}

TEST_CASE("who waits for another builder can give up through the progress callback") {
  const Folder folder;
  std::filesystem::create_directories(folder / "sample");
  const FileLock held = FileLock::wait(folder.path() / "sample" / ".lock");
  std::string told;
  const auto stop = [&](std::string_view what, uint64_t, uint64_t) {
    told = what;
    throw Interrupted("stopped");
  };
  CHECK_THROWS_AS(open_cached(request_in(folder.path()), build_sample, stop), Interrupted);
  CHECK_THAT(told, Contains("another process"));
}

TEST_CASE("a cache of another version is refused with folder, both versions and the remedy") {
  const Folder folder;
  open_sample(folder.path());
  const Path entry = cache_entry(request_in(folder.path()));
  Json manifest = Json::parse(scratch::get(entry / "manifest.json"));
  manifest["version"] = 42;
  scratch::put(entry / "manifest.json", manifest.dump());
  CHECK_THAT(damage(folder.path()), Contains(entry.string()) && Contains("version 42") &&
                                        Contains(fmt::format("expects {}", kCacheVersion)) &&
                                        Contains("remove the folder") && Contains("XFORMER_CACHE"));
}

TEST_CASE("a damaged cache is refused by file name with the remedy") {
  const Folder folder;
  open_sample(folder.path());
  const Path entry = cache_entry(request_in(folder.path()));
  const Path train = entry / "train.bin", manifest = entry / "manifest.json";
  const std::string content = scratch::get(train), json = scratch::get(manifest);
  const auto refused = [&](const Path& path, const std::string& bad, const char* why) {
    scratch::put(path, bad);
    INFO(why << ": " << damage(folder.path()));
    CHECK_THAT(damage(folder.path()), Contains(path.string()) && Contains("remove the folder"));
  };
  SECTION("a split") {
    for (size_t size = 0; size < content.size(); ++size) refused(train, content.substr(0, size), "cut");
    refused(train, content + "x", "longer");
    refused(train, "Y" + content.substr(1), "magic");
    std::string bad = content;
    bad[8] = 9;
    refused(train, bad, "version");
    bad = content;
    bad[content.size() - 24] = 2;  // the count
    refused(train, bad, "count");
    bad = content;
    bad[content.size() - 24 + 6] = 0x7f;
    refused(train, bad, "huge count");
    bad = content;
    bad[24 + 8] = 6;  // the second offset, past the third
    refused(train, bad, "offset");
    bad = content;
    bad[24 + 4 * 8] = 10;  // the first label
    refused(train, bad, "label");
    // What no table tells: another content under the hash that records would name.
    for (size_t at = 16; at < 16 + 7; ++at) {
      bad = content;
      bad[at] = static_cast<char>(bad[at] ^ 1);
      scratch::put(train, bad);
      INFO("element " << at - 16);
      CHECK_THAT(damage(folder.path()),
                 Contains(entry.string()) && Contains("its manifest says") && Contains("remove"));
    }
    std::filesystem::remove(train);
    CHECK_THAT(damage(folder.path()), Contains(train.string()) && Contains("remove the folder"));
  }
  SECTION("the manifest") {
    for (const size_t size : {size_t{0}, size_t{1}, json.size() / 2, json.size() - 3})
      refused(manifest, json.substr(0, size), "cut");
    refused(manifest, "[]", "array");
    for (const char* key : {"key", "info", "version"}) {
      Json bad = Json::parse(json);
      bad.erase(key);
      refused(manifest, bad.dump(), key);
    }
    Json bad = Json::parse(json);
    bad["info"]["sizes"] = "many";
    refused(manifest, bad.dump(), "type");
    bad = Json::parse(json);
    bad["key"]["variant"] = 5;
    refused(manifest, bad.dump(), "key of other settings");
  }
  SECTION("sizes that do not agree") {
    Json bad = Json::parse(json);
    bad["info"]["sizes"][0] = 4;
    scratch::put(manifest, bad.dump());
    CHECK_THAT(damage(folder.path()), Contains(train.string()) && Contains("expected 4 examples, found 3"));
  }
}

}  // namespace xformer::cache_test
