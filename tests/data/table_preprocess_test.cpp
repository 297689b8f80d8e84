// Preprocessing of tables against its definition: values by hand, what noise may touch, codes, targets.
#include "data/tables/table_preprocess.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "data/tables/table_files.h"
#include "scratch.h"

namespace xformer::data::table_preprocess_test {

using Catch::Matchers::Contains;
using Values = std::vector<double>;

constexpr double kClip = 5.199337582605575;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double normal_density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }

NumericMap map_of(Values quantiles) {
  NumericMap map;
  map.quantiles = std::move(quantiles);
  return map;
}

// The definition, by its two passes over the quantiles.
double level_by_definition(const Values& q, double x) {
  const auto n = q.size();
  const auto level = [&](size_t i) { return static_cast<double>(i) / static_cast<double>(n - 1); };
  if (x - 1e-7 < q.front()) return 0;
  if (x + 1e-7 > q.back()) return 1;
  double ascending = 0, descending = 0;
  for (size_t i = 0; i + 1 < n; ++i)  // the last stretch that begins at or below x
    if (q[i] <= x && x < q[i + 1]) ascending = level(i) + (x - q[i]) / (q[i + 1] - q[i]) * (level(i + 1) - level(i));
  for (size_t i = n - 1; i > 0; --i)  // from above: the last that ends at or above x
    if (q[i - 1] < x && x <= q[i]) descending = level(i) - (q[i] - x) / (q[i] - q[i - 1]) * (level(i) - level(i - 1));
  return (ascending + descending) / 2;
}

Table made_table() {
  Table table;
  table.kind = TableKind::kMulticlass;
  table.numeric_names = {"a", "b"};
  table.categorical_names = {"c", "d"};
  const auto fill = [](TablePart& part, Values numbers, std::vector<std::string> categories,
                       std::vector<std::string> labels) {
    part = {static_cast<int64_t>(labels.size()),
            std::move(numbers),
            std::move(categories),
            std::move(labels),
            {},
            "t",
            "line",
            {}};
    for (int64_t row = 0; row < part.rows; ++row) part.places.push_back(row);
  };
  fill(table.part(Split::kTrain), {1, 10, 2, 20, 3, kNan, 6, 30}, {"z", "1", "b", "2", "z", "10", "?", "2"},
       {"10", "9", "-1", "9"});
  fill(table.part(Split::kDev), {kNan, 0}, {"a", "2"}, {"9"});
  fill(table.part(Split::kTest), {100, kNan, 2, 2}, {"zz", "1", "?", "1"}, {"10", "-1"});
  check_table(table);
  return table;
}

std::vector<float> encoded(const TableMaps& maps, const TablePart& part, int64_t row) {
  std::vector<float> values(maps.numeric.size() + maps.categories.size());
  encode_row(maps, part, row, values);
  return values;
}

TEST_CASE("the inverse of the normal distribution function is exact to the last digits") {
  // Known to all digits, from tables; then by the error function over the whole range, where the error of p is
  // the error of x times the density.
  CHECK(inverse_normal_cdf(0.5) == 0);
  CHECK(inverse_normal_cdf(0.975) == Approx(1.9599639845400545).epsilon(1e-15));
  CHECK(inverse_normal_cdf(1e-10) == Approx(-6.361340902404056).epsilon(1e-15));
  CHECK(inverse_normal_cdf(1e-300) == Approx(-37.0470962993612).epsilon(1e-14));
  CHECK(inverse_normal_cdf(1e-7 - std::numeric_limits<double>::epsilon()) == Approx(-kClip).epsilon(1e-15));
  double worst = 0;
  for (int i = -370; i <= 80; ++i) {
    const double x = i / 10.0, p = normal_cdf(x), back = inverse_normal_cdf(p);
    // A rounding of p near 1 moves x by eps / density; erfc itself is good to some eps.
    const double allowed =
        4 * std::numeric_limits<double>::epsilon() * (std::max(std::abs(x), 1.0) + p / normal_density(x));
    worst = std::max(worst, std::abs(back - x) / allowed);
  }
  CHECK(worst <= 1);
  for (const double p : {0.075, 0.3, 0.425, 0.0749999, 1e-5, 1.3887943864964021e-11})
    CHECK(inverse_normal_cdf(p) == Approx(-inverse_normal_cdf(1 - p)).epsilon(1e-5));
  CHECK(inverse_normal_cdf(0) == -std::numeric_limits<double>::infinity());
  CHECK(inverse_normal_cdf(1) == std::numeric_limits<double>::infinity());
  for (int i = 1; i < 4000; ++i)  // no step where the three approximations meet
    REQUIRE(inverse_normal_cdf(i / 4000.0) > inverse_normal_cdf((i - 1) / 4000.0));
}

