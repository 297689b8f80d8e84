// largest_places against a sort of each row.
#include "kernels/largest_places/largest_places.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "fused_support.h"

namespace xformer::kernels::largest_places_test {

// The places of the k largest, the first among equals, NaNs above all.
std::vector<int64_t> sorted_places(const std::vector<double>& row, int64_t k) {
  std::vector<int64_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int64_t i) {
    const double x = row[static_cast<size_t>(i)];
    return std::make_pair(std::isnan(x), std::isnan(x) ? 0 : x);
  };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key(a) > key(b); });
  order.resize(static_cast<size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

void check_rows(const at::Tensor& x, int64_t k) {
  const at::Tensor got = largest_places(x, k), rows = x.to(at::kDouble).reshape({-1, x.size(-1)}).contiguous();
  const at::Tensor places = got.reshape({-1, k}).contiguous();
  REQUIRE(got.scalar_type() == at::kLong);
  for (int64_t r = 0; r < rows.size(0); ++r) {
    const auto* const from = rows.const_data_ptr<double>() + r * rows.size(1);
    const auto* const found = places.const_data_ptr<int64_t>() + r * k;
    CHECK(std::vector<int64_t>(found, found + k) == sorted_places({from, from + rows.size(1)}, k));
  }
}

TEST_CASE("largest_places are those of a sort, for every k and length") {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const int64_t n : {1, 2, 15, 16, 17, 64, 130}) {
      const at::Tensor x = random_tensor("x", {2, 3, n}, type);
      for (const int64_t k : {int64_t{1}, n / 2, n - 1, n})
        if (k >= 1) check_rows(x, k);
    }
  check_rows(random_tensor("x", {40, 2000}, at::kFloat), 45);
}

TEST_CASE("largest_places among equal numbers, zeros of both signs, infinities and NaN") {
  const double infinite = std::numeric_limits<double>::infinity(), none = std::numeric_limits<double>::quiet_NaN();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    check_rows(at::zeros({2, 40}, type), 7);
    check_rows(at::round(random_tensor("x", {8, 50}, type) * 2), 11);
    check_rows(at::tensor({-0.0, 0.0, -1.0, -0.0, 0.0}, at::kDouble).to(type), 2);
    check_rows(at::tensor({-infinite, infinite, 0.0, -1.0, none, -1.0, infinite, 1e-40}, at::kDouble).to(type), 4);
    check_rows(at::full({2, 20}, none, type), 3);
    check_rows(at::full({3, 20}, -1e30, at::kFloat).to(type), 20);
  }
}

TEST_CASE("largest_places of rows that do not lie side by side") {
  const at::Tensor x = random_tensor("x", {30, 4}, at::kFloat).t();
  CHECK(largest_places(x, 5).equal(largest_places(x.contiguous(), 5)));
  CHECK(largest_places(x, 5).equal(largest_places_reference(x, 5)));
}

}  // namespace xformer::kernels::largest_places_test
