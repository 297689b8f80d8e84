// What a class is drawn from against the definition in plain loops, and how often each is drawn.
#include "inspect/sampling.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/random.h"

namespace xformer::inspect::sampling_test {

namespace {

// How many classes come before class i: likelier ones, and as likely ones with a lower number.
size_t rank_of(const std::vector<double>& shares, size_t i) {
  size_t before = 0;
  for (size_t j = 0; j < shares.size(); ++j)
    if (shares[j] > shares[i] || (shares[j] == shares[i] && j < i)) ++before;
  return before;
}

std::vector<double> scaled(std::vector<double> shares) {
  double sum = 0;
  for (const double share : shares) sum += share;
  for (double& share : shares) share /= sum;
  return shares;
}

// By the definition: class i stays where fewer than k come before it, and where those before it have less than p.
std::vector<double> reference(const std::vector<double>& scores, double temperature, size_t k, double p) {
  std::vector<double> shares;
  for (const double score : scores) shares.push_back(std::exp(score / temperature));
  std::vector<double> kept = shares;
  for (size_t i = 0; i < shares.size(); ++i)
    if (rank_of(shares, i) >= k) kept[i] = 0;
  kept = scaled(kept);
  std::vector<double> result = kept;
  for (size_t i = 0; i < kept.size(); ++i) {
    double before = 0;
    for (size_t j = 0; j < kept.size(); ++j)
      if (rank_of(kept, j) < rank_of(kept, i)) before += kept[j];
    if (before >= p) result[i] = 0;
  }
  return scaled(result);
}

}  // namespace

TEST_CASE("a class is drawn from softmax, of it the k likeliest, of them the fewest with a share of p", "[generate]") {
  Stream numbers(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> scores(1 + numbers.next_below(12));
    // Few different numbers, so that many are equal.
    for (double& score : scores) score = static_cast<double>(numbers.next_below(5)) - 2;
    const double temperature = 0.25 + numbers.next_unit() * 2,
                 p = round % 3 == 0 ? 1 : 0.05 + 0.9 * numbers.next_unit();
    const auto k = static_cast<int64_t>(numbers.next_below(scores.size() + 1));  // 0: all
    const std::vector<double> wanted =
        reference(scores, temperature, k == 0 ? scores.size() : static_cast<size_t>(k), p);
    const std::vector<double> found = sampling_distribution(scores, {temperature, k, p, false});
    REQUIRE(found.size() == wanted.size());
    CAPTURE(round, k, p, temperature);
    for (size_t i = 0; i < found.size(); ++i) {
      CHECK(found[i] == Approx(wanted[i]).margin(1e-14));
      CHECK((found[i] == 0) == (wanted[i] == 0));
    }
  }
}

TEST_CASE("of classes as likely the first stay, and greedy takes the first of the likeliest", "[generate]") {
  using Shares = std::vector<double>;
  const Shares level{1, 1, 1, 1}, two{0, 3, 2, 3};
  CHECK(sampling_distribution(level, {1, 2, 1, false}) == Shares{0.5, 0.5, 0, 0});
  CHECK(sampling_distribution(level, {1, 0, 0.5, false}) == Shares{0.5, 0.5, 0, 0});
  CHECK(sampling_distribution(level, {1, 0, 0.51, false})[2] == Approx(1.0 / 3));
  CHECK(sampling_distribution(two, {1, 0, 1, true}) == Shares{0, 1, 0, 0});
  CHECK(sampling_distribution(two, {1, 0, 1e-300, false}) == Shares{0, 1, 0, 0});
  // Neither large scores nor small temperatures overflow.
  CHECK(sampling_distribution(Shares{1e4, 1e4, -1e4}, {1e-3, 0, 1, false}) == Shares{0.5, 0.5, 0});
  CHECK_THROWS_AS(sampling_distribution(Shares{0, std::nan("")}, {}), DataError);
  CHECK_THROWS_AS(sampling_distribution(Shares{0, std::numeric_limits<double>::infinity()}, {}), DataError);
}

TEST_CASE("a unit number finds the class whose share it falls into", "[generate]") {
  const std::vector<double> shares{0, 0.25, 0, 0.5, 0.25, 0};
  CHECK(drawn_class(shares, 0) == 1);
  CHECK(drawn_class(shares, 0.249) == 1);
  CHECK(drawn_class(shares, 0.25) == 3);
  CHECK(drawn_class(shares, 0.7499) == 3);
  CHECK(drawn_class(shares, 0.75) == 4);
  CHECK(drawn_class(shares, 1 - 1e-16) == 4);
  CHECK(drawn_class(std::vector<double>{0.3, 0.3, 0.3, 0}, 0.95) == 2);  // shares that rounding left below one
}

TEST_CASE("classes come as often as their shares say", "[generate]") {
  const std::vector<double> scores{0.3, -1, 2, 0.3, -4, 1};
  const SamplingOptions options{0.8, 5, 0.95, false};
  const std::vector<double> shares = sampling_distribution(scores, options);
  constexpr int kDraws = 200000;
  std::vector<int> counts(scores.size());
  Stream numbers(11);
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(drawn_class(shares, numbers.next_unit()))];
  for (size_t i = 0; i < scores.size(); ++i) {
    // Five deviations of a binomial.
    const double wanted = kDraws * shares[i], bound = 5 * std::sqrt(wanted * (1 - shares[i]));
    CAPTURE(i, counts[i], wanted);
    CHECK(std::abs(counts[i] - wanted) <= bound);
  }
  CHECK(counts[4] == 0);
}

}  // namespace xformer::inspect::sampling_test