TEST_CASE("the quantile map of ten points is the one computed by hand") {
  // Ten quantiles at the levels 0, 1/9, ..., 1.
  const NumericMap map = map_of({1, 2, 4, 4, 4, 7, 8, 10, 20, 50});
  CHECK(map(1) == -kClip);
  CHECK(map(-3) == -kClip);
  CHECK(map(50) == kClip);
  CHECK(map(1e9) == kClip);
  CHECK(map(8) == Approx(0.43072729929545744));   // level 6/9
  CHECK(map(4) == Approx(-0.43072729929545744));  // from below 4/9, from above 2/9: 3/9
  CHECK(map(5.5) == Approx(0).margin(1e-15));     // (4 + 1/2) / 9
  CHECK(map(15) == Approx(0.9674215661017014));   // (7 + 1/2) / 9 = 5/6
  CHECK(map(10) == Approx(0.7647096737863872));   // 7/9
  CHECK(quantiles_of({50, 4, 10, 1, 8, 4, 20, 2, 4, 7}, 10) == Values{1, 2, 4, 4, 4, 7, 8, 10, 20, 50});
}

TEST_CASE("values within 1e-7 of the ends belong to them") {
  const NumericMap map = map_of({0, 1e-7, 2e-7, 3e-7, 4e-7});
  CHECK(map(0.5e-7) == -kClip);
  CHECK(map(3.5e-7) == kClip);
  CHECK(map(1.5e-7) == Approx(inverse_normal_cdf(1.5 / 4)));
}

TEST_CASE("quantiles are interpolated between sorted values") {
  CHECK(quantiles_of({4, 1, 3, 2}, 3) == Values{1, 2.5, 4});
  CHECK(quantiles_of({10, 0}, 5) == Values{0, 2.5, 5, 7.5, 10});
  CHECK(quantiles_of({7}, 1) == Values{7});
}

TEST_CASE("the quantile map is its definition, with ties and without") {
  Stream stream(7);
  Values values(2000);
  for (double& value : values) value = std::floor(stream.next_unit() * 60) / 3;
  const Values quantiles = quantiles_of(values, 66);
  REQUIRE(std::adjacent_find(quantiles.begin(), quantiles.end()) != quantiles.end());
  const NumericMap map = map_of(quantiles);
  for (int i = -10; i < 230; ++i) {
    const double x = i / 10.0, expected = inverse_normal_cdf(level_by_definition(quantiles, x));
    CHECK(map(x) == Approx(std::clamp(expected, -kClip, kClip)).margin(1e-12));
  }
}

TEST_CASE("the number of quantiles follows the rows") {
  const auto count = [](size_t rows) {
    Values values(rows);
    for (size_t i = 0; i < rows; ++i) values[i] = static_cast<double>(i);
    return fit_numeric(values, Normalisation::kQuantile, Stream(1)).quantiles.size();
  };
  CHECK(count(4) == 4);
  CHECK(count(10) == 10);
  CHECK(count(329) == 10);
  CHECK(count(599) == 19);
  CHECK(count(13209) == 440);
  CHECK(count(40000) == 1000);
}

