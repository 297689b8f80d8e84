// What results over seeds and datasets are summed up and compared with.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace xformer::reporting {

[[nodiscard]] double mean(std::span<const double> values);  // NaN of none
// With n - 1; NaN of fewer than two.
[[nodiscard]] double sample_deviation(std::span<const double> values);

// Of the largest of some values: what they differ by no more than that is rounding.
inline constexpr double kRounding = 1e-14;

// Two-sided tests of paired values, one of each span at each place. p is 1 where they do not differ at all, NaN where
// there are too few, and in the t test where all differ by the same: there is no spread to judge them by. What rounding
// leaves is no difference.
struct PairedT {
  double t = 0;
  int64_t degrees = 0;  // n - 1
  double p = 0;
  double difference = 0;     // mean of one - other; NaN of no pair
  double low = 0, high = 0;  // its 95 % interval; NaN where p is
};
[[nodiscard]] PairedT paired_t(std::span<const double> one, std::span<const double> other);

// Wilcoxon's signed ranks: pairs that do not differ are left out, equal differences share their ranks, and p is exact:
// over all signs of the ranks that there are.
struct SignedRanks {
  double positive = 0;        // sum of the ranks of positive differences
  int64_t pairs = 0;          // that differ
  double p = 0, least_p = 0;  // least_p: the smallest that so many pairs could give
};
[[nodiscard]] SignedRanks wilcoxon(std::span<const double> one, std::span<const double> other);

// Holm's step-down adjustment of some tests' p; in their order.
[[nodiscard]] std::vector<double> holm(std::span<const double> p);

// P(|T| >= |t|) of Student's distribution, and the t of which that is p.
[[nodiscard]] double student_two_sided(double t, int64_t degrees);
[[nodiscard]] double student_point(double p, int64_t degrees);

struct Interval {
  double low = 0, high = 0;
};
// Student's 95 % interval of the mean of what such values are drawn from; none of fewer than two, and where they do not
// differ.
[[nodiscard]] std::optional<Interval> mean_interval(std::span<const double> values);
// Wilson's 95 % interval of a share seen in `count` trials.
[[nodiscard]] Interval wilson(double share, int64_t count);

}  // namespace xformer::reporting
