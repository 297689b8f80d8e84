// What becomes of time series between file and model, by hand on tiny cases and on the archives' own files; which
// files of a folder are a set.
#include "data/series/series.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "core/error.h"
#include "data/series/series_files.h"
#include "scratch.h"

namespace xformer::series_test {

using Catch::Matchers::Contains;
using namespace data;
using Values = std::vector<float>;

constexpr float kMissing = NAN;

Series series_of(int64_t variables, const Values& values) {
  return {values, static_cast<int64_t>(values.size()) / variables, variables, 0};
}

bool same(const Values& left, const Values& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

TEST_CASE("a case becomes one row of variables for each time step") {
  Series series;
  CHECK(align({{{1, 2, 3}, {4, kMissing, 6}}, 7}, "here", series) == 0);
  CHECK(same(series.values, {1, 4, 2, kMissing, 3, 6}));
  CHECK((series.length == 3 && series.variables == 2 && series.label == 7));
}

TEST_CASE("longer dimensions are subsampled to the shortest") {
  Series series;
  CHECK(align({{{1, 2}, {3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}}, 0}, "here", series) == 2);
  CHECK(same(series.values, {1, 3, 7, 2, 5, 10}));
  CHECK(align({{{1, 2, 3}, {4, 5}}, 0}, "here", series) == 1);  // steps 0 and 2 of three
  CHECK(same(series.values, {1, 4, 3, 5}));
  CHECK(align({{{1}, {4, 5, 6, 7, 8}}, 0}, "here", series) == 1);
  CHECK(same(series.values, {1, 4}));
}

TEST_CASE("dimensions of which no step makes the lengths equal are refused") {
  // Every second of seven values is four, every third three: never five.
  const std::string message = scratch::message_of<DataError>([] {
    Series series;
    (void)align({{Values(7), Values(5)}, 0}, "a.ts:3", series);
  });
  CHECK_THAT(message, Contains("a.ts:3: ") && Contains("shortest's 5 values") && Contains("7 values in dimension 1"));
}

TEST_CASE("gaps are filled on a straight line, at the ends with the nearest value") {
  Series series =
      series_of(2, {kMissing, kMissing, 1, kMissing, kMissing, kMissing, kMissing, 5, 4, kMissing, kMissing, 8});
  const Gaps gaps = fill_gaps(series);
  CHECK(gaps.filled == 8);
  CHECK(gaps.empty == 0);
  // First variable: ? 1 ? ? 4 ?; second: ? ? ? 5 ? 8.
  CHECK(same(series.values, {1, 5, 1, 5, 2, 5, 3, 5, 4, 6.5, 4, 8}));
}

TEST_CASE("a variable without any value stays missing, is counted, and is 0 when standardised") {
  Series series = series_of(2, {kMissing, 1, kMissing, kMissing, kMissing, 3});
  const Gaps gaps = fill_gaps(series);
  CHECK((gaps.filled == 1 && gaps.empty == 1));
  CHECK(same(series.values, {kMissing, 1, kMissing, 2, kMissing, 3}));
  const SeriesStatistics statistics = series_statistics(std::vector<Series>{series});
  CHECK(statistics.constant() == 1);
  standardise(series, statistics, "here");
  CHECK(same(series.values, {0, -1, 0, 0, 0, 1}));
}

TEST_CASE("statistics are taken over all time steps of all cases, whatever their lengths") {
  // First variable: 1 2 3 and 6, mean 3, squares 4 + 1 + 0 + 9 = 14, over n - 1 = 3. Second: -8 0 8 (one is missing).
  const std::vector<Series> cases{series_of(2, {1, -8, 2, 0, 3, 8}), series_of(2, {6, kMissing})};
  const SeriesStatistics statistics = series_statistics(cases);
  CHECK(statistics.mean == std::vector<double>{3, 0});
  CHECK(statistics.deviation[0] == Approx(std::sqrt(14.0 / 3)).epsilon(1e-15));
  CHECK(statistics.deviation[1] == 8);
  CHECK(statistics.constant() == 0);
  Series test = series_of(2, {10, 4, 3, -4});  // by the training cases' figures, not by its own
  standardise(test, statistics, "here");
  CHECK(test.values[0] == Approx(7 / std::sqrt(14.0 / 3)));
  CHECK(same({test.values.begin() + 1, test.values.end()}, {0.5, 0, -0.5}));
}

TEST_CASE("large values and many of them lose no precision in a sum") {
  // 100,000 times 1e6 -+ 1: a sum in float would be off by far more than the deviation.
  Series series = series_of(1, Values(100000, 1e6F + 1));
  for (size_t i = 0; i < series.values.size(); i += 2) series.values[i] = 1e6F - 1;
  const SeriesStatistics statistics = series_statistics(std::vector<Series>{series});
  CHECK(statistics.mean[0] == 1e6);
  CHECK(statistics.deviation[0] == Approx(std::sqrt(100000.0 / 99999)).epsilon(1e-12));
}

TEST_CASE("a variable that is constant in training is 0, in test too") {
  const SeriesStatistics statistics = series_statistics(std::vector<Series>{series_of(2, {0.1F, 1, 0.1F, 2, 0.1F, 3})});
  CHECK(statistics.constant() == 1);
  Series test = series_of(2, {5, 2});
  standardise(test, statistics, "here");
  CHECK(same(test.values, {0, 0}));
}

TEST_CASE("a value that no float can hold once standardised is refused") {
  const SeriesStatistics statistics = series_statistics(std::vector<Series>{series_of(1, {0, 1e-20F})});
  Series test = series_of(1, {3e38F});
  const std::string message = scratch::message_of<DataError>([&] { standardise(test, statistics, "b.ts:9"); });
  CHECK_THAT(message, Contains("b.ts:9: ") && Contains("values of dimension 1 on the scale of the training cases"));
}

TEST_CASE("the model's length is the longest of both files, or of training with longer series clipped") {
  const std::vector<Series> training{series_of(2, Values(4)), series_of(2, Values(6))};
  std::vector<Series> test{series_of(2, {1, 2, 3, 4, 5, 6, 7, 8}), series_of(2, Values(2))};
  CHECK(model_length(training, test, SeriesLength::kBoth) == 4);
  CHECK(model_length(training, test, SeriesLength::kTrain) == 3);
  CHECK(model_length(test, training, SeriesLength::kTrain) == 4);
  CHECK(clip(test[0], 3));
  CHECK(test[0].length == 3);
  CHECK(same(test[0].values, {1, 2, 3, 4, 5, 6}));
  CHECK_FALSE(clip(test[0], 3));
  CHECK_FALSE(clip(test[1], 3));
  CHECK(test[1].values.size() == 2);
}

TEST_CASE("labels of another order are matched by their text, unknown ones refused") {
  CHECK(match_labels({"b", "a"}, {"a", "b", "c"}, "t") == std::vector<int64_t>{1, 0});
  const std::string message = scratch::message_of<DataError>([] {
    (void)match_labels({"a", "d"}, {"a", "b"}, "t.ts");
  });
  CHECK_THAT(message, Contains("t.ts: ") && Contains("(a, b)") && Contains("found 'd'"));
}

std::map<int64_t, int64_t> counts(const std::vector<int64_t>& places, const std::vector<int64_t>& labels) {
  std::map<int64_t, int64_t> result;
  for (const int64_t place : places) ++result[labels[static_cast<size_t>(place)]];
  return result;
}

TEST_CASE("the dev split takes a fifth of every class, and leaves both sides one of each that has two") {
  std::vector<int64_t> labels;
  for (const auto& [label, count] : std::map<int64_t, int>{{0, 1}, {1, 2}, {2, 7}, {3, 50}, {4, 8}})
    labels.insert(labels.end(), static_cast<size_t>(count), label);
  std::reverse(labels.begin(), labels.end());
  const DevSplit split = stratified_split(labels);
  // 7 / 5 = 1.4 and 8 / 5 = 1.6 are rounded.
  CHECK(counts(split.dev, labels) == std::map<int64_t, int64_t>{{1, 1}, {2, 1}, {3, 10}, {4, 2}});
  CHECK(counts(split.training, labels) == std::map<int64_t, int64_t>{{0, 1}, {1, 1}, {2, 6}, {3, 40}, {4, 6}});
  CHECK((std::is_sorted(split.dev.begin(), split.dev.end()) &&
         std::is_sorted(split.training.begin(), split.training.end())));
  std::vector<int64_t> all = split.dev;
  all.insert(all.end(), split.training.begin(), split.training.end());
  std::sort(all.begin(), all.end());
  REQUIRE(all.size() == labels.size());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());  // each once
  CHECK((all.front() == 0 && all.back() == static_cast<int64_t>(labels.size()) - 1));
  // A share that rounds to all of a class leaves one.
  CHECK(counts(stratified_split(labels, 0.99).training, labels).at(1) == 1);
}

TEST_CASE("the dev split is drawn by its seed alone, 1337 unless told") {
  std::vector<int64_t> labels(60);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int64_t>(i % 3);
  const DevSplit split = stratified_split(labels);
  CHECK(stratified_split(labels, 0.2, 1337).dev == split.dev);
  CHECK(stratified_split(labels, 0.2, 1338).dev != split.dev);
  std::map<int64_t, std::vector<int64_t>> drawn;  // by class, places within it
  for (const int64_t place : split.dev) drawn[place % 3].push_back(place / 3);
  CHECK((drawn[0] != drawn[1] && drawn[1] != drawn[2] && drawn[0] != drawn[2]));
  // Cases of a further class move nothing within the others.
  std::vector<int64_t> more = labels;
  more.insert(more.end(), 10, 3);
  DevSplit wider = stratified_split(more);
  wider.dev.resize(split.dev.size());
  CHECK(wider.dev == split.dev);
}

TEST_CASE("a dev split needs a class of two cases") {
  const std::vector<int64_t> labels{0, 1, 2};
  CHECK_THAT(scratch::message_of<DataError>([&] { (void)stratified_split(labels); }),
             Contains("at least two training cases") && Contains("3 cases of 3 classes"));
}

TEST_CASE("standardised training cases of a real set have mean 0 and deviation 1, and the test set keeps its length") {
  const auto folder = scratch::real_data("uea");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with uea/");
    SUCCEED();
    return;
  }
  const SeriesFiles files = find_series_files(*folder, "japanesevowels", true);
  CHECK(files.name == "JapaneseVowels");
  const auto load = [](const Path& path) {
    readers::SeriesReader reader(path);
    std::vector<Series> cases;
    for (readers::SeriesCase from; reader.next(from);) CHECK(align(from, reader.where(), cases.emplace_back()) == 0);
    return cases;
  };
  std::vector<Series> training = load(*files.train);
  const std::vector<Series> test = load(*files.test);
  CHECK(model_length(training, test, SeriesLength::kBoth) == 29);
  CHECK(model_length(training, test, SeriesLength::kTrain) == 26);
  CHECK(std::count_if(test.begin(), test.end(), [](const Series& series) { return series.length > 26; }) > 0);
  const SeriesStatistics statistics = series_statistics(training);
  // Python's statistics.fmean and stdev of the 4,274 values as doubles; ours are of floats.
  CHECK(statistics.mean.at(0) == Approx(0.8691055004679457).epsilon(1e-7));
  CHECK(statistics.deviation.at(0) == Approx(0.4876769390865794).epsilon(1e-7));
  CHECK(statistics.mean.at(11) == Approx(0.08621397660271408).epsilon(1e-7));
  CHECK(statistics.deviation.at(11) == Approx(0.12756161310037542).epsilon(1e-7));
  for (Series& series : training) standardise(series, statistics, "here");
  const SeriesStatistics after = series_statistics(training);
  REQUIRE(after.mean.size() == 12);
  for (size_t v = 0; v < 12; ++v) {
    CHECK(std::abs(after.mean[v]) < 1e-6);
    CHECK(after.deviation[v] == Approx(1).epsilon(1e-6));
  }
  std::vector<int64_t> labels;
  for (const Series& series : training) labels.push_back(series.label);
  CHECK(stratified_split(labels).dev.size() == 54);  // 270 cases, 30 of each class
}

