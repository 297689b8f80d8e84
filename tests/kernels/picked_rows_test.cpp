// Rows by a table of places, picked and summed, against their definitions and against each other.
#include "kernels/picked_rows/picked_rows.h"

#include "core/error.h"
#include "fused_support.h"
#include "tensor/autocast.h"

namespace xformer::kernels::picked_rows_test {

// Numbers below n, some of them twice, and some -1 where that may be.
at::Tensor some_places(int64_t b, int64_t h, int64_t m, int64_t n, bool some_none) {
  const at::Tensor numbers = (random_tensor("places", {b, h, m}) * 1e6).to(at::kLong);
  return some_none ? numbers.remainder(n + 1) - 1 : numbers.remainder(n);
}

struct Size {
  int64_t b, h, n, m, d;
};
const std::vector<Size> kSizes{
    {1, 1, 1, 1, 1}, {2, 3, 5, 9, 3}, {2, 2, 300, 700, 32}, {1, 2, 40, 20, 65}, {1, 1, 4, 0, 2}};

TEST_CASE("rows that are picked and summed are their definitions, with gradients, however they lie") {
  for (const at::ScalarType type : {at::kDouble, at::kFloat})
    for (const auto& [b, h, n, m, d] : kSizes)
      for (const bool heads_inside : {false, true}) {
        CAPTURE(b, h, n, m, d, heads_inside);
        const at::Tensor places = some_places(b, h, m, n, false), with_none = some_places(b, h, m, n, true);
        const auto rows = [&, inside = heads_inside](const char* name, int64_t count) {
          const at::Tensor x = random_tensor(name, {b, inside ? count : h, inside ? h : count, d}, type);
          return inside ? x.transpose(1, 2) : x;
        };
        const double bound = type == at::kDouble ? 1e-15 : 1e-6;
        for (const bool some_none : {false, true}) {
          const at::Tensor& own = some_none ? with_none : places;
          CHECK(worst_difference([&](const Tensors& x) { return Tensors{picked_rows(x[0], own, some_none)}; },
                                 [&](const Tensors& x) { return Tensors{picked_rows_reference(x[0], own, some_none)}; },
                                 {rows("x", n)}) <= bound);
        }
        CHECK(worst_difference([&, n = n](const Tensors& x) { return Tensors{summed_rows(x[0], places, n)}; },
                               [&, n = n](const Tensors& x) { return Tensors{summed_rows_reference(x[0], places, n)}; },
                               {rows("y", m)}) <= bound);
      }
}

TEST_CASE("picked rows are those at their places, and a negative one is zero") {
  const at::Tensor x = random_tensor("x", {2, 2, 6, 3}), places = some_places(2, 2, 11, 6, true);
  const at::Tensor picked = picked_rows(x, places, true), summed = summed_rows(picked, places, 6);
  at::Tensor meant = at::zeros_like(x);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < 11; ++i) {
        const auto place = places[b][h][i].item<int64_t>();
        CHECK(picked[b][h][i].equal(place < 0 ? at::zeros({3}, x.options()) : x[b][h][place]));
        if (place >= 0) meant[b][h][place] += x[b][h][place];
      }
  CHECK(difference(summed, meant) < 1e-15);
  CHECK(picked.is_contiguous());
}

TEST_CASE("sums of rows are the same whoever adds them up, and float until they are done") {
  const at::Tensor places = some_places(2, 2, 700, 30, false), x = random_tensor("x", {2, 2, 700, 32}, at::kFloat);
  CHECK(same_on_any_threads([&](const Tensors& in) { return Tensors{summed_rows(in[0], places, 30)}; }, {x}));
  const at::Tensor all = at::zeros({1, 1, 4096}, at::kLong), ones = at::ones({1, 1, 4096, 2}, at::kBFloat16);
  CHECK(summed_rows(ones, all, 1).equal(at::full({1, 1, 1, 2}, 4096, at::kBFloat16)));
}

TEST_CASE("rows keep their type where activations are bf16") {
  const AutocastScope autocast(at::kCPU, at::kBFloat16);
  const at::Tensor places = some_places(1, 2, 9, 5, false);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = random_tensor("x", {1, 2, 5, 4}, type);
    CHECK(picked_rows(x, places).equal(picked_rows_reference(x, places, false)));
    CHECK(picked_rows(x, places).scalar_type() == type);
    CHECK(summed_rows(picked_rows(x, places), places, 5).scalar_type() == type);
  }
}

TEST_CASE("a place behind the last row is refused") {
  const at::Tensor x = random_tensor("x", {1, 1, 3, 2}), places = at::full({1, 1, 2}, 3, at::kLong);
  CHECK_THROWS_AS(picked_rows(x, places), InternalError);
  CHECK_THROWS_AS(summed_rows(x.narrow(2, 0, 2), places, 3), InternalError);
  CHECK_THROWS_AS(picked_rows(x, places.to(at::kInt)), InternalError);
}

}  // namespace xformer::kernels::picked_rows_test