TEST_CASE("noise moves the quantiles by a thousandth over the deviation, and not what is mapped") {
  // Half 0, half 1000: the deviation is 500, that of the noise 2e-6.
  Values values(60000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? 0 : 1000;
  const NumericMap map = fit_numeric(values, Normalisation::kQuantile, Stream(1));
  CHECK(map.quantiles[250] == Approx(0).margin(2e-7));                     // the median of the noise around 0
  CHECK(map.quantiles[420] == Approx(2e-6 * 0.9965).epsilon(0.05));        // level .42042 * 2 = .84084 of it
  CHECK(map.quantiles[920] - 1000 == Approx(2e-6 * 0.998).epsilon(0.05));  // (.92092 - .5) * 2 = .84184
  // What is mapped is no draw: equal values, equal results, which are the definition's at the value itself.
  CHECK(map(0.0) == map(0.0));
  CHECK(map(0.0) == Approx(inverse_normal_cdf(level_by_definition(map.quantiles, 0.0))));
  CHECK(fit_numeric(values, Normalisation::kQuantile, Stream(1)).quantiles == map.quantiles);
  CHECK(fit_numeric(values, Normalisation::kQuantile, Stream(2)).quantiles != map.quantiles);
  CHECK(fit_numeric(values, Normalisation::kQuantile, Stream(1, 1)).quantiles != map.quantiles);
}

TEST_CASE("a constant column gets noise of deviation one and lies in its middle") {
  const NumericMap map = fit_numeric(Values(30000, 5.0), Normalisation::kQuantile, Stream(3));
  CHECK(map(5.0) == Approx(0).margin(0.05));
  CHECK(map(6.0) == Approx(1).margin(0.05));  // quantiles are those of N(5, 1)
  CHECK(map(3.0) == Approx(-2).margin(0.1));
}

TEST_CASE("a normal column stays normal under the quantile map") {
  Values values(30000);
  Stream stream(11);
  for (double& value : values) value = 100 + 7 * inverse_normal_cdf(stream.next_unit() * 0.999999 + 5e-7);
  const NumericMap map = fit_numeric(values, Normalisation::kQuantile, Stream(1));
  for (const double x : {-2.0, -1.0, 0.0, 0.5, 1.5}) CHECK(map(100 + 7 * x) == Approx(x).margin(0.06));
}

TEST_CASE("standard scaling takes mean and population deviation, and a constant gives 0") {
  const NumericMap map = fit_numeric({2, 4, 4, 4, 5, 5, 7, 9}, Normalisation::kStandard, Stream(1));
  CHECK(map(5) == Approx(0).margin(1e-15));  // mean 5, deviation 2
  CHECK(map(9) == Approx(2));
  CHECK(map(0) == Approx(-2.5));
  CHECK(map(kNan) == Approx(0).margin(1e-15));
  const NumericMap constant = fit_numeric(Values(10, 0.1), Normalisation::kStandard, Stream(1));
  CHECK((constant(0.1) == 0 && constant(3) == 0 && constant(kNan) == 0));
  // Missing values take the mean before the deviation is measured: of 1, 3 and 2 it is sqrt(2/3).
  CHECK(fit_numeric({1, kNan, 3}, Normalisation::kStandard, Stream(1))(3) == Approx(std::sqrt(1.5)));
}

TEST_CASE("without normalisation numbers stay and missing ones become train's mean") {
  const NumericMap map = fit_numeric({1, kNan, 4}, Normalisation::kNone, Stream(1));
  CHECK((map(7.25) == 7.25 && map(kNan) == 2.5));
  const NumericMap quantile = fit_numeric({1, kNan, 4}, Normalisation::kQuantile, Stream(1));
  CHECK(quantile(kNan) == quantile(2.5));
}

TEST_CASE("categories are coded by their sorted place in train, unseen ones by the next code, and counted") {
  const Table table = made_table();
  const TableMaps maps = fit_table(table, Normalisation::kNone, 0);
  CHECK(maps.categories == std::vector<std::vector<std::string>>{{"?", "b", "z"}, {"1", "10", "2"}});
  CHECK(encoded(maps, table.part(Split::kTrain), 0) == std::vector<float>{1, 10, 2, 0});
  CHECK(encoded(maps, table.part(Split::kTrain), 2) == std::vector<float>{3, 20, 2, 1});  // b's mean
  CHECK(encoded(maps, table.part(Split::kDev), 0) == std::vector<float>{3, 0, 3, 2});     // "a" is unseen
  CHECK(encoded(maps, table.part(Split::kTest), 0) == std::vector<float>{100, 20, 3, 0});
  CHECK(count_unseen(maps, table.part(Split::kTrain)) == std::vector<int64_t>{0, 0});
  CHECK(count_unseen(maps, table.part(Split::kDev)) == std::vector<int64_t>{1, 0});
  CHECK(count_unseen(maps, table.part(Split::kTest)) == std::vector<int64_t>{1, 0});
  CHECK(category_sizes(maps, table) == std::vector<int64_t>{4, 3});
}

TEST_CASE("classes are numbered in the order of their labels, numbers by value") {
  Table table = made_table();
  const TableMaps maps = fit_table(table, Normalisation::kNone, 0);
  CHECK(maps.classes == std::vector<std::string>{"-1", "9", "10"});
  CHECK((class_id(maps, "-1") == 0 && class_id(maps, "10") == 2));
  CHECK_THROWS_AS(class_id(maps, "11"), InternalError);
  table.part(Split::kTrain).labels = {"10", "9", "b", "a"};
  CHECK(fit_table(table, Normalisation::kNone, 0).classes == std::vector<std::string>{"10", "9", "a", "b"});
}

TEST_CASE("everything is fitted on train alone, and by the seed") {
  Table table = made_table();
  const auto quantiles = [&](uint64_t seed) {
    return fit_table(table, Normalisation::kQuantile, seed).numeric[0].quantiles;
  };
  const Values before = quantiles(0);
  CHECK(quantiles(1) != before);
  Table twins = made_table();
  for (size_t row = 0; row < 4; ++row)
    twins.part(Split::kTrain).numbers[2 * row + 1] = twins.part(Split::kTrain).numbers[2 * row];
  const TableMaps maps = fit_table(twins, Normalisation::kQuantile, 0);
  CHECK(maps.numeric[0].quantiles == before);
  CHECK(maps.numeric[1].quantiles != before);  // noise of its own
  for (const Split split : {Split::kDev, Split::kTest})
    for (double& value : table.part(split).numbers) value = 1e6;
  CHECK(quantiles(0) == before);
}

TEST_CASE("a regression's target has mean 0 and population deviation 1 in train, and its scale turns an RMSE back") {
  Table table = made_table();
  table.kind = TableKind::kRegression;
  for (TablePart& part : table.parts) part.labels.clear();
  table.part(Split::kTrain).targets = {1, 3, 5, 11};  // mean 5, deviation sqrt((16 + 4 + 0 + 36) / 4)
  table.part(Split::kDev).targets = {8};
  table.part(Split::kTest).targets = {100, -100};
  const TableMaps maps = fit_table(table, Normalisation::kNone, 0);
  CHECK(maps.target_mean == Approx(5));
  CHECK(maps.target_std == Approx(std::sqrt(14.0)));
  CHECK(standard_target(maps, 8) == Approx(3 / std::sqrt(14.0)));
  CHECK((standard_target(maps, 100) - standard_target(maps, 93)) * maps.target_std == Approx(7));
  CHECK(maps.classes.empty());
}

TEST_CASE("a normalisation goes by its name") {
  CHECK(parse_normalisation("none") == Normalisation::kNone);
  CHECK(parse_normalisation("Standard") == Normalisation::kStandard);
  CHECK(parse_normalisation("quantile") == Normalisation::kQuantile);
  CHECK_THAT(scratch::message_of<UserError>([] { (void)parse_normalisation("quantil"); }),
             Contains("did you mean 'quantile'?"));
}

TEST_CASE("genuine tables come out normalised") {
  const auto folder = scratch::real_data("tabular");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with tabular/");
    SUCCEED();
    return;
  }
  const Table california = read_table("california-housing", *folder / "california_housing", "", 0);
  const TableMaps maps = fit_table(california, Normalisation::kQuantile, 0);
  const TablePart& test = california.part(Split::kTest);
  for (size_t column = 0; column < 8; ++column) {
    double sum = 0, squares = 0;
    for (int64_t row = 0; row < test.rows; ++row) {
      const double value = encoded(maps, test, row)[column];
      sum += value;
      squares += value * value;
    }
    CHECK(maps.numeric[column].quantiles.size() == 440);
    CHECK(sum / static_cast<double>(test.rows) == Approx(0).margin(0.06));
    // Ends that are clipped at 5.2, as those of the capped house age, make it more than 1.
    CHECK(squares / static_cast<double>(test.rows) == Approx(1.05).margin(0.2));
  }
  CHECK(maps.target_std == Approx(1.15).margin(0.02));

  const Table adult = read_table("adult", *folder / "adult", "", 0);
  const TableMaps codes = fit_table(adult, Normalisation::kQuantile, 0);
  CHECK(codes.classes == std::vector<std::string>{"<=50K", ">50K"});
  // adult.names lists 8, 16, 7, 14, 6, 5, 2 and 41 values; "?" joins three of the columns.
  const std::vector<size_t> documented{9, 16, 7, 15, 6, 5, 2, 42};
  for (size_t column = 0; column < 8; ++column) CHECK(codes.categories[column].size() <= documented[column]);
  CHECK(codes.categories[0].size() == 9);
  CHECK(codes.categories[0].front() == "?");
}

}  // namespace xformer::data::table_preprocess_test
