// Sequences in classes from FASTA files and tables: ids, classes, splits, what is left out; and what cannot be read.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "core/error.h"
#include "data/adapter_place.h"
#include "data/check.h"
#include "data/genome/made_fragments.h"
#include "gzip_maker.h"

namespace xformer::genome_test {

using namespace data;
using adapter_place::options_of;
using adapter_place::Place;
using Catch::Matchers::Contains;
using scratch::gzip;
namespace fs = std::filesystem;

namespace {

// `count` records of so many letters, the same in none.
std::string fasta(const std::string& name, int64_t count, size_t letters, uint64_t seed) {
  Stream numbers(seed);
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    text += fmt::format(">{}{} some more\n", name, i);
    for (size_t at = 0; at < letters; ++at) {
      text += "ACGT"[numbers.next_below(4)];
      if (at % 60 == 59) text += '\n';
    }
    text += '\n';
  }
  return text;
}

std::string refusal(const Place& place, const std::string& task, const Json& options = Json::object()) {
  std::string message;
  try {
    (void)place.open(task, options);
  } catch (const Error& error) {
    message = fmt::format("{} {}", static_cast<int>(error.code()), error.what());
  }
  CHECK(place.cache_is_empty());
  return message;
}

std::vector<uint8_t> ids_of(const DataSource& source, Split split, int64_t index) {
  const Example example = source.read(split, index);
  const auto ids = example.ids[0].as<uint8_t>();
  return {ids.begin(), ids.end()};
}

}  // namespace

TEST_CASE("a FASTA file is a class, its letters a g c t are ids 1 to 4 and all others 5", "[genome]") {
  const Place place;
  scratch::put(place.folder / "fly.fa", ">a\nAGCT\nagctu\n>b\nNRGG\n>c\nAG\n>d\nAGG\n>e\nAGT\n");
  scratch::put(place.folder / "man.fasta.gz", gzip(">a\nTTTT\n>b\nTTTA\n>c\nTTTC\n>d\nTTTG\n>e\nTTTN\n"));
  scratch::put(place.folder / "README.txt", "no table, since there is FASTA\n");
  const auto source = place.open("genome/pair", {{"length", 6}});
  const DataInfo& info = source->info();
  CHECK(info.details["classes"] == Json{"fly", "man"});
  CHECK((info.shape.vocabulary == 6 && info.shape.id_offset == 1 && info.shape.max_len == 6));
  CHECK((source->size(Split::kTrain) == 6 && source->size(Split::kDev) == 2 && source->size(Split::kTest) == 2));
  CHECK(info.details["letters"]["N"] == 2);
  CHECK(info.details["letters"]["R"] == 1);
  CHECK(info.details["letters"]["T"] == 4 + 16);
  CHECK((info.details["with_ambiguous_letters"] == 2 && info.details["cut"] == 1 && info.details["split"] == "own"));
  std::map<std::vector<uint8_t>, int64_t> labels;  // ids as stored, one less
  for (const Split split : kAllSplits)
    for (int64_t i = 0; i < source->size(split); ++i) labels[ids_of(*source, split, i)] = source->read(split, i).label;
  CHECK(labels.at({0, 1, 2, 3, 0, 1}) == 0);  // cut to six letters
  CHECK(labels.at({4, 4, 1, 1}) == 0);
  CHECK(labels.at({3, 3, 3, 4}) == 1);
  CHECK(labels.size() == 10);
  CHECK(info.shape.target.parameters.value("headline", "") == "");
  CHECK_THAT(find_dataset("genome/pair").show(source->read(Split::kTest, 0), info), Contains("letters, label"));
  const CheckReport report = find_dataset("genome/pair").check(options_of("genome/pair"), place.location(), {});
  CHECK(report.passed);
  CHECK_THAT(report.text(), Contains("letters that stand for several bases: 3 in 2 sequences") && Contains("N 2"));
}

