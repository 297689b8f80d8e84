// Operators on parts of sequences in bf16, as bf16_test.cpp has other operators: sets of tokens, running maxima, one
// softmax over parts and rolled rows; and what of them stays float.
#include <limits>

#include "bf16_support.h"
#include "kernels/joined_softmax/joined_softmax.h"
#include "kernels/rolled_rows/rolled_rows.h"
#include "kernels/running_max/running_max.h"
#include "kernels/token_sets/cpu.h"
#include "kernels/token_sets/token_sets.h"
#include "place_support.h"

namespace xformer::kernels::bf16_test::parts {

struct SetSize {
  int64_t n, size, d = 8, e = 6;
  bool masked = true;
  double dropout = 0;
};

// Some have more rows than are widened at once.
const std::vector<SetSize> kSets{
    {1, 1}, {21, 4}, {40, 1}, {37, 50, 33, 17, true, 0.3}, {300, 140, 20}, {150, 75, 32, 32, false, 0.25}};

TokenSets sets_of(const SetSize& one) { return {one.size, one.masked ? valid(one.n, true) : at::Tensor()}; }

at::Tensor tokens(const std::string& name, int64_t n, int64_t width) {
  return activation(name, {3, n, 2, width}).transpose(1, 2);
}

Tensors set_inputs(const SetSize& one) {
  return {activation("q", {3, 2, sets_of(one).count(one.n), one.d}), tokens("k", one.n, one.d),
          tokens("v", one.n, one.e)};
}

// Numbers and slopes as they are: nothing is rounded.
void add_set_max(std::vector<Case>& cases) {
  for (const SetSize& one : kSets) {
    const auto with = [sets = sets_of(one)](auto* run) {
      return [sets, run](const Tensors& x) { return Tensors{run(x[0], sets)}; };
    };
    cases.push_back({"set_max", with(&set_max), with(&set_max_reference), {tokens("x", one.n, one.d)}, 0});
  }
}

void add_set_attention(std::vector<Case>& cases) {
  for (const SetSize& one : kSets) {
    const auto with = [options = SetAttentionOptions{sets_of(one), place_of(one.dropout)}](auto* run) {
      return [options, run](const Tensors& x) { return Tensors{run(x[0], x[1], x[2], options)}; };
    };
    cases.push_back({"set_attention", with(&set_attention), with(&set_attention_reference), set_inputs(one), 2});
  }
}

void add_running_max(std::vector<Case>& cases) {
  for (const auto& [rows, columns, d] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{1, 1, 1}, {5, 7, 3}, {40, 33, 32}, {3, 19, 48}})
    for (const bool down : {false, true})
      for (const bool behind : {false, true})
        for (const bool masked : {false, true}) {
          const at::Tensor some = valid(rows * columns, true).view({3, rows, columns});
          const RunningMaxOptions options{masked ? some : at::ones_like(some), down, behind};
          const auto with = [options](auto* run) {
            return [options, run](const Tensors& x) { return Tensors{run(x[0], options)}; };
          };
          cases.push_back({"running_max",
                           with(&running_max),
                           with(&running_max_reference),
                           {activation("x", {3, 2, rows, columns, d})}});
        }
}

// Outs, some of them longer than n, then the logs of their sums.
Tensors joined_inputs(int64_t count, int64_t n, int64_t e) {
  Tensors result;
  const auto rows = [&](int64_t i) { return n + (i % 3 == 1 ? 5 : 0); };
  for (int64_t i = 0; i < count; ++i) result.push_back(tokens("out" + std::to_string(i), rows(i), e));
  for (int64_t i = 0; i < count; ++i) result.push_back(3 * parameter("log" + std::to_string(i), {3, 2, rows(i), 1}));
  return result;
}

TensorFunction joined_by(at::Tensor (*run)(const Tensors&, const Tensors&, int64_t), int64_t n) {
  return [=](const Tensors& x) {
    const auto middle = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
    return Tensors{run({x.begin(), middle}, {middle, x.end()}, n)};
  };
}

void add_joined_softmax(std::vector<Case>& cases) {
  for (const auto& [count, n, e] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{1, 3, 4}, {2, 64, 32}, {3, 65, 5}, {7, 130, 48}, {2, 1, 17}})
    cases.push_back({"joined_softmax", joined_by(&joined_softmax, n), joined_by(&joined_softmax_reference, n),
                     joined_inputs(count, n, e)});
}

