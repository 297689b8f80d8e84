// Corpora in pieces: every piece once, words counted, vocabularies trained and read, layouts of files, and what is
// refused.
#include <zlib.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "core/error.h"
#include "core/text.h"
#include "data/adapter_place.h"
#include "data/batches/batcher.h"
#include "data/check.h"
#include "data/text/piece_vocabulary.h"

namespace xformer::text_lm_test {

using namespace data;
using adapter_place::options_of;
using adapter_place::Place;
using Catch::Matchers::Contains;

namespace {

const Path kSample = Path(XFORMER_SOURCE) / "datasets/text-lm/sample";

std::string message(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Json small(const Json& more = Json::object()) {
  Json options{{"length", 32}, {"pieces", 400}, {"dev_share", 0.1}, {"test_share", 0.1}};
  options.update(more);
  return options;
}

void put_sample(const Place& place) {
  for (const char* name : {"train.jsonl", "validation.txt", "test.txt"})
    scratch::put(place.folder / name, scratch::get(kSample / name));
}

// Of all windows of a split: the labels that count, in order.
std::vector<int32_t> scored(const DataSource& source, Split split) {
  std::vector<int32_t> result;
  for (int64_t i = 0; i < source.size(split); ++i) {
    const Example one = source.read(split, i);
    for (const int32_t label : one.further[0].as<int32_t>())
      if (label != kNoLabel) result.push_back(label);
  }
  return result;
}

std::string words_joined(std::string text) {
  std::string result;
  for (char& letter : text) letter = letter == '\n' ? ' ' : letter;
  for (const std::string_view word : split(text, ' '))
    if (!word.empty()) result += (result.empty() ? "" : " ") + std::string(word);
  return result;
}

// The one that was trained.
Path model_in(const Place& place) {
  for (const auto& entry : std::filesystem::directory_iterator(place.cache / "piece-vocabularies"))
    if (entry.path().extension() == ".model") return entry.path();
  throw DataError("no vocabulary was made");
}
PieceVocabulary vocabulary_in(const Place& place) { return {scratch::get(model_in(place)), "trained"}; }

}  // namespace

TEST_CASE("every piece of a split is a label once, behind the piece before it, under every protocol", "[text-lm]") {
  const Place place;
  put_sample(place);
  std::vector<int32_t> first;
  for (const auto& [scoring, stride] : {std::pair{"window", 0}, std::pair{"half", 0}, std::pair{"stride", 5}}) {
    CAPTURE(scoring);
    const auto source = place.open("text-lm/mill", small({{"scoring", scoring}, {"stride", stride}}));
    const DataInfo& info = source->info();
    CHECK((info.shape.vocabulary == 401 && info.shape.target.classes() == 400));
    CHECK(info.shape.target.parameters["headline"] == "perplexity");
    for (const Split split : kAllSplits) {
      const auto pieces = info.details["splits"][split_name(split)]["pieces"].get<size_t>();
      const std::vector<int32_t> labels = scored(*source, split);
      REQUIRE(labels.size() == pieces);
      if (split == Split::kTest && first.empty()) first = labels;
      if (split == Split::kTest) CHECK(labels == first);
    }
    HostBatch batch;
    fill_batch(*source, Split::kTest, {{0, 1}, 32}, 2, batch);
    const auto &ids = batch.whole("tokens"), &labels = batch.whole("label"), &words = batch.whole("words");
    CHECK(ids[0] == 0);
    for (size_t i = 1; i < 32; ++i) REQUIRE(ids[i] == labels[i - 1] + 1);
    for (size_t i = 0; i < labels.size(); ++i) REQUIRE((labels[i] != kNoLabel || words[i] == 0));
  }
  // The pieces are the text, and their blanks its words.
  const PieceVocabulary vocabulary = vocabulary_in(place);
  const std::string text = words_joined(scratch::get(kSample / "test.txt"));
  CHECK(words_joined(vocabulary.decode(first)) == text);
  CHECK(std::count(first.begin(), first.end(), vocabulary.end_of_text()) == 8);
  int64_t words = 0;
  for (const int32_t piece : first) words += vocabulary.words(piece);
  CHECK(words == std::count(text.begin(), text.end(), ' ') + 1);
}

TEST_CASE("a vocabulary is the same wherever it is trained, and one in a file is taken as it is", "[text-lm]") {
  const Place one, two, three;
  for (const Place* place : {&one, &two}) put_sample(*place);
  const auto source = one.open("text-lm/mill", small()), again = two.open("text-lm/other", small());
  CHECK(source->info().sha256 == again->info().sha256);
  CHECK(source->info().details["vocabulary"] == again->info().details["vocabulary"]);
  CHECK(source->info().details["vocabulary"]["pieces"] == 400);
  const std::string model = scratch::get(model_in(one));
  put_sample(three);
  scratch::put(three.folder / "mill.model", model);
  const auto read = three.open("text-lm/mill", small({{"vocabulary", "file"}}));
  CHECK(read->info().details["vocabulary"] == source->info().details["vocabulary"]);
  CHECK(scored(*read, Split::kTest) == scored(*source, Split::kTest));
  CHECK_THAT(message([&] {
               (void)three.open("text-lm/mill", small({{"vocabulary", "file"}, {"pieces", 500}}));
             }),
             Contains("has 400 pieces, expected data.pieces = 500") && Contains("mill.model"));
  const Place damaged;
  put_sample(damaged);
  const auto opened = [&] {
    return message([&] { (void)damaged.open("text-lm/mill", small({{"vocabulary", "file"}})); });
  };
  CHECK_THAT(opened(), Contains("no vocabulary") && Contains("data.vocabulary=trained"));
  scratch::put(damaged.folder / "mill.model", model.substr(0, model.size() / 2));
  CHECK_THAT(opened(), Contains("mill.model") && Contains("damaged"));
  scratch::put(damaged.folder / "mill.model", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  CHECK_THAT(opened(), Contains("not a model of SentencePiece"));
  scratch::put(damaged.folder / "other.model", model);
  CHECK_THAT(opened(), Contains("2 vocabularies"));
  CHECK(damaged.cache_is_empty());
}

TEST_CASE("characters outside the vocabulary are bytes, or unknown", "[text-lm]") {
  const Place place;
  put_sample(place);
  scratch::put(place.folder / "test.txt", "The miller said \xE6\xB0\xB4\xE8\xBB\x8A to the baker.\n");
  const auto bytes = place.open("text-lm/mill", small());
  CHECK(bytes->info().details["splits"]["test"]["unknown"] == 0);
  const PieceVocabulary vocabulary = vocabulary_in(place);
  CHECK_THAT(vocabulary.decode(scored(*bytes, Split::kTest)), Contains("\xE6\xB0\xB4\xE8\xBB\x8A"));
  CHECK_THAT(bytes->shown(bytes->read(Split::kTest, 0)), Contains("The miller") && Contains("context"));
  const Place other;
  put_sample(other);
  scratch::put(other.folder / "test.txt", "The miller said \xE6\xB0\xB4\xE8\xBB\x8A to the baker.\n");
  const auto unknown = other.open("text-lm/mill", small({{"byte_fallback", false}, {"pieces", 150}}));
  CHECK(unknown->info().details["splits"]["test"]["unknown"] == 1);
  const CheckReport report =
      find_dataset("text-lm/mill")
          .check(options_of("text-lm/mill", small({{"byte_fallback", false}, {"pieces", 150}})), other.location(), {});
  CHECK_THAT(report.text(), Contains("which the vocabulary lacks: 1"));
  CHECK(report.splits["train"]["words"] > 0);
}

TEST_CASE("files say their splits by their names, and what none is named for is drawn from train", "[text-lm]") {
  const auto splits = [](const Place& place, const std::string& task = "text-lm/c4") {
    const auto source = place.open(task, small());
    std::array<int64_t, 3> documents{};
    for (const Split split : kAllSplits)
      documents[static_cast<size_t>(split)] = source->info().details["splits"][split_name(split)]["documents"];
    return documents;
  };
  const std::string train = scratch::get(kSample / "train.jsonl");
  const Place c4;  // shards, gzip, below en/, and no test
  {
    const Path packed = c4.folder / "en/c4-train.00000-of-01024.json.gz";
    std::filesystem::create_directories(packed.parent_path());
    gzFile file = gzopen(packed.c_str(), "wb");
    REQUIRE(gzwrite(file, train.data(), static_cast<unsigned>(train.size())) == static_cast<int>(train.size()));
    REQUIRE(gzclose(file) == Z_OK);
    scratch::put(c4.folder / "en/c4-validation.00000-of-00008.json", train.substr(0, train.find('\n')));
  }
  const auto of_c4 = splits(c4);
  CHECK((of_c4[2] == 1 && of_c4[0] + of_c4[1] == 40 && of_c4[1] >= 1 && of_c4[1] <= 12));
  const Place one;  // a single file
  scratch::put(one.folder / "mill.jsonl", train);
  const auto of_one = splits(one);
  CHECK((of_one[0] + of_one[1] + of_one[2] == 40 && of_one[0] > 25));
  const Place wiki;
  std::string articles;
  for (int i = 0; i < 30; ++i)
    articles += fmt::format("_START_ARTICLE_\nNumber {}\n_START_PARAGRAPH_\n{}\n\n", i,
                            Json::parse(split(train, '\n')[static_cast<size_t>(i)])["text"].get<std::string>());
  scratch::put(wiki.folder / "wiki40b_en_train.txt", articles);
  scratch::put(wiki.folder / "wiki40b_en_validation.txt", "_START_ARTICLE_\nThe mill turns.\n");
  scratch::put(wiki.folder / "wiki40b_en_test.txt", "_START_ARTICLE_\nThe oak stands.\n_START_ARTICLE_\nOld.\n");
  CHECK(splits(wiki, "text-lm/wiki-40b") == std::array<int64_t, 3>{30, 1, 2});
}

TEST_CASE("what is no corpus is one clear error, and leaves no packed data behind", "[text-lm]") {
  const Place place;
  const auto opened = [&](const Json& more = Json::object()) {
    return message([&] { (void)place.open("text-lm/mill", small(more)); });
  };
  CHECK_THAT(opened(), Contains("no documents of text-lm/mill") && Contains("the folder is empty"));
  scratch::put(place.folder / "test.txt", "only a test\n");
  CHECK_THAT(opened(), Contains("no file whose name says train"));
  put_sample(place);
  scratch::put(place.folder / "more.txt", "and more\n");
  CHECK_THAT(opened(), Contains("more.txt: its name says no split"));
  std::filesystem::remove(place.folder / "more.txt");
  scratch::put(place.folder / "test.txt", "The miller\xFE\n");
  CHECK_THAT(opened(), Contains("test.txt:1") && Contains("UTF-8"));
  scratch::put(place.folder / "test.txt", "\n\n");
  CHECK_THAT(opened(), Contains("no document for test"));
  put_sample(place);
  CHECK_THAT(opened({{"pieces", 30000}}),
             Contains("no vocabulary of 30000 pieces of this text: Vocabulary size too high"));
  CHECK_THAT(opened({{"text_key", "body"}}), Contains("train.jsonl:1") && Contains("'body'"));
  CHECK_THAT(opened({{"stride", 3}}), Contains("data.stride: expected 0"));
  CHECK_THAT(opened({{"length", 100000}}), Contains("expected at least data.length = 100000"));
  scratch::put(place.folder / "train.jsonl", "{\"text\": \"" + std::string(40'000'000, 'x') + "\"}\n");
  CHECK_THAT(opened(), Contains("train.jsonl:1"));
  CHECK_FALSE(std::filesystem::exists(place.cache / "pieces" / "train.bin"));
}

}  // namespace xformer::text_lm_test