TEST_CASE("hfdna keeps long records without ambiguous letters, mtcdna reads these as one id", "[genome]") {
  const Place place;
  const std::string odd = ">odd\n" + std::string(6000, 'A') + "N\n>short\n" + std::string(5000, 'C') + "\n";
  scratch::put(place.folder / "NONCODEv6_human.fa", fasta("h", 10, 5001, 1) + odd);
  scratch::put(place.folder / "NONCODEv6_fruitfly.fa.gz", gzip(fasta("f", 5, 5300, 2)));
  scratch::put(place.folder / "NONCODEv6_mouse.fa", fasta("m", 5, 5300, 4));
  const auto source = place.open("hfdna");
  const DataInfo& info = source->info();
  CHECK(info.details["classes"] == Json{"fruit-fly", "human"});  // 0 and 1, as in the authors' code
  CHECK((info.shape.vocabulary == 5 && info.shape.max_len == 16384));
  CHECK(info.shape.target.parameters["headline"] == "auc");
  CHECK((info.sizes == std::array<int64_t, 3>{9, 3, 3}));
  CHECK((info.details["shorter"] == 1 && info.details["with_ambiguous_letters"] == 1));
  CHECK_THAT(find_dataset("hfdna").check(options_of("hfdna"), place.location(), {}).text(),
             Contains("which are left out: 1") && Contains("are left out"));
  const Place other;
  for (const char* name : {"Chelonoidis_abingdonii", "Gopherus_agassizii", "Mus_musculus", "Mus_spretus"})
    scratch::put(other.folder / fmt::format("{}.X1.cdna.all.fa", name), fasta(name, 5, 5001, 3 + name[0]) + odd);
  const auto cdna = other.open("mtcdna");
  CHECK(cdna->info().details["classes"] == Json{"turtle", "mouse"});
  CHECK((cdna->info().shape.vocabulary == 6 && cdna->info().details["shorter"] == 4));
  CHECK(cdna->size(Split::kTrain) + cdna->size(Split::kDev) + cdna->size(Split::kTest) == 24);
}

TEST_CASE("promoter regions are two FASTA files or a table, judged by F1", "[genome]") {
  const Place place;
  scratch::put(place.folder / "human_promoter.fa", fasta("p", 10, 50, 1));
  scratch::put(place.folder / "human_nonpromoter.fa", fasta("n", 10, 50, 2));
  const auto source = place.open("promoter");
  CHECK(source->info().details["classes"] == Json{"made", "true"});
  CHECK((source->info().shape.target.parameters["headline"] == "f1" && source->info().shape.max_len == 8000));
  const Place table;
  scratch::put(table.folder / "fragments.csv", "Label,Sequence\n1,ACGT\n0,GGGG\n1,ACGA\n0,GGGC\n1,ACGC\n0,GGCC\n");
  const auto rows = table.open("promoter", {{"dev_share", 0.3}, {"test_share", 0.3}});
  CHECK(rows->info().details["classes"] == Json{"0", "1"});
  CHECK((rows->info().sizes == std::array<int64_t, 3>{2, 2, 2}));
  const Place more;
  scratch::put(more.folder / "fragments.csv", "Label,Sequence\n1,ACGT\n0,GGGG\n2,AAA\n");
  CHECK_THAT(refusal(more, "promoter"), Contains("promoter has two classes, found 3: 0, 1, 2"));
}

