// Attention over listed keys and additive attention in bf16, as bf16_test.cpp has other operators; and what of them
// stays float.
#include "bf16_support.h"
#include "kernels/additive_attention/additive_attention.h"
#include "kernels/additive_attention/cpu.h"
#include "kernels/listed_attention/cpu.h"
#include "kernels/listed_attention/listed_attention.h"
#include "place_support.h"

namespace xformer::kernels::bf16_test::lists {

struct ListedSize {
  int64_t n, keys, length, d, e;
  int64_t lists = 0;  // 0: one for each row
  bool biased = false;
  double dropout = 0;
};

// Of lists of different keys, as long as there are so many, with gaps.
at::Tensor places(int64_t lists, int64_t length, int64_t keys) {
  const at::Tensor list = at::arange(lists).view({-1, 1}), place = at::arange(length);
  const at::Tensor gap = (list + place).remainder(4).eq(3);
  return at::where(gap, -1, (list * 7 + place * 3).remainder(keys)).view({1, 1, lists, length});
}

ListedAttentionOptions listed_options(const ListedSize& one) {
  ListedAttentionOptions options;
  options.places = places(one.lists > 0 ? one.lists : one.n, one.length, one.keys);
  if (one.lists > 0) options.lists = (at::arange(6 * one.n) * 5).remainder(one.lists).view({3, 2, one.n});
  options.key_valid = valid(one.keys, true);
  options.row_valid = valid(one.n, true);
  options.dropout = place_of(one.dropout);
  return options;
}

Tensors listed_inputs(const ListedSize& one) {
  return {activation("q", {3, 2, one.n, one.d}), activation("k", {3, 2, one.keys, one.d}),
          activation("v", {3, 2, one.keys, one.e}),
          one.biased ? parameter("bias", {3, 2, one.n, one.length}) : at::Tensor()};
}

void add_listed_attention(std::vector<Case>& cases) {
  for (const ListedSize& one : std::vector<ListedSize>{{1, 1, 1, 8, 6},
                                                       {37, 37, 5, 8, 6},
                                                       {150, 40, 20, 16, 32, 0, true, 0.25},
                                                       {300, 290, 12, 32, 16},
                                                       {90, 50, 33, 19, 37, 7, true},
                                                       {200, 64, 40, 48, 48, 4, false, 0.25}}) {
    const auto with = [options = listed_options(one)](auto* run) {
      return [options, run](const Tensors& x) { return Tensors{run(x[0], x[1], x[2], options, x[3])}; };
    };
    cases.push_back(
        {"listed_attention", with(&listed_attention), with(&listed_attention_reference), listed_inputs(one), 2});
  }
}

void add_additive_attention(std::vector<Case>& cases) {
  struct Size {
    int64_t n, m, d = 8, e = 6;
  };
  for (const auto& [n, m, d, e] : {Size{1, 1}, {37, 37}, {120, 90}, {90, 16}, {18, 1100, 16, 32}})
    for (const bool causal : {false, true}) {
      if (causal && n != m) continue;
      AdditiveAttentionOptions options;
      options.mask = {valid(m, true), causal};
      options.query_valid = valid(n, true);
      options.dropout = place_of(causal ? 0 : 0.25);
      const auto with = [options](auto* run) {
        return [options, run](const Tensors& x) { return Tensors{run(x[0], x[1], x[2], x[3], options)}; };
      };
      cases.push_back({"additive_attention",
                       with(&additive_attention),
                       with(&additive_attention_reference),
                       {activation("q", {3, 2, n, d}), activation("k", {3, 2, m, d}), activation("v", {3, 2, m, e}),
                        parameter("w", {2, d})},
                       3});  // one is that of the output, which gradients of weights have taken off
    }
}

std::vector<Case> list_cases() {
  std::vector<Case> cases;
  add_listed_attention(cases), add_additive_attention(cases);
  return cases;
}

TEST_CASE("in bf16 listed keys and additive attention are their definitions but for the format's rounding") {
  check_definitions(list_cases());
}

TEST_CASE("--kernels=check holds listed keys and additive attention in bf16 against their definitions") {
  check_policy(list_cases());
}

TEST_CASE("listed keys and additive attention in bf16 are the same bits on any number of threads") {
  check_threads(list_cases());
}

TEST_CASE("beside bf16 what is added to exponents, the parameter and log-sums are float, gradients as well") {
  const auto check = [](const Tensors& full, const TensorFunction& run) {
    Tensors stored = full;
    for (size_t i = 0; i < 3; ++i) stored[i] = full[i].to(at::kBFloat16);
    const Tensors got = run_with_gradients(run, stored), inside = run_with_gradients(under_bf16(run), full);
    REQUIRE(got.size() == 5);
    CHECK(got[0].scalar_type() == at::kBFloat16);
    for (size_t i = 0; i < 3; ++i) CHECK(got[1 + i].scalar_type() == at::kBFloat16);
    CHECK(got[4].scalar_type() == at::kFloat);
    for (size_t i = 0; i < got.size(); ++i) CHECK(at::equal(got[i].to(at::kFloat), inside[i].to(at::kFloat)));
    return stored;
  };
  const ListedSize size{70, 50, 6, 16, 8, 0, true};
  const ListedAttentionOptions options = listed_options(size);
  const Tensors listed = check(listed_inputs(size), [&](const Tensors& x) {
    return Tensors{listed_attention(x[0], x[1], x[2], options, x[3])};
  });
  CHECK(listed_attention_forward_cpu(listed[0], listed[1], listed[2], listed[3], options).log_sum.scalar_type() ==
        at::kFloat);
  const Tensors additive =
      check({activation("q", {3, 2, 20, 8}), activation("k", {3, 2, 30, 8}), activation("v", {3, 2, 30, 6}),
             parameter("w", {2, 8})},
            [](const Tensors& x) { return Tensors{additive_attention(x[0], x[1], x[2], x[3], {})}; });
  CHECK(additive_attention_forward_cpu(additive[0], additive[1], additive[2], additive[3], {}).log_sum.scalar_type() ==
        at::kFloat);
}

}  // namespace xformer::kernels::bf16_test::lists
