// summarise/<name> and qa/<name>: what files become, which splits are found, and what bad ones are told.
#include "data/text/text_pairs.h"

#include <catch2/catch.hpp>

#include "adapter_place.h"
#include "core/error.h"
#include "core/pair_symbols.h"
#include "gzip_maker.h"

namespace xformer::text_pairs_data_test {

using namespace data;
using adapter_place::options_of;
using adapter_place::Place;
using Catch::Matchers::Contains;

namespace {

const std::string kArticle = R"({"article": "One two three.", "abstract": "One."})";

void put_splits(const Place& place, const std::string& lines) {
  for (const char* const name : {"train.jsonl", "val.jsonl", "test.jsonl"}) scratch::put(place.folder / name, lines);
}

template <class ErrorType = DataError, class Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "accepted";
}
std::string open_refusal(const Place& place, const Json& options = Json::object(),
                         const char* task = "summarise/notes") {
  return refusal([&] { (void)place.open(task, options); });
}

std::vector<uint16_t> ids_of(const std::string& text, const std::vector<uint16_t>& more = {}) {
  std::vector<uint16_t> ids;
  append_bytes(ids, text);
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}
std::vector<uint16_t> sequence(const Example& example, size_t which) {
  const std::span<const uint16_t> ids = example.ids[which];
  return {ids.begin(), ids.end()};
}

const Path kSamples = Path(__FILE__).parent_path().parent_path().parent_path() / "datasets";

}  // namespace

TEST_CASE("a line becomes its article and its abstract with an end", "[pairs]") {
  const Place place;
  put_splits(place,
             kArticle + "\n\n" + R"({"article": "Longer than ten", "abstract": "What cannot be kept"})" + "\r\n");
  const auto source = place.open("summarise/notes", {{"length", 10}, {"written", 5}});
  CHECK(source->info().sizes == std::array<int64_t, 3>{2, 2, 2});
  const DataShape& shape = source->info().shape;
  CHECK((shape.max_len == 10 && shape.vocabulary == 259 && shape.sequences == 2));
  CHECK((shape.target.kind == "written-text" && shape.target.parameters["written"] == 5));
  CHECK(shape ==
        find_dataset("summarise/notes").shape(options_of("summarise/notes", {{"length", 10}, {"written", 5}})));
  const Example first = source->read(Split::kTrain, 0);
  CHECK(sequence(first, 0) == ids_of("One two th"));
  CHECK(sequence(first, 1) == ids_of("One.", {kEndId}));
  const Example second = source->read(Split::kTest, 1);
  CHECK(sequence(second, 0) == ids_of("Longer tha"));
  CHECK(sequence(second, 1) == ids_of("What canno"));  // no end where there is none yet
  CHECK(source->info().details["sources_cut"] == 6);
  CHECK(source->info().details["texts_longer"] == 3);
}

TEST_CASE("a question stands in front of its context, and all its answers that fit are right", "[pairs]") {
  const Place place;
  put_splits(place, R"({"question": "Who?", "context": "Ann and Bob.", "answers": ["Ann", "far too long", "Bob"]})"
                    "\n"
                    R"({"question": "0123456789abcdef", "context": "c", "answers": []})"
                    "\n");
  const auto source = place.open("qa/notes", {{"length", 12}, {"written", 8}});
  const Example first = source->read(Split::kDev, 0);
  std::vector<uint16_t> asked = ids_of("Who?", {kMarkId}), answers = ids_of("Ann", {kEndId});
  append_bytes(asked, "Ann and");
  CHECK(sequence(first, 0) == asked);
  append_bytes(answers, "Bob");
  answers.push_back(kEndId);
  CHECK(sequence(first, 1) == answers);
  const Example second = source->read(Split::kDev, 1);
  CHECK(sequence(second, 0) == ids_of("012345", {kMarkId, kFirstByteId + 'c'}));
  CHECK(sequence(second, 1) == std::vector<uint16_t>{kEndId});
}

TEST_CASE("the samples of this project are read in all their layouts, plain, packed and in folders", "[pairs]") {
  Place place;
  for (const std::string set : {"summarise", "qa"}) {
    DataLocation location = place.location();
    location.folder = kSamples / set / "sample";
    const DatasetDescriptor& dataset = find_dataset(set + "/harbour");
    const Json options = options_of(set + "/harbour", {{"length", 300}, {"written", 60}});
    const auto source = dataset.open(options, location, {});
    CHECK(source->info().sizes == std::array<int64_t, 3>{32, 8, 8});
    const CheckReport report = dataset.check(options, location, {});
    CAPTURE(report.text());
    CHECK(report.passed);
    CHECK_THAT(report.text(), Contains("48 lines"));
    CHECK_THAT(dataset.show(source->read(Split::kDev, 0), source->info()),
               Contains("came in from") && Contains("\n--- right\n") && Contains("right text"));
  }
}