TEST_CASE("a made fragment keeps 8 of the 20 parts of its promoter, the others are random letters", "[genome]") {
  const size_t length = 2010;  // parts of 100 and of 101 letters
  const auto begin_of = [&](size_t part) { return part * length / 20; };
  std::array<int64_t, 20> kept{};
  std::map<char, int64_t> letters;
  for (uint64_t number = 0; number < 400; ++number) {
    const std::string made = made_fragment(std::string(length, 'N'), 7, number);
    REQUIRE(made.size() == length);
    int64_t stay = 0;
    for (size_t part = 0; part < 20; ++part) {
      const std::string own = made.substr(begin_of(part), begin_of(part + 1) - begin_of(part));
      const bool same = own.find_first_not_of('N') == own.npos;
      CHECK((same || own.find('N') == own.npos));  // a part stays whole or goes whole
      stay += same ? 1 : 0;
      kept[part] += same ? 1 : 0;
      for (const char letter : own) ++letters[letter];
    }
    CHECK(stay == 8);
  }
  // 160 of 400 each, deviation 9.8; of 482,400 drawn letters a quarter each, deviation 301.
  for (const int64_t count : kept) CHECK(std::abs(count - 160) < 49);
  CHECK(letters.size() == 5);
  for (const char letter : {'A', 'C', 'G', 'T'})
    CHECK(std::abs(static_cast<double>(letters[letter]) - static_cast<double>(length * 400 - letters['N']) / 4) < 1500);
  CHECK(made_fragment("ACGTACGTACGTACGTACGTACGT", 7, 1) == made_fragment("ACGTACGTACGTACGTACGTACGT", 7, 1));
  CHECK(made_fragment(std::string(length, 'N'), 7, 1) != made_fragment(std::string(length, 'N'), 7, 2));
  CHECK(made_fragment(std::string(length, 'N'), 7, 1) != made_fragment(std::string(length, 'N'), 8, 1));
}

TEST_CASE("of promoters alone the fragments are made, each in the split of its promoter", "[genome]") {
  const Place place;
  scratch::put(place.folder / "human_epdnew.fa", fasta("p", 20, 200, 1));
  const auto source = place.open("promoter", {{"made", "substituted"}});
  const DataInfo& info = source->info();
  CHECK(info.details["classes"] == Json{"made", "true"});
  CHECK((info.sizes == std::array<int64_t, 3>{24, 8, 8}));
  CHECK((info.details["made"] == 20 && info.details["sequences"] == 20));
  for (const Split split : kAllSplits) {
    std::vector<std::vector<uint8_t>> promoters, made;
    for (int64_t i = 0; i < source->size(split); ++i)
      (source->read(split, i).label == 1 ? promoters : made).push_back(ids_of(*source, split, i));
    REQUIRE(promoters.size() == made.size());
    // Of 200 letters 80 stay, and of the drawn ones a quarter is as it was: 110 of the own promoter's, 50 of another's.
    for (const auto& one : made) {
      int64_t most = 0;
      for (const auto& promoter : promoters) {
        int64_t same = 0;
        for (size_t at = 0; at < one.size(); ++at) same += one[at] == promoter[at] ? 1 : 0;
        most = std::max(most, same);
      }
      CHECK((most >= 85 && most < 140));
    }
  }
  CHECK_THAT(
      find_dataset("promoter").check(options_of("promoter", {{"made", "substituted"}}), place.location(), {}).text(),
      Contains("fragments made of promoters, one of each: 20"));
  CHECK_THROWS_WITH(place.open("promoter"), Contains("found human_epdnew.fa"));  // the default makes none
  DataLocation file = place.location();
  file.folder = place.folder / "human_epdnew.fa";
  const auto options = options_of("promoter", {{"made", "substituted"}});
  CHECK(find_dataset("promoter").open(options, file, {})->size(Split::kTrain) == 24);
  const Place table;
  scratch::put(table.folder / "fragments.csv", "Label,Sequence\n1,ACGT\n");
  CHECK_THAT(refusal(table, "promoter", {{"made", "substituted"}}), Contains("expected FASTA files"));
}

TEST_CASE("a table is read by its header, classes that are numbers in their order", "[genome]") {
  const Place place;
  std::string text = "sequence\tclass\r\n";
  for (const int label : {0, 2, 10})
    for (int i = 0; i < 5; ++i)
      text += fmt::format("{}N{}\t{}\r\n", std::string(i + 1, 'a'), label == 2 ? "c" : "g", label);
  text.resize(text.size() - 2);  // no end of the last line
  scratch::put(place.folder / "dog_data.txt", text);
  DataLocation one = place.location();
  one.folder = place.folder / "dog_data.txt";
  for (const DataLocation& location : {place.location(), one}) {
    const auto source = find_dataset("genome/dog").open(options_of("genome/dog"), location, {});
    CHECK(source->info().details["classes"] == Json{"0", "2", "10"});
    CHECK((source->info().sizes == std::array<int64_t, 3>{9, 3, 3}));
    CHECK(source->info().shape.target.classes() == 3);
  }
}

