// Texts in folders by class: characters and their ids, what is cut and how much of a file is read; and what cannot be.
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <set>

#include "core/error.h"
#include "data/adapter_place.h"
#include "data/check.h"
#include "data/text/document_files.h"
#include "gzip_maker.h"

namespace xformer::longdoc_test {

using namespace data;
using adapter_place::options_of;
using adapter_place::Place;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kArxiv{"cs.AI", "cs.NE", "math.AC", "math.GR"};

void put(const Path& root, const std::string& name, const std::string& text) {
  fs::create_directories((root / name).parent_path());
  scratch::put(root / name, text);
}

std::string refusal(const Place& place, const std::string& task, const Json& options = Json::object()) {
  const std::string message = scratch::message_of<Error>([&] { (void)place.open(task, options); });
  if (!message.empty()) CHECK(place.cache_is_empty());
  return message;
}

// Ids as a model reads them.
std::vector<int64_t> ids_of(const DataSource& source, Split split, int64_t index) {
  const Example example = source.read(split, index);
  std::vector<int64_t> result;
  example.ids[0].visit([&](const auto& ids) {
    for (const auto id : ids) result.push_back(static_cast<int64_t>(id) + source.info().shape.id_offset);
  });
  return result;
}

std::u32string text_of(const DocumentPart& part) { return {part.characters.begin(), part.characters.end()}; }

}  // namespace

TEST_CASE("the first or last characters of a text, whatever bytes they take", "[longdoc]") {
  const scratch::Folder folder;
  // One, two, three and four bytes; line ends of both kinds.
  const Path path = scratch::put(folder / "a", "a\xc3\xa4\r\n\xe2\x82\xac\xf0\x9f\x98\x80z\n");
  const std::u32string all = U"a\u00e4\u20ac\U0001F600z";
  for (int64_t most = 1; most <= 7; ++most) {
    CAPTURE(most);
    const DocumentPart first = read_document(path, most, Characters::kUnicode, End::kFirst),
                       last = read_document(path, most, Characters::kUnicode, End::kLast);
    const auto kept = std::min(all.size(), static_cast<size_t>(most));
    CHECK(text_of(first) == all.substr(0, kept));
    CHECK(text_of(last) == all.substr(all.size() - kept));
    CHECK((first.whole == (most >= 5) && last.whole == (most >= 5)));
    CHECK((first.damaged == 0 && last.damaged == 0));
  }
  CHECK(read_document(path, 3, Characters::kBytes, End::kFirst).characters == std::vector<char32_t>{'a', 0xc3, 0xa4});
  // Long enough that more is read than at first, and that characters are cut through where it begins and ends.
  std::string many, ends(5000, '\n');
  std::u32string euros;
  for (int i = 0; i < 3000; ++i) many += "\xe2\x82\xac", euros += U'\u20ac';
  const Path long_text = scratch::put(folder / "b", ends + many + "x" + ends);
  for (const int64_t most : {1, 2, 63, 64, 65, 100, 2999, 3000, 3001, 9000}) {
    CAPTURE(most);
    const auto kept = std::min<size_t>(3001, static_cast<size_t>(most));
    const std::u32string both = euros + U"x";
    const DocumentPart first = read_document(long_text, most, Characters::kUnicode, End::kFirst),
                       last = read_document(long_text, most, Characters::kUnicode, End::kLast);
    CHECK(text_of(first) == both.substr(0, kept));
    CHECK(text_of(last) == both.substr(both.size() - kept));
    CHECK((first.damaged == 0 && last.damaged == 0));
  }
}

