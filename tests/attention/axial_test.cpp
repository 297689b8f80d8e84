// axial (attention-more 9).
#include <cmath>

#include "attention/support.h"
#include "tensor/op_counter.h"

namespace xformer::attention::axial_test {

using namespace support;

// Which of its sets a layer reads.
enum class Axis { kRows, kColumns, kBoth };

bool allowed(Axis axis, int64_t m, int64_t pinned, bool causal, int64_t i, int64_t j) {
  if (causal && j > i) return false;
  if (i < pinned || j < pinned) return true;
  i -= pinned, j -= pinned;
  return (axis != Axis::kColumns && i / m == j / m) || (axis != Axis::kRows && i % m == j % m);
}

at::Tensor reference(const Inputs& in, const SequenceMask& mask, Axis axis, int64_t m, int64_t pinned = 0) {
  const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(static_cast<double>(in.q.size(-1)));
  const auto s = scores.accessor<double, 4>();
  return dense_attention(in.v, mask, in.q.size(2), [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    return allowed(axis, m, pinned, mask.causal, i, j) ? std::exp(s[b][h][i][j]) : 0;
  });
}

BuiltCore make(Axis axis, int64_t columns, bool causal, int64_t pinned = 0, int64_t max_len = 100) {
  return make_core("axial", {{"axes", axis == Axis::kBoth ? "union" : "alternate"}, {"columns", columns}},
                   {.max_len = max_len, .layer = axis == Axis::kColumns ? 3 : 2, .pinned = pinned, .causal = causal});
}

constexpr Axis kAll[] = {Axis::kRows, Axis::kColumns, Axis::kBoth};

TEST_CASE("axial equals the dense softmax over rows, columns or both, ragged, of any length, with pinned tokens") {
  for (const Axis axis : kAll)
    for (const bool causal : {false, true})
      for (const int64_t pinned : {0, 2})
        for (const auto& [n, m] : {std::pair{48, 8}, {47, 7}, {17, 5}, {5, 5}, {4, 9}, {20, 1}, {2, 1}, {1, 3}}) {
          INFO("axis " << static_cast<int>(axis) << " causal " << causal << " pinned " << pinned << " n " << n << " m "
                       << m);
          const Inputs in = random_inputs(2, 2, n, 5);
          const BuiltCore core = make(axis, m, causal, pinned);
          for (const SequenceMask& mask :
               {SequenceMask{{}, causal}, length_mask({n, (2 * n + 2) / 3}, n, causal), length_mask({1, n}, n, causal)})
            CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask),
                                 valid_rows(reference(in, mask, axis, m, pinned), mask)) < 1e-10);
        }
}

TEST_CASE("axial golden numbers") {
  // A grid of two columns: row 0 is {0, 1}, column 0 is {0, 2}. Weights of keys 0 to 3: 1, 2, 3, 9 on values 1, 4,
  // 8, 9.
  const at::Tensor q = column({1, 1, 1, 1}), k = column({0, std::log(2.0), std::log(3.0), std::log(9.0)}),
                   v = column({1, 4, 8, 9});
  const auto first = [&](const std::string& axes, int64_t layer) {
    return make_core("axial", {{"axes", axes}, {"columns", 2}}, {.heads = 1, .head_dim = 1, .layer = layer})(q, k, v)
        .flatten()[0]
        .item<double>();
  };
  CHECK(first("alternate", 0) == Approx((1 + 2 * 4) / 3.0));
  CHECK(first("alternate", 1) == Approx((1 + 3 * 8) / 4.0));
  CHECK(first("union", 0) == Approx((1 + 2 * 4 + 3 * 8) / 6.0));  // the own token once
}

TEST_CASE("axial's columns are the image's, else the root of the longest length, whatever the length") {
  const Inputs in = random_inputs(1, 2, 40, 5);
  const BuiltCore core = make(Axis::kColumns, 0, false, 0, 50);  // ceil(sqrt(50)) = 8
  CHECK(max_difference(core(in.q, in.k, in.v), reference(in, {}, Axis::kColumns, 8)) < 1e-10);
  BuildContext context = make_context({.max_len = 50});
  context.grid = 6;
  const auto image = build_core(resolve("axial"), full_options(resolve("axial")), context);
  image->eval();
  Carry carry;
  CHECK(max_difference(image->forward(in.q, in.k, in.v, {}, carry), reference(in, {}, Axis::kRows, 6)) < 1e-10);
}

TEST_CASE("one row of axial is softmax; rows, then columns see everything, and causal ones nothing later") {
  const int64_t n = 30, m = 6;
  const Inputs in = random_inputs(2, 2, n, 5);
  for (const bool causal : {false, true}) {
    const SequenceMask mask = length_mask({n, 19}, n, causal);
    for (const Axis axis : {Axis::kRows, Axis::kBoth})
      CHECK(max_difference(valid_rows(make(axis, n, causal)(in.q, in.k, in.v, mask), mask),
                           valid_rows(dense_softmax(in, mask), mask)) < 1e-10);
    at::Tensor rows = at::zeros({n, n}, at::kDouble), columns = at::zeros({n, n}, at::kDouble);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        rows[i][j] = allowed(Axis::kRows, m, 0, causal, i, j) ? 1 : 0;
        columns[i][j] = allowed(Axis::kColumns, m, 0, causal, i, j) ? 1 : 0;
      }
    const at::Tensor two = at::matmul(columns, rows).gt(0);
    if (!causal) CHECK(two.all().item<bool>());
    else CHECK_FALSE(two.triu(1).any().item<bool>());
  }
}