TEST_CASE("train and test of the files stay as they are", "[genome]") {
  const Place place;
  for (const char* split : {"train", "test", "val"}) fs::create_directory(place.folder / split);
  for (const char* name : {"a", "b"}) {
    scratch::put(place.folder / "train" / (std::string(name) + ".fa"), fasta(name, 10, 30, 1 + name[0]));
    scratch::put(place.folder / "test" / (std::string(name) + ".fa"), fasta(name, 4, 30, 5 + name[0]));
  }
  scratch::put(place.folder / "README.txt", "no table, since there are splits\n");
  CHECK((place.open("genome/parts")->info().sizes == std::array<int64_t, 3>{16, 4, 8}));
  scratch::put(place.folder / "val" / "b.fa", fasta("b", 3, 30, 9));
  CHECK((place.open("genome/parts")->info().sizes == std::array<int64_t, 3>{20, 3, 8}));
  scratch::put(place.folder / "test" / "c.fa", fasta("c", 3, 30, 9));
  CHECK_THAT(refusal(Place(), "genome/parts"), Contains("no sequences of genome/parts"));
  CHECK_THROWS_WITH(place.open("genome/parts"), Contains("the class c has no file in train/"));
  fs::remove_all(place.folder / "test");
  CHECK_THROWS_WITH(place.open("genome/parts"), Contains("found none of test"));
  const Place tables;
  scratch::put(tables.folder / "train.tsv", "sequence\tclass\nAC\tx\nGT\ty\nAA\tx\nGG\ty\n");
  scratch::put(tables.folder / "test.tsv", "sequence\tclass\nACC\tx\nGTT\tz\n");
  CHECK_THAT(refusal(tables, "genome/parts"), Contains("test.tsv:3: the class 'z' is none of those of train (x, y)"));
}

TEST_CASE("what is no set of sequences is named with its file and line", "[genome]") {
  const auto of = [](const std::string& name, const std::string& content) {
    const Place place;
    scratch::put(place.folder / "a.fa", fasta("a", 5, 20, 1));
    scratch::put(place.folder / name, content);
    return refusal(place, "genome/some");
  };
  CHECK_THAT(of("b.fa", ">x\nACGT\nMKL\n"), Contains("3 ") && Contains("b.fa:3") && Contains("nucleic acids"));
  CHECK_THAT(of("b.fa", ">x\n>y\nA\n"), Contains("b.fa:1: expected a sequence"));
  CHECK_THAT(of("b.fa", ""), Contains("b.fa: expected FASTA, found no record"));
  const std::string packed = gzip(fasta("b", 50, 200, 3));
  CHECK_THAT(of("b.fa.gz", packed.substr(0, packed.size() / 2)), Contains("b.fa.gz"));
  CHECK_THAT(of("README.txt", "words\n"), Contains("expected a FASTA file for each of two classes or more"));
  const auto table = [](const std::string& content) {
    const Place place;
    scratch::put(place.folder / "t.tsv", content);
    return refusal(place, "genome/some");
  };
  CHECK_THAT(table("sequence\tclass\nACGT\ta\nACXT\tb\n"), Contains("t.tsv:3") && Contains("found 'X' in column 3"));
  CHECK_THAT(table("sequence\tclass\nACGT\ta\n\tb\n"), Contains("t.tsv:3: expected a sequence, found none"));
  CHECK_THAT(table("sequence\tclass\nACGT\t\n"), Contains("t.tsv:2: expected a class, found none"));
  CHECK_THAT(table("letters\tclass\nACGT\ta\n"), Contains("expected a column 'sequence', found letters, class"));
  CHECK_THAT(table("sequence\tclass\n"), Contains("expected sequences of two classes or more, found none"));
  CHECK_THAT(table("sequence\tclass\nA\ta\nC\ta\n"), Contains("found those of a alone"));
  CHECK_THAT(table("sequence\tclass\n" + std::string(10'000'000, 'A') + "\ta\n"), Contains("found those of a alone"));
  CHECK_THAT(table("sequence\tclass\nACGT\ta\xff\n"), Contains("t.tsv:2: expected a class in UTF-8"));
  Place file;
  scratch::put(file.folder / "one.fa", ">a\nA\n");
  DataLocation location = file.location();
  location.folder = file.folder / "one.fa";
  CHECK_THROWS_WITH(find_dataset("genome/some").open(options_of("genome/some"), location, {}),
                    Contains("a FASTA file holds one class"));
}