TEST_CASE("bytes that are no UTF-8 read as one replacement each", "[longdoc]") {
  const scratch::Folder folder;
  const auto read = [&](const std::string& bytes) {
    return read_document(scratch::put(folder / "a", bytes), 100, Characters::kUnicode, End::kFirst);
  };
  // A lone continuation, an overlong slash, a surrogate, one above U+10FFFF, one that ends too soon.
  for (const auto& [bytes, wrong] : {std::pair{"x\x80y", 1}, std::pair{"x\xc0\xafy", 2}, std::pair{"x\xed\xa0\x80y", 3},
                                     std::pair{"x\xf4\x90\x80\x80y", 4}, std::pair{"x\xe2\x82y", 2}}) {
    const DocumentPart part = read(bytes);
    CHECK(part.damaged == wrong);
    CHECK(text_of(part) == U"x" + std::u32string(static_cast<size_t>(wrong), U'\uFFFD') + U"y");
  }
  CHECK(read("\xef\xbf\xbd").damaged == 0);                  // written so
  CHECK(text_of(read("\xef\xbb\xbfz")) == U"z");             // the mark of UTF-8 is no character
  CHECK(text_of(read(std::string("a\0b", 3))).size() == 3);  // NUL is one
}

TEST_CASE("no more of a text is read than its characters need", "[longdoc]") {
  const scratch::Folder folder;
  const Path path = scratch::put(folder / "large", "The beginning of a very large file.");
  fs::resize_file(path, uint64_t{1} << 36);  // 64 gigabytes of nothing, more than there is memory for
  const DocumentPart part = read_document(path, 13, Characters::kUnicode, End::kFirst);
  CHECK((text_of(part) == U"The beginning" && !part.whole));
  CHECK(text_of(read_document(path, 20, Characters::kUnicode, End::kLast)) == std::u32string(20, U'\0'));
}

TEST_CASE("arxiv takes its four classes, in their order, of all folders there are", "[longdoc]") {
  const Place place;
  for (const std::string& name : kArxiv)
    for (int i = 0; i < 10; ++i)
      put(place.folder.path(), fmt::format("{}/{}.txt", name, i), fmt::format("{} {}", name, i));
  put(place.folder.path(), "cs.CV/0.txt", "not asked for \xe2\x82\xac");
  const auto source = place.open("longdoc/arxiv", {{"length", 8}});
  const DataInfo& info = source->info();
  CHECK(info.details["classes"] == Json(kArxiv));
  CHECK((info.sizes == std::array<int64_t, 3>{28, 8, 4}));
  // Of the folders that are read; 0 is padding.
  std::set<char> letters;
  for (const std::string& name : kArxiv)
    for (const char letter : name + " 0123456789") letters.insert(letter);
  CHECK(info.details["vocabulary"].get<size_t>() == letters.size());
  CHECK((info.shape.vocabulary == static_cast<int64_t>(letters.size()) + 1 && info.shape.max_len == 8));
  const std::vector<char> sorted(letters.begin(), letters.end());
  for (const Split split : kAllSplits)
    for (int64_t i = 0; i < source->size(split); ++i) {
      const std::string name = source->name(split, i), text = scratch::get(place.folder / name).substr(0, 8);
      CHECK(name.starts_with(kArxiv[static_cast<size_t>(source->read(split, i).label)]));
      std::vector<int64_t> ids;
      for (const char letter : text)
        ids.push_back(std::find(sorted.begin(), sorted.end(), letter) - sorted.begin() + 1);
      CHECK(ids_of(*source, split, i) == ids);
    }
  CHECK_THAT(find_dataset("longdoc/arxiv").show(source->read(Split::kTest, 0), info),
             Contains("cs.AI ") && Contains("label 0 (cs.AI)"));
  const CheckReport report = find_dataset("longdoc/arxiv").check(options_of("longdoc/arxiv"), place.location(), {});
  CHECK(report.passed);
  CHECK_THAT(report.text(), Contains("published are 4288"));
  CHECK(place.open("longdoc/arxiv", {{"characters", "bytes"}})->info().shape == [] {
    DataShape shape;
    shape.max_len = 16384;
    shape.vocabulary = 257;
    shape.id_offset = 1;
    shape.target = class_target(4);
    return shape;
  }());
}

