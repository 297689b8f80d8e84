// top_keys against a sort of each row's scores.
#include "kernels/top_keys/top_keys.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fused_support.h"
#include "kernels/policy_scope.h"
#include "kernels/top_keys/rows.h"

namespace xformer::kernels::top_keys_test {

// The places of a row's scores that reach its k-th largest, of those that are not closed; NaN is the largest.
std::vector<int32_t> meant_of(const std::vector<float>& row, int64_t k) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  std::vector<float> sorted;
  for (const float x : row)
    if (x != -kInfinite) sorted.push_back(std::isnan(x) ? kInfinite : x);
  std::sort(sorted.rbegin(), sorted.rend());
  std::vector<int32_t> places;
  for (size_t j = 0; j < row.size() && !sorted.empty(); ++j)
    if (row[j] != -kInfinite && !(row[j] < sorted[std::min(sorted.size(), static_cast<size_t>(k)) - 1]))
      places.push_back(static_cast<int32_t>(j));
  return places;
}

template <class Value>
std::vector<int32_t> found_of(const std::vector<float>& row, int64_t k) {
  const std::vector<Value> given(row.begin(), row.end());
  const auto count = static_cast<int64_t>(row.size());
  std::vector<Value> room(row.size() + 16);
  std::vector<int32_t> places(row.size() + 16);
  places.resize(static_cast<size_t>(top_of_row(given.data(), count, k, room.data(), places.data())));
  return places;
}

TEST_CASE("the top of a row is that of a sort: any k, ties, closed scores, infinities and NaN") {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (const int64_t count : {32, 64, 96, 544, 2048})
    for (const int form : {0, 1, 2, 3, 4, 5}) {
      const at::Tensor x = random_tensor("x", {count}, at::kFloat);
      std::vector<float> row(x.const_data_ptr<float>(), x.const_data_ptr<float>() + count);
      for (size_t j = 0; j < row.size(); ++j) {
        if (form == 1) row[j] = std::round(2 * row[j]);    // ties
        if (form == 2 && j % 3 != 1) row[j] = -kInfinite;  // closed
        if (form == 3 && j > 4) row[j] = -kInfinite;       // but for a few
        if (form == 4 && j % 31 == 7) row[j] = j % 2 == 0 ? NAN : kInfinite;
        if (form == 5) row[j] = -kInfinite;
      }
      INFO("count " << count << " form " << form);
      CHECK(open_scores(row.data(), count) ==
            std::count_if(row.begin(), row.end(), [](float s) { return s != -kInfinite; }));
      for (const int64_t k : {1, 2, 8, 31, 64, 65, 200, 5000}) {
        CHECK(found_of<float>(row, k) == meant_of(row, k));
        CHECK(found_of<double>(row, k) == meant_of(row, k));
      }
    }
}

TEST_CASE("scores that reach a bound are found alike by every instruction set") {
  const at::Tensor x = random_tensor("x", {2048}, at::kFloat);
  const auto* const row = x.const_data_ptr<float>();
  for (const float bound : {-std::numeric_limits<float>::infinity(), 0.0F, 1.5F, 9.0F}) {
    std::vector<std::vector<int32_t>> found;
    for (const ReachingScores* way : ways_to_reach()) {
      std::vector<float> room(2064);
      std::vector<int32_t> places(2064);
      const auto count = static_cast<size_t>(way(row, 2048, bound, room.data(), places.data()));
      places.resize(count);
      for (size_t i = 0; i < count; ++i) CHECK(room[i] == row[places[i]]);
      found.push_back(places);
    }
    for (const auto& one : found) CHECK(one == found.front());
    CHECK(found.front().size() == static_cast<size_t>(x.ge(bound).sum().item<int64_t>()));
  }
}

TEST_CASE("lists of top keys are those of the definition, for any mask, length and width") {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const bool causal : {false, true})
      for (const auto& [n, m] : {std::pair<int64_t, int64_t>{1, 1}, {7, 7}, {70, 70}, {5, 300}, {300, 300}})
        for (const double fraction : {0.0, 0.25})
          for (const bool ragged : {false, true}) {
            const at::Tensor q = at::round(4 * random_tensor("q", {2, 3, n, 4}, type)),
                             k = at::round(4 * random_tensor("k", {2, 3, m, 4}, type));
            TopKeysOptions options{{}, {}, 5, fraction};
            options.mask.causal = causal;
            options.mask.cross = n != m;
            if (ragged) {
              options.mask.key_valid = at::arange(m, at::kLong).lt(at::tensor({m - m / 3, m / 2}).unsqueeze(1));
              if (n == m) options.query_valid = options.mask.key_valid;
            }
            INFO("n " << n << " m " << m << " causal " << causal << " ragged " << ragged << " fraction " << fraction);
            CHECK(top_keys(q, k, options).equal(top_keys_reference(q, k, options)));
            const PolicyScope check(Policy::kCheck);
            CHECK(top_keys(q.transpose(1, 2).contiguous().transpose(1, 2), k, options).dim() == 4);
          }
}

TEST_CASE("a fraction of keys is whole keys, however it is rounded in binary") {
  const TopKeysOptions options{{}, {}, 2, 0.1};
  CHECK((options.kept(30) == 3 && options.kept(31) == 4 && options.kept(10) == 2 && options.kept(1) == 1));
}

}  // namespace xformer::kernels::top_keys_test
