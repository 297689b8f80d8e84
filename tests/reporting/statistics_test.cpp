// Means, tests and intervals against tables and against their definitions in loops.
#include "reporting/statistics.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace xformer::reporting::statistics_test {

TEST_CASE("mean and sample deviation") {
  const std::vector<double> values{2, 4, 4, 4, 5, 5, 7, 9};
  CHECK(mean(values) == 5);
  CHECK(sample_deviation(values) == Approx(std::sqrt(32.0 / 7)));
  CHECK(std::isnan(sample_deviation(std::vector<double>{1})));
  CHECK(std::isnan(mean({})));
}

TEST_CASE("Student's distribution is that of the tables") {
  // Two-sided 5 % and 1 % points.
  for (const auto& [degrees, five, one] : std::vector<std::tuple<int64_t, double, double>>{{1, 12.7062, 63.6567},
                                                                                           {2, 4.30265, 9.92484},
                                                                                           {3, 3.18245, 5.84091},
                                                                                           {4, 2.77645, 4.60409},
                                                                                           {5, 2.57058, 4.03214},
                                                                                           {9, 2.26216, 3.24984},
                                                                                           {10, 2.22814, 3.16927},
                                                                                           {30, 2.04227, 2.75000}}) {
    CAPTURE(degrees);
    CHECK(student_two_sided(five, degrees) == Approx(0.05).epsilon(1e-4));
    CHECK(student_two_sided(-one, degrees) == Approx(0.01).epsilon(1e-4));
    CHECK(student_two_sided(0, degrees) == 1);
    CHECK(student_point(0.05, degrees) == Approx(five).epsilon(1e-4));
    CHECK(student_point(0.01, degrees) == Approx(one).epsilon(1e-4));
  }
}

TEST_CASE("the density integrates to what the distribution says") {
  for (const int64_t degrees : {1, 2, 5, 8}) {
    const double n = static_cast<double>(degrees);
    const double scale = std::exp(std::lgamma((n + 1) / 2) - std::lgamma(n / 2)) / std::sqrt(n * std::acos(-1.0));
    double inside = 0;
    constexpr double kStep = 1e-4, kT = 1.7;
    for (double x = kStep / 2; x < kT; x += kStep) inside += 2 * kStep * scale * std::pow(1 + x * x / n, -(n + 1) / 2);
    CHECK(student_two_sided(kT, degrees) == Approx(1 - inside).epsilon(1e-5));
  }
}

TEST_CASE("a paired t test") {
  const std::vector<double> one{30, 31, 34, 35, 36}, other{30, 29, 32, 31, 32};
  const PairedT test = paired_t(one, other);  // differences 0, 2, 2, 4, 4: mean 2.4, deviation 1.67332
  CHECK(test.degrees == 4);
  CHECK(test.t == Approx(2.4 / (1.6733200530681511 / std::sqrt(5.0))));
  CHECK(test.p == Approx(student_two_sided(test.t, 4)));
  CHECK(test.difference == Approx(2.4));
  CHECK(test.low == Approx(2.4 - 2.77645 * 1.67332 / std::sqrt(5.0)).epsilon(1e-4));
  CHECK(test.high == Approx(2.4 + 2.77645 * 1.67332 / std::sqrt(5.0)).epsilon(1e-4));
  CHECK(paired_t(one, one).p == 1);
  CHECK(paired_t(std::vector<double>{1}, std::vector<double>{3}).difference == -2);
  CHECK(std::isnan(paired_t(std::vector<double>{1}, std::vector<double>{2}).p));
}

TEST_CASE("equal differences have no spread that a t test could judge them by, whatever rounding leaves of one") {
  for (const double by : {1.0, 1.0 / 3}) {
    std::vector<double> other{99.19, 98.65, 98.92}, one;
    for (const double value : other) one.push_back(value + by);
    const PairedT test = paired_t(one, other);
    CHECK(test.difference == Approx(by));
    for (const double figure : {test.t, test.p, test.low, test.high}) CHECK(std::isnan(figure));
    one.back() += 1e-9;  // which is one
    CHECK(paired_t(one, other).p < 1e-6);
  }
  const std::vector<double> thirds{0.1 + 0.2, 0.7}, same{0.3, 0.7};  // 4e-17 apart
  CHECK(paired_t(thirds, same).p == 1);
}