TEST_CASE("characters that train lacks share one id, where the vocabulary is train's", "[longdoc]") {
  const Place place;
  for (const char* name : {"a", "b"}) {
    for (int i = 0; i < 4; ++i) put(place.folder.path(), fmt::format("train/{}/{}", name, i), "xyz");
    put(place.folder.path(), fmt::format("dev/{}/0", name), "xq");
    put(place.folder.path(), fmt::format("test/{}/0", name), "\xe2\x82\xacyx\xc3\xa4");
  }
  const auto train = place.open("longdoc/some", {{"vocabulary", "train"}});
  CHECK((train->info().sizes == std::array<int64_t, 3>{8, 2, 2}));
  CHECK(train->info().shape.vocabulary == 5);
  CHECK(ids_of(*train, Split::kDev, 0) == std::vector<int64_t>{1, 4});
  CHECK(ids_of(*train, Split::kTest, 0) == std::vector<int64_t>{4, 2, 1, 4});
  CHECK(train->info().details["unseen_characters"] == 6);
  const auto all = place.open("longdoc/some");
  CHECK(all->info().shape.vocabulary == 7);
  CHECK(ids_of(*all, Split::kTest, 0) == std::vector<int64_t>{6, 3, 2, 5});
  CHECK_THAT(find_dataset("longdoc/some").show(all->read(Split::kTest, 0), all->info()),
             Contains("\xe2\x82\xacyx\xc3\xa4\n4 characters"));
  // Only training texts may be cut to their ends.
  const auto ends = place.open("longdoc/some", {{"train_part", "last"}, {"length", 1}});
  CHECK(ids_of(*ends, Split::kTrain, 0).size() == 1);
  CHECK(ends->info().details["cut"] == 12);
  CHECK(ends->info().details["vocabulary_characters"] == "xz\xe2\x82\xac");
}

TEST_CASE("more characters than a byte counts have two bytes each", "[longdoc]") {
  const Place place;
  std::string text;
  for (int i = 0; i < 300; ++i) text += {static_cast<char>(0xE4 + i / 64), static_cast<char>(0x80 + i % 64), '\x80'};
  for (const char* name : {"a/0", "a/1", "b/0", "b/1"}) put(place.folder.path(), name, text);
  const auto source = place.open("longdoc/signs", {{"test_share", 0.5}, {"dev_share", 0.0}});
  CHECK(source->info().shape.vocabulary == 301);
  const std::vector<int64_t> ids = ids_of(*source, Split::kTest, 1);
  REQUIRE(ids.size() == 300);
  for (size_t i = 0; i < 300; ++i) REQUIRE(ids[i] == static_cast<int64_t>(i) + 1);
}

TEST_CASE("what are no texts in folders by class is named", "[longdoc]") {
  const auto with = [](const std::string& name, const std::string& text) {
    const Place place;
    for (const char* one : {"a/0", "a/1", "b/0", "b/1"}) put(place.folder.path(), one, "text");
    put(place.folder.path(), name, text);
    return refusal(place, "longdoc/some");
  };
  CHECK_THAT(with("b/2", ""), Contains("b/2: expected a text, found an empty file"));
  CHECK_THAT(with("b/2", "\n\r\n"), Contains("b/2: expected a text, found line ends alone"));
  CHECK_THAT(with("b/2", scratch::gzip("text")), Contains("b/2: expected text, found a compressed file"));
  CHECK_THAT(with("b/2", scratch::gzip("text").substr(0, 12)), Contains("compressed"));
  CHECK_THAT(with("b/2", "%PDF-1.4"), Contains("a PDF"));
  CHECK_THAT(with("b/2", "\xff\xfe"), Contains("UTF-16"));
  CHECK_THAT(with("b/2", "version https://git-lfs.github.com/spec/v1\n"), Contains("git lfs pull"));
  CHECK_THAT(with("b/deep/2", "text"), Contains("b/deep: expected texts alone in a class's folder, found a folder"));
  CHECK_THAT(with("train/b/2", "text"), Contains("expected train/ and test/"));
  CHECK(with("b/.hidden", "").empty());
  CHECK(with("b/2", std::string(10'000'000, 'x')).empty());  // a line of ten megabytes
  const Place place;
  CHECK_THAT(refusal(place, "longdoc/some"), Contains("no texts of longdoc/some") && Contains("the folder is empty"));
  put(place.folder.path(), "cs.AI/0", "text");
  CHECK_THAT(refusal(place, "longdoc/some"), Contains("two classes or more"));
  CHECK_THAT(refusal(place, "longdoc/arxiv"),
             Contains("expected a folder for each of cs.AI, cs.NE, math.AC, math.GR, found none of cs.NE;"));
  put(place.folder.path(), "math/0", "text");
  fs::create_directory(place.folder / "physics");
  CHECK_THAT(refusal(place, "longdoc/some"), Contains("no text of the class physics"));
  CHECK_THAT(refusal(place, "longdoc/some", {{"classes", "cs.AI,mat"}}), Contains("found none of mat (is it 'math'?)"));
  const Place split;
  for (const char* one : {"train/a/0", "train/b/0", "test/a/0", "test/c/0"}) put(split.folder.path(), one, "text");
  put(split.folder.path(), "test/b/0", "text");
  CHECK_THAT(refusal(split, "longdoc/some"), EndsWith("no text of the class c in train/"));  // test/ is no set
  CHECK_THROWS_AS(find_dataset("longdoc/some").check_options(options_of("longdoc/some", {{"classes", "a,a"}})),
                  UserError);
}