TEST_CASE("classes by patterns take their files, and a class without one is named", "[genome]") {
  const Place place;
  scratch::put(place.folder / "x_coding_mRNA.fa", fasta("a", 5, 20, 1));
  scratch::put(place.folder / "x_noncoding_RNA.fa", fasta("b", 5, 20, 2));
  scratch::put(place.folder / "other.fa", fasta("c", 5, 20, 3));
  const auto source = place.open("genome/rna", {{"classes", "noncoding=*noncoding*,coding=*coding*"}});
  CHECK(source->info().details["classes"] == Json{"noncoding", "coding"});
  CHECK(source->size(Split::kTrain) == 6);
  CHECK_THROWS_WITH(place.open("genome/rna", {{"classes", "a=*coding_m*,b=*protein*|*amino*"}}),
                    Contains("expected a FASTA file of the class b (a name like *protein* or *amino*)"));
  scratch::put(place.folder / "a.tsv", "sequence\tclass\n");
  scratch::put(place.folder / "b.tsv", "sequence\tclass\n");
  CHECK_THROWS_WITH(place.open("hfdna"), Contains("a FASTA file for each class (like *fruitfly* and *human*), or one"));
  for (const char* name : {"a.tsv", "b.tsv"}) fs::remove(place.folder / name);
  CHECK_THROWS_WITH(place.open("genome/rna", {{"min_length", 21}}),
                    Contains("no sequence of the class other is left") && Contains("15 of 15 are shorter"));
  const auto& dataset = find_dataset("genome/rna");
  for (const char* wrong : {"a", "a=*", "=*,b=*", "a=x*,a=y*", "a=,b=*"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(dataset.check_options(options_of("genome/rna", {{"classes", wrong}})), UserError);
  }
  CHECK_THROWS_AS(dataset.check_options(options_of("genome/rna", {{"dev_share", 0.6}, {"test_share", 0.5}})),
                  UserError);
}

TEST_CASE("genuine sequences: human RNA in FASTA, chimpanzee and dog in tables", "[genome]") {
  const auto folder = scratch::real_data("genome");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with genome/");
    SUCCEED();
    return;
  }
  const scratch::Folder cache;
  const auto open = [&](const std::string& task, const Path& place, const Json& options) {
    DataLocation location;
    location.folder = place;
    location.cache = cache.path();
    return find_dataset(task).open(options_of(task, options), location, {});
  };
  const auto rna = open("genome/rna", *folder, {{"classes", "noncoding=*noncoding*,coding=*coding_mRNA*"}});
  CHECK((rna->info().sizes == std::array<int64_t, 3>{4800, 1600, 1600}));
  CHECK(rna->info().details["letters"].size() == 4);  // A C G T alone
  CHECK(rna->info().details["sequences"] == 8000);
  const auto longer =
      open("genome/rna", *folder, {{"classes", "noncoding=*noncoding*,coding=*coding_mRNA*"}, {"min_length", 5001}});
  CHECK(longer->size(Split::kTrain) + longer->size(Split::kDev) + longer->size(Split::kTest) == 537 + 46);
  const auto dog = open("genome/dog", *folder / "dog_data.txt", Json::object());
  CHECK(dog->size(Split::kTrain) + dog->size(Split::kDev) + dog->size(Split::kTest) == 820);
  const auto chimp = open("genome/chimp", *folder / "chimp_data.txt.gz", Json::object());
  CHECK(chimp->size(Split::kTrain) + chimp->size(Split::kDev) + chimp->size(Split::kTest) == 1682);
  CHECK(chimp->info().details["classes"] == Json{"0", "1", "2", "3", "4", "5", "6"});
}

}  // namespace xformer::genome_test