TEST_CASE("Wilcoxon's p is the share of all signs that are as far out") {
  const std::vector<double> zero(7, 0), steps{1, -2, 2, 3, 5, 5, -1};
  const SignedRanks test = wilcoxon(steps, zero);
  // Sizes 1 1 2 2 3 5 5: ranks 1.5 1.5 3.5 3.5 5 6.5 6.5.
  const std::vector<double> ranks{1.5, 3.5, 3.5, 5, 6.5, 6.5, 1.5};
  double total = 0, positive = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    total += ranks[i];
    positive += steps[i] > 0 ? ranks[i] : 0;
  }
  int as_far = 0;
  for (int signs = 0; signs < 128; ++signs) {
    double sum = 0;
    for (size_t i = 0; i < ranks.size(); ++i) sum += (signs >> i & 1) != 0 ? ranks[i] : 0;
    as_far += sum <= std::min(positive, total - positive) ? 1 : 0;
  }
  CHECK(test.positive == positive);
  CHECK(test.p == Approx(2 * as_far / 128.0));
  CHECK(test.least_p == Approx(2 / 128.0));
  const std::vector<double> five{1, 2, 3, 4, 5}, none(5, 0);
  CHECK(wilcoxon(five, none).p == Approx(0.0625));  // five pairs never reach 5 %
  CHECK(wilcoxon(five, five).p == 1);
  const std::vector<double> with_equal{0, 1, 2, 3, 4, 5, 6}, nothing(7, 0);
  CHECK((wilcoxon(with_equal, nothing).pairs == 6 && wilcoxon(with_equal, nothing).p == Approx(0.03125)));
}

TEST_CASE("what rounding leaves is neither a difference to Wilcoxon nor tells two differences apart") {
  // 0.1 + 0.2 is 5e-17 above 0.3.
  const std::vector<double> same{0.3, 1, 2, 3, 4, 5}, sums{0.1 + 0.2, 1, 2, 3, 4, 5}, zero(6, 0);
  CHECK((wilcoxon(sums, same).pairs == 0 && wilcoxon(sums, same).p == 1));
  const std::vector<double> ties{0.3, -0.3, 1, 2, 3, 4}, apart{0.1 + 0.2, -0.3, 1, 2, 3, 4};
  CHECK(wilcoxon(apart, zero).positive == wilcoxon(ties, zero).positive);
  CHECK(wilcoxon(apart, zero).p == wilcoxon(ties, zero).p);
  CHECK(wilcoxon(std::vector<double>{0.3 + 1e-9, -0.3, 1, 2, 3, 4}, zero).positive == 20);  // which is a difference
}

TEST_CASE("Holm's adjustment never falls with p and never passes 1") {
  const std::vector<double> adjusted = holm(std::vector<double>{0.01, 0.04, 0.03, 0.5});
  CHECK(adjusted[0] == Approx(0.04));
  CHECK(adjusted[2] == Approx(0.09));
  CHECK(adjusted[1] == Approx(0.09));  // 2 x 0.04 is less than the one before it
  CHECK(adjusted[3] == Approx(0.5));
  CHECK(holm(std::vector<double>{0.6, 0.7})[0] == 1);
}

TEST_CASE("Wilson's interval") {
  const Interval half = wilson(0.5, 100);  // (0.5 +- ...) around a half
  CHECK(half.low == Approx(0.40383).epsilon(1e-4));
  CHECK(half.high == Approx(0.59617).epsilon(1e-4));
  CHECK(wilson(0, 10).low == Approx(0).margin(1e-12));
  CHECK(wilson(0, 10).high == Approx(0.27753).epsilon(1e-4));
}

TEST_CASE("the interval of a mean is Student's, and there is none without a spread") {
  const std::optional<Interval> five = mean_interval(std::vector<double>{1, 2, 3, 4, 5});
  REQUIRE(five);
  CHECK(five->low == Approx(3 - 2.776445 * std::sqrt(2.5 / 5)).epsilon(1e-6));  // t(4) of tables
  CHECK(five->high == Approx(3 + 2.776445 * std::sqrt(2.5 / 5)).epsilon(1e-6));
  CHECK_FALSE(mean_interval(std::vector<double>{}));
  CHECK_FALSE(mean_interval(std::vector<double>{7}));
  CHECK_FALSE(mean_interval(std::vector<double>{7, 7, 7}));
  CHECK_FALSE(mean_interval(std::vector<double>{0, 0}));
}

}  // namespace xformer::reporting::statistics_test