void add_rolled_rows(std::vector<Case>& cases) {
  for (const auto& [n, e] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {29, 5}, {300, 32}, {7, 100}, {520, 41}})
    for (const std::vector<int64_t>& offsets : {std::vector<int64_t>{0}, {0, 1, 2, 4, 8, 16}, {0, 3, 6, -3, 1000, -9}})
      for (const bool residual : {false, true}) {
        const RolledRowsOptions options{offsets, residual, residual ? valid(n, true) : at::Tensor()};
        const auto with = [options](auto* run) {
          return [options, run](const Tensors& x) { return Tensors{run(x[0], x[1], options)}; };
        };
        cases.push_back({"rolled_rows",
                         with(&rolled_rows),
                         with(&rolled_rows_reference),
                         {activation("v", {3, n, e}), activation("w", {3, n, static_cast<int64_t>(offsets.size())})}});
      }
}

std::vector<Case> part_cases() {
  std::vector<Case> cases;
  add_set_max(cases), add_set_attention(cases), add_running_max(cases);
  add_joined_softmax(cases), add_rolled_rows(cases);
  return cases;
}

TEST_CASE("in bf16 operators on parts are their definitions but for the format's rounding, with gradients") {
  check_definitions(part_cases());
}

TEST_CASE("--kernels=check holds operators on parts in bf16 against their definitions") { check_policy(part_cases()); }

TEST_CASE("operators on parts in bf16 are the same bits on any number of threads") { check_threads(part_cases()); }

TEST_CASE("of bf16 numbers that are equal or none the same ones take the gradient as of doubles") {
  const auto few = [](const char* name, at::IntArrayRef shape) { return (2 * random_tensor(name, shape)).round(); };
  const auto gradient = [&](const at::Tensor& x, at::ScalarType type, const auto& run) {
    const at::Tensor own = x.detach().to(type).requires_grad_(), made = run(own);
    const at::Tensor slope = few("slope", made.sizes());  // of which bf16 holds the sums
    return torch::autograd::grad({made}, {own}, {slope.to(type)})[0].to(at::kDouble);
  };
  const auto same = [&](const at::Tensor& x, const auto& run) {
    return at::equal(gradient(x, at::kBFloat16, run), gradient(x, at::kDouble, run));
  };
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (const int64_t d : {3, 16, 48}) {
    at::Tensor cells = few("x", {3, 1, 7, 9, d}), rows = few("x", {3, 2, 150, d});
    cells.select(2, 3).select(2, 4).fill_(kNone);
    rows.select(2, 70).fill_(kNone);
    CAPTURE(d);
    for (const bool down : {false, true})
      for (const bool behind : {false, true}) {
        const RunningMaxOptions options{valid(63, true).view({3, 7, 9}), down, behind};
        CHECK(same(cells, [&](const at::Tensor& x) { return running_max(x, options); }));
      }
    for (const int64_t size : {1, 4, 149})
      CHECK(same(rows, [&](const at::Tensor& x) { return set_max(x, {size, valid(150, true)}); }));
  }
}

TEST_CASE("beside bf16 the logs of sums of parts are float, gradients as well") {
  const auto stored = [](Tensors x, size_t count) {
    for (size_t i = 0; i < count; ++i) x[i] = x[i].to(at::kBFloat16);
    return x;
  };
  const Tensors full = joined_inputs(3, 20, 8);
  const TensorFunction join = joined_by(&joined_softmax, 20);
  const Tensors got = run_with_gradients(join, stored(full, 3)), inside = run_with_gradients(under_bf16(join), full);
  REQUIRE(got.size() == 7);
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i].scalar_type() == (i < 4 ? at::kBFloat16 : at::kFloat));
    CHECK(at::equal(got[i].to(at::kFloat), inside[i].to(at::kFloat)));
  }
  const SetSize size{37, 8};
  const Tensors x = stored(set_inputs(size), 3);
  const TokenSets sets = sets_of(size);
  const NestedSetsForward made = nested_sets_forward_cpu({x[0]}, x[1], x[2], {{sets.size}, sets.valid, {}, {0}});
  CHECK(made.outs[0].scalar_type() == at::kBFloat16);
  CHECK(made.log_sums[0].scalar_type() == at::kFloat);
}

}  // namespace xformer::kernels::bf16_test::parts