TEST_CASE("a set's files are found in its folder and in its parent, .ts first, in any spelling") {
  const scratch::Folder folder;
  std::filesystem::create_directory(folder / "PEMS-SF");
  const auto put = [&](const std::string& name) { scratch::put(folder / "PEMS-SF" / name, ""); };
  put("PEMS-SF_TRAIN.arff");
  put("PEMS-SF_TEST.arff.gz");
  put("PEMS-SFDimension1_TRAIN.ts");
  const auto names = [&](const Path& from) {
    const SeriesFiles files = find_series_files(from, "pems_sf", true);
    CHECK(files.name == "PEMS-SF");
    return std::pair(files.train->filename().string(), files.test->filename().string());
  };
  for (const Path& from : {folder.path(), folder / "PEMS-SF"})
    CHECK(names(from) == std::pair<std::string, std::string>("PEMS-SF_TRAIN.arff", "PEMS-SF_TEST.arff.gz"));
  put("PEMS-SF_TRAIN.ts.gz");
  put("PEMS-SF_TEST.arff");
  CHECK(names(folder.path()) == std::pair<std::string, std::string>("PEMS-SF_TRAIN.ts.gz", "PEMS-SF_TEST.arff"));
  put("PEMS-SF_TRAIN.ts");
  put("PEMS-SF_TEST.ts");
  CHECK(names(folder.path()) == std::pair<std::string, std::string>("PEMS-SF_TRAIN.ts", "PEMS-SF_TEST.ts"));
  // The whole archive, and a set of it in a folder of its own.
  for (const char* const place : {"all/Multivariate_ts/PEMS-SF", "one/PEMS-SF/Multivariate_ts/PEMS-SF"}) {
    std::filesystem::create_directories(folder / place);
    for (const char* const part : {"TRAIN", "TEST"})
      scratch::put(folder / place / fmt::format("PEMS-SF_{}.ts", part), "");
  }
  for (const char* const from : {"all", "one"})
    CHECK(names(folder / from) == std::pair<std::string, std::string>("PEMS-SF_TRAIN.ts", "PEMS-SF_TEST.ts"));
}