TEST_CASE("splits are files of their names or folders of files, one of them for each", "[pairs]") {
  const Place place;
  const auto files = [&](const std::string& name) { scratch::put(place.folder / name, kArticle); };
  files("train.json"), files("validation.txt");
  CHECK_THAT(open_refusal(place), Contains("no test split") && Contains("test.jsonl") && Contains("found"));
  std::filesystem::create_directories(place.folder / "test" / "a");
  CHECK_THAT(open_refusal(place), Contains("found none"));
  scratch::put(place.folder / "test" / "a" / "data_0.gz", scratch::gzip(kArticle + "\n" + kArticle));
  scratch::put(place.folder / "test" / "data_1", kArticle);
  CHECK(place.open("summarise/notes")->info().sizes == std::array<int64_t, 3>{1, 1, 3});
  files("test.jsonl");
  CHECK_THAT(open_refusal(place), Contains("two test splits") && Contains("test and test.jsonl"));
  std::filesystem::remove(place.folder / "test.jsonl");
  DataLocation location = place.location();
  location.folder = place.folder / "test";
  location.require_all_splits = false;
  CHECK_THAT(refusal([&] { (void)find_dataset("summarise/notes").open(options_of("summarise/notes"), location, {}); }),
             Contains("no train split") && Contains("did you mean"));
}

TEST_CASE("bad lines and damaged files end in one error that says where, and leave nothing behind", "[pairs]") {
  const auto told = [](const std::string& bad, const char* task = "summarise/notes") {
    const Place place;
    put_splits(place, task[0] == 's' ? kArticle : R"({"question": "q", "context": "c", "answers": []})");
    scratch::put(place.folder / "val.jsonl", bad);
    const std::string message = open_refusal(place, Json::object(), task);
    CHECK(place.cache_is_empty());
    CHECK_THAT(message, Contains("val.jsonl"));
    return message;
  };
  CHECK_THAT(told(kArticle + "\n{\"article\": \"a\"}\n"), Contains(":2: the field \"abstract\" is missing"));
  CHECK_THAT(told(R"({"article": 1, "abstract": "b"})"), Contains(":1: expected \"article\" to be a text"));
  CHECK_THAT(told(R"({"article": "", "abstract": "b"})"),
             Contains("found an article without a character") && Contains("data.empty=skip"));
  CHECK_THAT(told(R"({"article": "a", "abstract": ""})"), Contains("found an abstract without a character"));
  CHECK_THAT(told(R"({"question": "", "context": "c", "answers": []})", "qa/notes"), Contains("a question without"));
  CHECK_THAT(told("{\"article\": \"\xc3(\", \"abstract\": \"b\"}"), Contains("UTF-8"));
  CHECK_THAT(told("{\"article\": \"" + std::string(10'000'000, 'a') + "\", \"abstract\": \"b\"}"), Contains(":1"));
  std::string packed = scratch::gzip(kArticle + "\n" + kArticle + "\n");
  CHECK_THAT(told(packed.substr(0, packed.size() - 9)), Contains("gzip"));
  packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 0x55);
  CHECK_THAT(told(packed), Contains("gzip"));
}

TEST_CASE("lines without a text are left out where that is asked for, and counted", "[pairs]") {
  const Place place;
  put_splits(place, kArticle + "\n" + R"({"article": "", "abstract": "b"})" + "\n");
  const auto source = place.open("summarise/notes", {{"empty", "skip"}});
  CHECK(source->info().sizes == std::array<int64_t, 3>{1, 1, 1});
  REQUIRE(source->info().dropped.size() == 3);
  CHECK((source->info().dropped[1].split == Split::kDev && source->info().dropped[1].count == 1));
  CHECK_THAT(find_dataset("summarise/notes")
                 .check(options_of("summarise/notes", {{"empty", "skip"}}), place.location(), {})
                 .text(),
             Contains("lines left out, without a text: 3"));
}

TEST_CASE("a text longer than a batch is wide is refused before any file is looked at", "[pairs]") {
  const DatasetDescriptor& dataset = find_dataset("qa/notes");
  CHECK_THAT(refusal<UserError>([&] {
               dataset.check_options(options_of("qa/notes", {{"length", 64}, {"written", 65}}));
             }),
             Contains("data.written") && Contains("64") && Contains("65"));
}

}  // namespace xformer::text_pairs_data_test