TEST_CASE("causal axial gives rows that no later token changes, in any bit") {
  const int64_t n = 60, m = 7;
  const Inputs in = random_inputs(1, 2, n, 5), other = random_inputs(1, 2, n, 5, "later");
  for (const Axis axis : kAll)
    for (const int64_t pinned : {0, 1}) {
      const BuiltCore core = make(axis, m, true, pinned);
      const at::Tensor out = core(in.q, in.k, in.v, {{}, true});
      for (const int64_t seen : {1, 6, 7, 31, 59}) {
        const auto mixed = [&](const at::Tensor& a, const at::Tensor& b) {
          return at::cat({a.narrow(2, 0, seen), b.narrow(2, seen, n - seen)}, 2);
        };
        const at::Tensor changed = core(mixed(in.q, other.q), mixed(in.k, other.k), mixed(in.v, other.v), {{}, true});
        CHECK(changed.narrow(2, 0, seen).equal(out.narrow(2, 0, seen)));
      }
    }
}

TEST_CASE("axial's sum is a layer of rows and one of columns, added, with a gradient for both") {
  const Json sum{{"axes", "sum"}, {"columns", 6}};
  const BuiltMixer both = make_mixer("axial", sum);
  const at::Tensor x = random_tensor("x", {2, 30, 10});
  const SequenceMask mask = length_mask({30, 13}, 30);
  std::map<std::string, at::Tensor> values;
  for (const auto& [key, value] : both.parameters()) values[key] = value.data();
  at::Tensor expected = at::zeros_like(x);
  for (const std::string part : {"row", "column"}) {
    const BuiltMixer one =
        make_mixer("axial", {{"columns", 6}}, {.layer = part == "column" ? 1 : 0});  // alternate: one of the axes
    for (const auto& [key, value] : one.parameters()) value.data().copy_(values.at(part + "." + key));
    expected = expected + one(x, mask);
  }
  CHECK(max_difference(both(x, mask), expected) < 1e-12);
  CHECK(values.size() == 16);
  both(x, mask).square().sum().backward();
  for (const auto& [key, value] : both.parameters())
    if (!key.ends_with("key.bias")) CHECK(value.grad().abs().max().item<double>() > 1e-6);
}

TEST_CASE("axial's pairs are those counted in the mask, its FLOPs counted ones, of the closed forms on whole grids") {
  for (const Axis axis : kAll)
    for (const bool causal : {false, true})
      for (const int64_t pinned : {0, 2})
        for (const auto& [n, m] : {std::pair{60, 8}, {47, 7}, {5, 9}, {2, 1}}) {
          INFO("axis " << static_cast<int>(axis) << " causal " << causal << " pinned " << pinned << " n " << n << " m "
                       << m);
          int64_t counted = 0;
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < n; ++j) counted += allowed(axis, m, pinned, causal, i, j) ? 1 : 0;
          const BuiltCore core = make(axis, m, causal, pinned);
          CHECK(core.module->cost({1, 1, n, n, 1}).flops_pattern == 4.0 * static_cast<double>(counted));
          const Inputs in = random_inputs(2, 2, n, 5);
          const OpCounter counter;
          core(in.q, in.k, in.v, {{}, causal});
          CHECK(static_cast<double>(counter.counts().flops) == core.module->cost({2, 2, n, n, 5}).flops_executed);
        }
  const auto pairs = [](Axis axis, int64_t n, int64_t m) {
    return make(axis, m, false).module->cost({1, 1, n, n, 1}).flops_pattern / 4;
  };
  constexpr int64_t m = 8, rows = 12, n = rows * m;
  CHECK(pairs(Axis::kRows, n, m) + pairs(Axis::kColumns, n, m) == n * (rows + m));
  CHECK(pairs(Axis::kBoth, n, m) == n * (rows + m - 1));
}

TEST_CASE("axial's parameters and refusals") {
  const auto count = [](const Json& options) {
    int64_t result = 0;
    for (const auto& [key, tensor] : make_mixer("axial", options, {.head_dim = 32, .max_len = 2048}).state())
      result += tensor.numel();
    return result;
  };
  CHECK(count({}) == 16640);
  CHECK(count({{"axes", "union"}}) == 16640);
  CHECK(count({{"axes", "sum"}}) == 2 * 16640);
  CHECK_THROWS_AS(make_core("axial", {{"axes", "sum"}}), UserError);
  CHECK_THROWS_AS(make_core("mrs-axial", {{"axes", "sum"}}), UserError);
  CHECK_THROWS_AS(make_core("axial", {{"columns", -1}}), UserError);
}

}  // namespace xformer::attention::axial_test