TEST_CASE("a folder without a set's files is refused with what was looked for and what is there") {
  const scratch::Folder folder;
  const auto message = [&](const Path& from, bool both = true) {
    return scratch::message_of<DataError>([&] { (void)find_series_files(from, "Cricket", both); });
  };
  CHECK_THAT(message(folder / "none"), Contains("no folder") && Contains("the files of Cricket"));
  CHECK_THAT(message(scratch::put(folder / "file", "")), Contains("found the file"));
  CHECK_THAT(message(folder.path()),
             Contains("no training file of Cricket") && Contains("Cricket_TRAIN.ts, Cricket_TRAIN.ts.gz") &&
                 Contains("Cricket_TRAIN.arff.gz, here or in a folder Cricket") && Contains("found file"));
  std::filesystem::create_directory(folder / "Cricket");
  CHECK_THAT(message(folder.path(), false), Contains("no training file") && Contains("the folder is empty"));
  scratch::put(folder / "Cricket" / "Cricket_TRAIN.ts", "");
  CHECK_THAT(message(folder.path()), Contains("no test file of Cricket") && Contains("Cricket_TEST.ts, ") &&
                                         Contains("found Cricket_TRAIN.ts"));
  const SeriesFiles files = find_series_files(folder.path(), "Cricket", false);
  CHECK((files.train.has_value() && !files.test.has_value()));
}

}  // namespace xformer::series_test