TEST_CASE("texts that are moved between classes or changed behind links are packed anew", "[longdoc]") {
  const Place place, elsewhere;
  for (const char* name : {"a/0", "a/1", "a/2", "b/0", "b/1"}) put(place.folder.path(), name, "text");
  put(elsewhere.folder.path(), "0", "text");
  put(elsewhere.folder.path(), "1", "text");
  fs::create_directory_symlink(elsewhere.folder.path(), place.folder / "c");
  const auto read = [&] {
    const auto source = place.open("longdoc/some", {{"characters", "bytes"}});
    std::map<std::string, std::pair<int64_t, std::vector<int64_t>>> result;  // class and ids by file
    for (const Split split : kAllSplits)
      for (int64_t i = 0; i < source->size(split); ++i)
        result[source->name(split, i)] = {source->read(split, i).label, ids_of(*source, split, i)};
    return result;
  };
  const auto first = read();
  CHECK((first.size() == 7 && first.contains("a/2") && read() == first));
  fs::rename(place.folder / "a/2", place.folder / "b/2");  // as many files, as large and as old as before
  const auto moved = read();
  REQUIRE((moved.size() == 7 && moved.contains("b/2")));
  CHECK(moved.at("b/2").first == 1);
  const auto time = fs::last_write_time(elsewhere.folder / "1");
  put(elsewhere.folder.path(), "1", "next");
  fs::last_write_time(elsewhere.folder / "1", time + std::chrono::seconds(2));
  const auto changed = read();
  CHECK(changed.at("c/1").second == std::vector<int64_t>{'n' + 1, 'e' + 1, 'x' + 1, 't' + 1});
}

TEST_CASE("folders and files whose names are no UTF-8 are read, and their names written out", "[longdoc]") {
  const Place place;
  for (const char* name : {"d\xe9pot/caf\xe9/\xff", "d\xe9pot/caf\xe9/1", "d\xe9pot/the/0", "d\xe9pot/the/1"})
    put(place.folder.path(), name, "text");
  DataLocation location = place.location();
  location.folder = place.folder / "d\xe9pot";
  const auto source = find_dataset("longdoc/some").open(options_of("longdoc/some"), location, {});
  CHECK(source->info().details["classes"] == Json{"caf\\xe9", "the"});
  std::set<std::string> names;
  for (const Split split : kAllSplits)
    for (int64_t i = 0; i < source->size(split); ++i) names.insert(source->name(split, i));
  CHECK(names == std::set<std::string>{"caf\\xe9/\\xff", "caf\\xe9/1", "the/0", "the/1"});
}

}  // namespace xformer::longdoc_test
