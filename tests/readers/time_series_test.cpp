// Time series in .ts and ARFF files: what is read, what is refused, and the archives' own files.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "core/error.h"
#include "readers/time_series.h"
#include "scratch.h"

namespace xformer::time_series_test {

using Catch::Matchers::Contains;
using namespace readers;
using Dimensions = std::vector<std::vector<float>>;

struct Read {
  SeriesHeader header;
  std::vector<SeriesCase> cases;
};

Read read(const Path& path) {
  SeriesReader reader(path);
  Read result{reader.header(), {}};
  for (SeriesCase series; reader.next(series);) result.cases.push_back(series);
  return result;
}

Read read_text(std::string_view text) {
  const scratch::Folder folder;
  return read(scratch::put(folder / "a.ts", text));
}

std::string refusal(std::string_view text) {
  return scratch::message_of<DataError>([&] { (void)read_text(text); });
}

// Value by value; missing where missing.
bool same(const Dimensions& left, const Dimensions& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](const auto& a, const auto& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); });
  });
}

constexpr float kMissing = NAN;

const std::string kTs =
    "#a comment\n% another \xff\n\n@problemName Two words\n@timeStamps false\n@missing false\n@univariate false\n"
    "@dimensions 2\n@equalLength true\n@seriesLength 3\n@classLabel true up_1 10.0 2.0\n@data\n";

const std::string kArff =
    "% a comment\n@relation 'It\\'s'\n\n@attribute relationalAtt relational\n\t@attribute att0 numeric\n"
    "@attribute att1 numeric\n@attribute att2 real\n@end relationalAtt\n@attribute activity {up, 'two words',3.0}\n\n"
    "@data\n";

