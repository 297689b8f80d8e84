#include "reporting/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "core/error.h"

namespace xformer::reporting {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::vector<double> differences(std::span<const double> one, std::span<const double> other) {
  XF_ASSERT(one.size() == other.size(), "{} and {} values are no pairs", one.size(), other.size());
  std::vector<double> result;
  for (size_t i = 0; i < one.size(); ++i) result.push_back(one[i] - other[i]);
  return result;
}

// What rounding may leave between values of this size.
double rounding_of(std::span<const double> one, std::span<const double> other) {
  double largest = 0;
  for (const auto& values : {one, other})
    for (const double value : values) largest = std::max(largest, std::abs(value));
  return kRounding * largest;
}

// Twice the rank of each value by size, so that shared ranks are whole numbers. Sizes no more than `rounding` apart
// share theirs.
std::vector<int64_t> doubled_ranks(const std::vector<double>& values, double rounding) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto size = [&](size_t i) { return std::abs(values[i]); };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return size(a) < size(b); });
  std::vector<int64_t> ranks(values.size());
  for (size_t first = 0, last = 0; first < order.size(); first = last) {
    while (last < order.size() && size(order[last]) - size(order[first]) <= rounding) ++last;
    for (size_t i = first; i < last; ++i) ranks[order[i]] = static_cast<int64_t>(first + 1 + last);
  }
  return ranks;
}

}  // namespace

double mean(std::span<const double> values) {
  if (values.empty()) return kNone;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double sample_deviation(std::span<const double> values) {
  if (values.size() < 2) return kNone;
  const double middle = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

// Abramowitz and Stegun 26.7.3 and 26.7.4: finite sums, as the degrees are whole.
double student_two_sided(double t, int64_t degrees) {
  XF_ASSERT(degrees >= 1, "{} degrees of freedom", degrees);
  if (std::isinf(t)) return 0;
  const double n = static_cast<double>(degrees), angle = std::atan(std::abs(t) / std::sqrt(n));
  const double cosine = std::cos(angle), sine = std::sin(angle), square = cosine * cosine;
  const bool odd = degrees % 2 == 1;
  double term = odd ? cosine : 1, sum = degrees == 1 ? 0 : term;
  for (int64_t k = odd ? 3 : 2; k < degrees - (odd ? 0 : 1); k += 2) {
    term *= square * static_cast<double>(k - 1) / static_cast<double>(k);
    sum += term;
  }
  const double within = odd ? 2 / std::numbers::pi * (angle + sine * sum) : sine * sum;
  return std::clamp(1 - within, 0.0, 1.0);
}

double student_point(double p, int64_t degrees) {
  XF_ASSERT(p > 0 && p < 1, "p = {}", p);
  double low = 0, high = 1;
  while (student_two_sided(high, degrees) > p) high *= 2;
  constexpr int kHalvings = 60;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (student_two_sided(middle, degrees) > p ? low : high) = middle;
  }
  return high;
}

PairedT paired_t(std::span<const double> one, std::span<const double> other) {
  constexpr double kOutside = 0.05;  // of the interval
  const std::vector<double> all = differences(one, other);
  const double middle = mean(all);
  PairedT result{kNone, static_cast<int64_t>(all.size()) - 1, kNone, middle, kNone, kNone};
  if (result.degrees < 1) return result;
  const double error = sample_deviation(all) / std::sqrt(static_cast<double>(all.size()));
  const double rounding = rounding_of(one, other);
  if (error <= rounding) {
    if (std::abs(middle) <= rounding) result.t = 0, result.p = 1, result.low = result.high = 0;
    return result;
  }
  const double half = student_point(kOutside, result.degrees) * error;
  result.low = middle - half, result.high = middle + half;
  result.t = middle / error;
  result.p = student_two_sided(result.t, result.degrees);
  return result;
}

SignedRanks wilcoxon(std::span<const double> one, std::span<const double> other) {
  std::vector<double> all = differences(one, other);
  const double rounding = rounding_of(one, other);
  std::erase_if(all, [&](double difference) { return std::abs(difference) <= rounding; });
  SignedRanks result;
  result.pairs = static_cast<int64_t>(all.size());
  if (all.empty()) return {0, 0, 1, 1};
  const std::vector<int64_t> ranks = doubled_ranks(all, rounding);
  const int64_t total = std::accumulate(ranks.begin(), ranks.end(), int64_t{0});
  int64_t positive = 0;
  for (size_t i = 0; i < all.size(); ++i) positive += all[i] > 0 ? ranks[i] : 0;
  // share[s]: of all choices of signs, those whose positive ranks sum to s.
  std::vector<double> share(static_cast<size_t>(total + 1), 0);
  share[0] = 1;
  for (const int64_t rank : ranks)
    for (int64_t sum = total; sum >= 0; --sum) {
      double& here = share[static_cast<size_t>(sum)];
      here = (here + (sum >= rank ? share[static_cast<size_t>(sum - rank)] : 0)) / 2;
    }
  const auto end = share.begin() + std::min(positive, total - positive) + 1;
  result.positive = static_cast<double>(positive) / 2;
  result.p = std::min(1.0, 2 * std::accumulate(share.begin(), end, 0.0));
  result.least_p = std::min(1.0, std::ldexp(2, -static_cast<int>(all.size())));
  return result;
}

std::vector<double> holm(std::span<const double> p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<double> result(p.size());
  double most = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    most = std::max(most, std::min(1.0, static_cast<double>(p.size() - i) * p[order[i]]));
    result[order[i]] = most;
  }
  return result;
}

std::optional<Interval> mean_interval(std::span<const double> values) {
  const PairedT test = paired_t(values, std::vector<double>(values.size(), 0));
  return test.low < test.high ? std::optional(Interval{test.low, test.high}) : std::nullopt;
}

Interval wilson(double share, int64_t count) {
  constexpr double z = 1.959963984540054;
  const auto n = static_cast<double>(count);
  const double centre = (share + z * z / (2 * n)) / (1 + z * z / n);
  const double half = z * std::sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n);
  return {centre - half, centre + half};
}

}  // namespace xformer::reporting