std::string with(std::string text, const std::string& from, const std::string& to) {
  const size_t place = text.find(from);
  REQUIRE(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

TEST_CASE("a .ts file gives its header and its cases, labels in the header's order") {
  const Read file = read_text(kTs + "1,-2.5,+3:4e2,5E-1,.25:2.0\n\n#between\n 1 , 2,3 : 4,5,6 : up_1 \n");
  CHECK(file.header.name == "Two words");
  CHECK(file.header.class_labels == std::vector<std::string>{"up_1", "10.0", "2.0"});
  CHECK_FALSE(file.header.timestamps);
  CHECK(file.header.dimensions == 2);
  CHECK(file.header.length == 3);
  CHECK(file.header.equal_length == true);
  CHECK(file.header.missing == false);
  REQUIRE(file.cases.size() == 2);
  CHECK(same(file.cases[0].dimensions, {{1, -2.5, 3}, {400, 0.5, 0.25}}));
  CHECK(file.cases[0].label == 2);
  CHECK(same(file.cases[1].dimensions, {{1, 2, 3}, {4, 5, 6}}));
  CHECK(file.cases[1].label == 0);
}

TEST_CASE("keywords and truth values are read in any case, lines with CRLF, and unknown notes are left alone") {
  const Read file = read_text(
      "@PROBLEMNAME x\r\n@Frequency 50\r\n@TimeStamps FALSE\r\n@classlabel True a\tb\r\n@DATA\r\n1:a\r\n2,3:b\r\n");
  CHECK(file.header.class_labels == std::vector<std::string>{"a", "b"});
  CHECK_FALSE(file.header.length.has_value());
  REQUIRE(file.cases.size() == 2);
  CHECK(same(file.cases[1].dimensions, {{2, 3}}));
  CHECK(file.cases[1].label == 1);
}

TEST_CASE("missing values are NaN, and numbers too small for a float 0") {
  const Read file = read_text("@classLabel true a b\n@missing true\n@data\n?,NaN,1e-60,nan, 2:a\n");
  CHECK(same(file.cases.at(0).dimensions, {{kMissing, kMissing, 0, kMissing, 2}}));
}

TEST_CASE("pairs of time and value are taken apart whatever the time holds") {
  const Read file = read_text(
      "@timeStamps True\n@classLabel true 1 2\n@data\n"
      "(2007-01-01 00:00:00,241.5),(2007-01-01 00:01:00,?):(0,1), (1,2) :2\n(a,b:c,7):(3,-1e1):1\n");
  REQUIRE(file.cases.size() == 2);
  CHECK(same(file.cases[0].dimensions, {{241.5, kMissing}, {1, 2}}));
  CHECK(file.cases[0].label == 1);
  CHECK(same(file.cases[1].dimensions, {{7}, {-10}}));
}

TEST_CASE("dimensions of a case may differ in length, and @seriesLength is the longest where lengths differ") {
  const Read file =
      read_text("@classLabel true a b\n@equalLength false\n@seriesLength 4\n@data\n1,2,3,4:5,6:a\n1:2:b\n");
  CHECK(same(file.cases.at(0).dimensions, {{1, 2, 3, 4}, {5, 6}}));
  CHECK(same(file.cases.at(1).dimensions, {{1}, {2}}));
}

TEST_CASE("a relational ARFF file gives its header and its cases") {
  const Read file = read_text(kArff + "'1,2,3\\n4,5,6','two words'\n\"7,8,9\\n-1e1,?,0\" , 3.0\n'1,2,3\\n4,5,6',up\n");
  CHECK(file.header.name == "It's");
  CHECK(file.header.class_labels == std::vector<std::string>{"up", "two words", "3.0"});
  CHECK(file.header.length == 3);
  CHECK_FALSE(file.header.dimensions.has_value());
  REQUIRE(file.cases.size() == 3);
  CHECK(same(file.cases[0].dimensions, {{1, 2, 3}, {4, 5, 6}}));
  CHECK(same(file.cases[1].dimensions, {{7, 8, 9}, {-10, kMissing, 0}}));
  CHECK((file.cases[0].label == 1 && file.cases[1].label == 2 && file.cases[2].label == 0));
}

TEST_CASE("an ARFF tail without any value is padding, a gap in one dimension is not") {
  const Read file = read_text(kArff + "'1,?,?\\n4,?,?',up\n'1,?,?\\n4,5,?',up\n'?,?,?\\n?,?,?',up\n");
  CHECK(same(file.cases.at(0).dimensions, {{1}, {4}}));
  CHECK(same(file.cases.at(1).dimensions, {{1, kMissing}, {4, 5}}));
  CHECK(file.cases.at(2).dimensions.front().size() == 3);
}

TEST_CASE("an ARFF file of one dimension has an attribute for every time step") {
  const Read file = read_text(
      "@RELATION x\n@ATTRIBUTE att0 NUMERIC\n@attribute 'att 1' Numeric\n@attribute target {-1,1}\n@data\n"
      "1.5,2,1\n?,4, -1\n");
  CHECK(file.header.dimensions == 1);
  CHECK(file.header.class_labels == std::vector<std::string>{"-1", "1"});
  CHECK(same(file.cases.at(0).dimensions, {{1.5, 2}}));
  CHECK(file.cases.at(0).label == 1);
  CHECK(same(file.cases.at(1).dimensions, {{kMissing, 4}}));
  CHECK(file.cases.at(1).label == 0);
}

TEST_CASE("a header that its rows contradict is refused with line and field") {
  struct Claim {
    const char *from, *to, *row, *said;
  };
  const auto bad = GENERATE(
      Claim{"@dimensions 2", "@dimensions 3", "1,2,3:4,5,6:2.0", "states 3 dimensions, the case has 2"},
      Claim{"@dimensions 2", "", "1,2,3:2.0", "states @univariate false, the case has 1 dimension"},
      Claim{"@univariate false\n@dimensions 2", "@univariate true\n", "1,2,3:4,5,6:2.0",
            "states @univariate true, the case has 2 dimensions"},
      Claim{"@seriesLength 3", "@seriesLength 4", "1,2,3:4,5,6:2.0", "states series of 4, dimension 1 has 3 values"},
      Claim{"@seriesLength 3", "", "1,2,3:4,5:2.0",
            "@equalLength true, dimension 2 has 2 values and the first series 3"},
      Claim{"@equalLength true\n@seriesLength 3", "@equalLength false\n@seriesLength 2", "1,2:4,5,6:2.0",
            "longest series of 2, dimension 2 has 3"},
      Claim{"@missing false", "@missing false", "1,2,3:4,?,6:2.0", "@missing false, value 2 of dimension 2 is missing"},
      Claim{"@timeStamps false", "", "(0,1),(1,2),(2,3):(0,1),(1,2),(2,3):2.0", "does not state @timeStamps true"},
      Claim{"@timeStamps false", "@timeStamps true", "1,2,3:4,5,6:2.0", "found '1,2,3:4,5,6'"},
      Claim{"up_1", "up_1", "1,2,3:4,5,6:2", "label of the header (up_1, 10.0, 2.0), found '2'"},
      Claim{"up_1", "up_1", "1,2,3:4,5,6:up-2", "did you mean 'up_1'?"});
  const std::string message = refusal(with(kTs, bad.from, bad.to) + bad.row + "\n");
  CHECK_THAT(message, Contains("a.ts:13: ") && Contains(bad.said));
}

TEST_CASE("a case that differs from the first in its dimensions or its length is refused") {
  CHECK_THAT(refusal("@classLabel true a b\n@data\n1:2:a\n1:a\n"),
             Contains("a.ts:4: expected 2 dimensions as in the first case, found 1"));
  CHECK_THAT(refusal("@classLabel true a b\n@equalLength true\n@data\n1,2:a\n1,2,3:a\n"),
             Contains("a.ts:5: ") && Contains("dimension 1 has 3 values and the first series 2"));
}

TEST_CASE("values that are no finite numbers are refused with their place") {
  for (const char* bad : {"abc", "", "1.5x", "0x10", "1 2", "--1", "+-1", "+", "nan(1)", "-nan", "1;2"}) {
    INFO(bad);
    CHECK_THAT(refusal(kTs + "1,2,3:4," + bad + ",6:2.0\n"),
               Contains("a.ts:13: expected a number or '?' as value 2 of dimension 2, found"));
  }
  for (const char* infinite : {"inf", "-Infinity", "1e39", "-1e999999"}) {
    INFO(infinite);
    CHECK_THAT(refusal(kTs + "1,2,3:4," + infinite + ",6:2.0\n"),
               Contains("a.ts:13: expected a finite number as value 2 of dimension 2, found"));
  }
}

TEST_CASE("rows that are no cases are refused") {
  CHECK_THAT(refusal(kTs + "1,2,3\n"), Contains("a.ts:13: expected dimensions and a label"));
  CHECK_THAT(refusal(kTs + "1,2,3::2.0\n"), Contains("expected values in dimension 2, found none"));
  CHECK_THAT(refusal(kTs + ":2.0\n"), Contains("expected values in dimension 1, found none"));
  const std::string pairs = "@classLabel true 1 2\n@timeStamps true\n@data\n";
  CHECK_THAT(refusal(pairs + "(0,1),(1,2:1\n"), Contains("a.ts:4: ") && Contains("value 2 of dimension 1"));
  CHECK_THAT(refusal(pairs + "(5):1\n"), Contains("expected (time,value) as value 1 of dimension 1, found '(5)'"));
  CHECK_THAT(refusal(pairs + "(,5):1\n"), Contains("expected (time,value)"));
  CHECK_THAT(refusal(pairs + "(0,x):1\n"), Contains("expected a number") && Contains("found 'x'"));
  CHECK_THAT(refusal(pairs + "(0,1)(1,2):1\n"), Contains("expected ',' or ':' after value 1"));
}

TEST_CASE("a header that cannot be used is refused with its line") {
  CHECK_THAT(refusal(""), Contains("a.ts: expected @data and cases, found the end of the file"));
  CHECK_THAT(refusal("@classLabel true a b\n1:a\n"), Contains("a.ts:2: expected a header line"));
  CHECK_THAT(refusal("@classLabel true a b\n"), Contains("expected @data"));
  CHECK_THAT(refusal(kTs), Contains("a.ts: expected at least one case"));
  CHECK_THAT(refusal("@classLabel false\n@data\n1\n"), Contains("a.ts:1: ") && Contains("this set has none"));
  CHECK_THAT(refusal("@classLabel true\n@data\n1\n"), Contains("a.ts:1: expected labels"));
  CHECK_THAT(refusal("@missing false\n@data\n1\n"), Contains("a.ts:2: expected a line '@classLabel true"));
  CHECK_THAT(refusal("@classLabel true a\n@data\n1:a\n"), Contains("at least two class labels") && Contains("'a'"));
  CHECK_THAT(refusal("@classLabel true a b a\n@data\n"), Contains("every class label once") && Contains("'a'"));
  CHECK_THAT(refusal("@targetLabel true\n@data\n"), Contains("a.ts:1: ") && Contains("regression"));
  CHECK_THAT(refusal("@missing maybe\n"), Contains("a.ts:1: expected true or false after @missing, found 'maybe'"));
  CHECK_THAT(refusal("@missing true false\n"), Contains("expected true or false after @missing, found 'false'"));
  CHECK_THAT(refusal("@dimensions 0\n"), Contains("whole number from 1 after @dimensions, found '0'"));
  CHECK_THAT(refusal("@seriesLength 1.5\n"), Contains("after @serieslength, found '1.5'"));
  CHECK_THAT(refusal("@missing true\n@Missing true\n"), Contains("a.ts:2: expected @missing once"));
  CHECK_THAT(refusal("@classLabels true a b\n"), Contains("did you mean '@classLabel'?"));
}

TEST_CASE("an ARFF file that cannot be used is refused with line and field") {
  const std::string row = "'1,2,3\\n4,5,6',up\n";
  CHECK_THAT(refusal(kArff + "'1,2,3\\n4,5',up\n"),
             Contains("a.ts:12: ") && Contains("3 numeric attributes (time steps), dimension 2 has 2 values"));
  CHECK_THAT(refusal(kArff + "'1,2,3\\n4,x,6',up\n"), Contains("value 2 of dimension 2, found 'x'"));
  CHECK_THAT(refusal(kArff + "'1,2,3',down\n"), Contains("found 'down'"));
  CHECK_THAT(refusal(kArff + "1,2,3,up\n"), Contains("expected the dimensions in quotes"));
  CHECK_THAT(refusal(kArff + "'1,2,3,up\n"), Contains("expected the end of the quoted text"));
  CHECK_THAT(refusal(kArff + "'1,2,3'\n"), Contains("expected ',' and a label"));
  CHECK_THAT(refusal(kArff + "'1,2,3',up,up\n"), Contains("expected the end of the line after the label 'up'"));
  CHECK_THAT(refusal(kArff + "'1,2,3',up\n" + row), Contains("a.ts:13: expected 1 dimensions as in the first case"));
  CHECK_THAT(refusal(kArff), Contains("at least one case"));
  CHECK_THAT(refusal(with(kArff, "@attribute activity {up, 'two words',3.0}", "") + row),
             Contains("a class attribute"));
  CHECK_THAT(refusal(with(kArff, "{up, 'two words',3.0}", "{up}") + row), Contains("at least two class labels"));
  CHECK_THAT(refusal(with(kArff, "'two words'", "caf\xe9") + row), Contains("a.ts:9: expected text in UTF-8"));
  CHECK_THAT(refusal(with(kTs, "10.0", "caf\xe9") + row),
             Contains("a.ts:11: expected text in UTF-8, found the byte 0xe9"));
  CHECK_THAT(refusal(with(kArff, "{up, 'two words',3.0}", "{up,") + row), Contains("expected class labels as {a,b,"));
  CHECK_THAT(refusal(with(kArff, "{up, 'two words',3.0}", "{up,'b' c}") + row), Contains("found 'c}'"));
  CHECK_THAT(refusal(with(kArff, "{up, 'two words',3.0}", "{up,b} c") + row), Contains("found '} c'"));
  CHECK_THAT(refusal(with(kArff, "{up, 'two words',3.0}", "numeric") + row), Contains("found the numeric 'activity'"));
  CHECK_THAT(refusal(with(kArff, "{up, 'two words',3.0}", "string") + row), Contains("found 'string' for 'activity'"));
  CHECK_THAT(refusal(with(kArff, "att2 real", "att2 date") + row), Contains("a.ts:7: expected the type numeric"));
  CHECK_THAT(refusal(with(kArff, "@end relationalAtt\n@attribute activity {up, 'two words',3.0}\n", "") + row),
             Contains("expected @end"));
  CHECK_THAT(refusal(with(kArff, "3.0}\n", "3.0}\n@attribute x numeric\n") + row), Contains("found 'x' after it"));
  CHECK_THAT(refusal(with(kArff, "@end relationalAtt", "@end relationalAtt\n@end relationalAtt") + row),
             Contains("@end without a relational attribute"));
  CHECK_THAT(refusal(with(kArff, "@end relationalAtt", "@end relationalAtt\n@attribute b relational") + row),
             Contains("one relational attribute"));
  CHECK_THAT(refusal(with(kArff, "@end relationalAtt", "@stop") + row), Contains("found '@stop'"));
  CHECK_THAT(refusal("@relation x\n@attribute c {a,b}\n@data\na\n"), Contains("expected numeric attributes"));
  CHECK_THAT(refusal("@relation x\n@attribute y numeric\n@attribute c {a,b}\n@data\na\n"),
             Contains("a.ts:5: expected 1 values and a label, found 1 fields"));
}

TEST_CASE("the archives' own files have the counts that the archives state") {
  const auto folder = scratch::real_data("uea");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with uea/");
    SUCCEED();
    return;
  }
  struct Set {
    const char *train, *test;
    size_t train_cases, test_cases, dimensions, shortest, longest, classes;
  };
  const Set set = GENERATE(
      Set{"Handwriting/Handwriting_TRAIN.ts", "Handwriting/Handwriting_TEST.ts.gz", 150, 850, 3, 152, 152, 26},
      Set{"JapaneseVowels/JapaneseVowels_TRAIN.ts", "JapaneseVowels/JapaneseVowels_TEST.ts", 270, 370, 12, 7, 29, 9},
      Set{"UWaveGestureLibrary/UWaveGestureLibrary_TRAIN.ts", "UWaveGestureLibrary/UWaveGestureLibrary_TEST.ts.gz", 120,
          320, 3, 315, 315, 8},
      Set{"NATOPS/NATOPS_TRAIN.ts.gz", "NATOPS/NATOPS_TEST.ts.gz", 180, 180, 24, 51, 51, 6},
      Set{"LSST/LSST_TRAIN.ts.gz", "LSST/LSST_TEST.ts.gz", 2459, 2466, 6, 36, 36, 14},
      Set{"RacketSports/RacketSports_TRAIN.ts", "RacketSports/RacketSports_TEST.ts", 151, 152, 6, 30, 30, 4},
      Set{"BasicMotions/BasicMotions_TRAIN.arff", "BasicMotions/BasicMotions_TEST.arff", 40, 40, 6, 100, 100, 4},
      Set{"ArticularyWordRecognition/ArticularyWordRecognition_TRAIN.arff.gz",
          "ArticularyWordRecognition/ArticularyWordRecognition_TEST.arff.gz", 275, 300, 9, 144, 144, 25},
      Set{"PickupGestureWiimoteZ/PickupGestureWiimoteZ_TRAIN.ts", "PickupGestureWiimoteZ/PickupGestureWiimoteZ_TEST.ts",
          50, 50, 1, 29, 361, 10});
  INFO(set.train);
  size_t shortest = SIZE_MAX, longest = 0;
  for (const bool train : {true, false}) {
    const Read file = read(*folder / (train ? set.train : set.test));
    CHECK(file.header.class_labels.size() == set.classes);
    CHECK(file.cases.size() == (train ? set.train_cases : set.test_cases));
    std::set<int64_t> labels;
    int64_t missing = 0, wrong_dimensions = 0;
    for (const SeriesCase& series : file.cases) {
      labels.insert(series.label);
      wrong_dimensions += series.dimensions.size() == set.dimensions ? 0 : 1;
      for (const auto& values : series.dimensions) {
        shortest = std::min(shortest, values.size());
        longest = std::max(longest, values.size());
        for (const float value : values) missing += std::isnan(value) ? 1 : 0;
      }
    }
    CHECK(labels.size() == set.classes);  // the labels in the data are exactly those of the header
    CHECK(wrong_dimensions == 0);
    CHECK(missing == 0);
  }
  CHECK(shortest == set.shortest);
  CHECK(longest == set.longest);
}

TEST_CASE("the archives' .ts and ARFF files of one set agree in every value and label") {
  const auto folder = scratch::real_data("uea");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with uea/");
    SUCCEED();
    return;
  }
  for (const char* part : {"TRAIN", "TEST"}) {
    const std::string stem = std::string("BasicMotions_") + part;
    const Read ts = read(*folder / "BasicMotions" / (stem + ".ts"));
    const Read arff = read(*folder / "BasicMotions" / (stem + ".arff"));
    CHECK(ts.header.class_labels == arff.header.class_labels);
    REQUIRE(ts.cases.size() == arff.cases.size());
    int64_t different = 0;
    for (size_t i = 0; i < ts.cases.size(); ++i)
      different +=
          same(ts.cases[i].dimensions, arff.cases[i].dimensions) && ts.cases[i].label == arff.cases[i].label ? 0 : 1;
    CHECK(different == 0);
  }
}

TEST_CASE("the archive's file with times, single values and labels of real files are where they should be") {
  const auto folder = scratch::real_data("uea");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with uea/");
    SUCCEED();
    return;
  }
  const Read times = read(*folder / "UnitTestTimeStamps/UnitTestTimeStamps_TRAIN.ts");
  CHECK(times.header.timestamps);
  REQUIRE(times.cases.size() == 4);
  CHECK(same(times.cases[0].dimensions, {{241.97F, 241.75F, 241.64F, 241.71F}}));
  CHECK(same(times.cases[3].dimensions, {{1, 0, 1, 1}}));
  CHECK((times.cases[1].label == 0 && times.cases[2].label == 1));
  // Text order would put "10.0" in front of "2.0".
  CHECK(read(*folder / "Handwriting/Handwriting_TRAIN.ts").header.class_labels.at(9) == "10.0");
  CHECK(read(*folder / "LSST/LSST_TRAIN.ts.gz").header.class_labels.at(3) == "42");
  // The one value that its publisher seems to have put for a gap.
  CHECK(read(*folder / "JapaneseVowels/JapaneseVowels_TRAIN.ts").cases.at(100).dimensions.at(2).at(4) == 0);
}

}  // namespace xformer::time_series_test
