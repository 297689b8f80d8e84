// Sets of tokens against their definitions: outputs and gradients, over shapes, masks and dropout.
#include "kernels/token_sets/token_sets.h"

#include <limits>

#include "core/error.h"
#include "fused_support.h"
#include "kernels/token_sets/cpu.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::token_sets_test {

struct SetsCase {
  int64_t n = 21, size = 4, b = 3, h = 2, d = 5, e = 4;
  bool masked = false;
  double dropout = 0;
};

const std::vector<SetsCase> kCases{{},
                                   {.n = 1, .size = 1},
                                   {.n = 7, .size = 9, .masked = true},
                                   {.n = 64, .size = 8, .d = 32, .e = 32, .dropout = 0.3},
                                   {.n = 130, .size = 64, .d = 33, .e = 17, .masked = true, .dropout = 0.5},
                                   {.n = 40, .size = 1, .masked = true}};

// Some tokens of the first sample, a prefix of the second, none of the third.
TokenSets sets_of(const SetsCase& one) {
  TokenSets sets{one.size};
  if (!one.masked) return sets;
  sets.valid = random_tensor("valid", {one.b, one.n}).gt(-0.5);
  sets.valid[1].fill_(false).narrow(0, 0, one.n / 2).fill_(true);
  sets.valid[2].fill_(false);
  return sets;
}

at::Tensor tokens(const char* name, const SetsCase& one, int64_t width, at::ScalarType type) {
  return random_tensor(name, {one.b, one.n, one.h, width}, type).transpose(1, 2);
}

TEST_CASE("set_max equals its definition, with the gradient") {
  for (const SetsCase& one : kCases)
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      CAPTURE(one.n, one.size, one.masked);
      const TokenSets sets = sets_of(one);
      CHECK(worst_difference([&](const Tensors& x) { return Tensors{set_max(x[0], sets)}; },
                             [&](const Tensors& x) { return Tensors{set_max_reference(x[0], sets)}; },
                             {tokens("x", one, one.d, type) - 3}) == 0);
    }
}

TEST_CASE("set_max is the largest valid row of each set, and 0 of none") {
  const SetsCase one{.n = 11, .size = 4, .masked = true};
  const TokenSets sets = sets_of(one);
  const at::Tensor x = tokens("x", one, one.d, at::kDouble) - 3, got = set_max(x, sets);
  REQUIRE(got.sizes() == at::IntArrayRef({one.b, one.h, 3, one.d}));
  for (int64_t b = 0; b < one.b; ++b)
    for (int64_t set = 0; set < 3; ++set) {
      at::Tensor largest;
      for (int64_t i = set * one.size; i < std::min(one.n, (set + 1) * one.size); ++i) {
        if (!sets.valid[b][i].item<bool>()) continue;
        const at::Tensor row = x[b].select(1, i);
        largest = largest.defined() ? at::maximum(largest, row) : row;
      }
      const at::Tensor row = got[b].select(1, set);
      CHECK(row.equal(largest.defined() ? largest : at::zeros_like(row)));
    }
}

TEST_CASE("of equal rows the first one takes the gradient, and a NaN is the largest") {
  const at::Tensor x = at::zeros({1, 1, 6, 1}, at::kDouble).requires_grad_(true);
  set_max(x, {3}).sum().backward();
  CHECK(x.grad().flatten().equal(at::tensor({1.0, 0.0, 0.0, 1.0, 0.0, 0.0}, at::kDouble)));
  at::Tensor bad = random_tensor("x", {1, 1, 6, 2});
  bad.select(2, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  CHECK(set_max(bad, {3}).isnan().equal(set_max_reference(bad, {3}).isnan()));
  CHECK(set_max(bad, {3}).isnan().sum().item<int64_t>() == 2);
}

TEST_CASE("the largest of a set and who takes its gradient are the same by every instruction set") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t width : {1, 15, 16, 20, 32, 33, 70}) {
    constexpr int64_t kRows = 6, kUntouched = 77;
    const int64_t stride = width + 3;
    std::vector<float> rows;
    for (int64_t i = 0; i < kRows * stride; ++i)
      rows.push_back(static_cast<float>(i * 7919 % 5) - 8);  // many are equal
    rows[static_cast<size_t>(stride)] = rows[static_cast<size_t>(3 * stride + width - 1)] = kNan;
    const bool some[kRows] = {false, true, true, false, true, true}, none[kRows] = {};
    for (const bool* valid : {static_cast<const bool*>(nullptr), some, none}) {
      const SetRows<float> of{rows.data(), stride, kRows, valid};
      std::vector<std::vector<float>> made;
      for (const LargestLoops& way : ways_to_find_largest()) {
        const auto size = static_cast<size_t>(width);
        std::vector<float> largest(size + 1, kUntouched), left(size + 1, kUntouched);
        std::vector<float> out(static_cast<size_t>(kRows * stride), kUntouched);
        for (size_t c = 0; c < size; ++c) left[c] = static_cast<float>(c) + 1;
        way.largest(of, width, largest.data());
        way.slopes(of, width, largest.data(), left.data(), out.data(), stride);
        for (float& x : largest) x = x != x ? 1e9F : x;
        largest.insert(largest.end(), left.begin(), left.end());
        largest.insert(largest.end(), out.begin(), out.end());
        made.push_back(largest);
        for (size_t c = 0; c < size; ++c) {
          float most = 0, taken = 0;
          bool any = false;
          for (int64_t i = 0; i < kRows; ++i) {
            const float x = rows[static_cast<size_t>(i * stride) + c];
            if (valid != nullptr && !valid[i]) continue;
            if (!any || x > most || x != x) most = x != x ? 1e9F : x, any = true;
          }
          for (int64_t i = 0; i < kRows; ++i) taken += out[static_cast<size_t>(i * stride) + c];
          CHECK((largest[c] == most && taken == (any ? static_cast<float>(c) + 1 : 0)));
        }
      }
      CAPTURE(width, valid == nullptr, valid == none);
      CHECK(made.front() == made.back());
    }
  }
}

TEST_CASE("attention within sets equals its definition, with gradients of all three") {
  for (const SetsCase& one : kCases) {
    SetAttentionOptions options{sets_of(one), {}};
    if (one.dropout > 0) {
      DropoutStream stream(5);
      stream.set_step(3, 2);
      options.dropout = {one.dropout, stream.state, 4};
    }
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      CAPTURE(one.n, one.size, one.masked, one.dropout);
      const Tensors x{random_tensor("q", {one.b, one.h, options.sets.count(one.n), one.d}, type),
                      tokens("k", one, one.d, type), tokens("v", one, one.e, type)};
      const double rounding = one.size > 1 ? 1e-4 : 1e-3;  // what is left of gradients that are zero
      CHECK(worst_difference(
                [&](const Tensors& in) { return Tensors{set_attention(in[0], in[1], in[2], options)}; },
                [&](const Tensors& in) { return Tensors{set_attention_reference(in[0], in[1], in[2], options)}; },
                x) < (type == at::kDouble ? 1e-12 : rounding));
    }
  }
}

struct NestedCase {
  std::vector<int64_t> sizes;
  SetsCase tokens;
};

TEST_CASE("attention within nested sets is that within the sets of each size, with gradients, and goes by once") {
  const std::vector<NestedCase> cases{{{2, 4, 8, 16, 32}, {.n = 77, .d = 32, .e = 32, .masked = true, .dropout = 0.3}},
                                      {{1, 3, 12}, {.n = 30, .dropout = 0.5}},
                                      {{2, 4, 8, 16, 32, 64, 128}, {.n = 200, .d = 16, .e = 9, .masked = true}},
                                      {{5, 15, 105}, {.n = 104, .masked = true, .dropout = 0.2}},
                                      {{2, 2}, {.n = 3, .dropout = 0.4}}};
  for (const auto& [sizes, one] : cases) {
    NestedSetsOptions options{sizes, sets_of(one).valid};
    DropoutStream stream(5);
    stream.set_step(3, 2);
    if (one.dropout > 0) options.dropout = {one.dropout, stream.state};
    for (size_t i = 0; i < sizes.size(); ++i) options.sites.push_back(static_cast<int64_t>(7 - i));
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      Tensors x{tokens("k", one, one.d, type), tokens("v", one, one.e, type)};
      for (const int64_t size : sizes)
        x.push_back(
            random_tensor("q" + std::to_string(size), {one.b, one.h, TokenSets{size}.count(one.n), one.d}, type));
      CAPTURE(one.n, sizes.size(), type == at::kFloat);
      const auto each = [&](const Tensors& in) {
        Tensors result;
        for (size_t i = 0; i < sizes.size(); ++i)
          result.push_back(
              set_attention_reference(in[2 + i], in[0], in[1], {{sizes[i], options.valid}, options.place(i)}));
        return result;
      };
      CHECK(worst_difference(
                [&](const Tensors& in) {
                  return nested_set_attention({in.begin() + 2, in.end()}, in[0], in[1], options);
                },
                each, x) < (type == at::kDouble ? 1e-12 : 1e-3));
      const OpCounter counter;
      (void)nested_set_attention({x.begin() + 2, x.end()}, x[0], x[1], options);
      int64_t there = one.b * one.n;  // up to the last valid one of each sample
      if (one.masked) {
        there = 0;
        for (int64_t b = 0; b < one.b; ++b) {
          const at::Tensor places = options.valid[b].nonzero();
          if (places.size(0) > 0) there += places.max().item<int64_t>() + 1;
        }
      }
      CHECK(counter.counts().flops == 2 * one.h * there * (one.d + one.e) * static_cast<int64_t>(sizes.size()));
    }
  }
  NestedSetsOptions options;
  options.sizes = {2, 3}, options.sites = {0, 1};
  const at::Tensor x = random_tensor("x", {1, 1, 12, 4});
  CHECK_THROWS_AS(nested_set_attention({x.narrow(2, 0, 6), x.narrow(2, 0, 4)}, x, x, options), InternalError);
}

TEST_CASE("attention within sets looks at no token that is not valid") {
  const SetsCase one{.n = 22, .size = 4, .masked = true};
  const SetAttentionOptions options{sets_of(one), {}};
  const at::Tensor q = random_tensor("q", {one.b, one.h, 6, one.d});
  const auto run = [&](double padding) {
    const at::Tensor padded = options.sets.valid.logical_not().unsqueeze(1).unsqueeze(-1);
    return run_with_gradients([&](const Tensors& x) { return Tensors{set_attention(x[0], x[1], x[2], options)}; },
                              {q, tokens("k", one, one.d, at::kDouble).masked_fill(padded, padding),
                               tokens("v", one, one.e, at::kDouble).masked_fill(padded, padding)});
  };
  const Tensors zeros = run(0), bad = run(std::numeric_limits<double>::quiet_NaN());
  for (size_t i = 0; i < zeros.size(); ++i) CHECK(zeros[i].equal(bad[i]));
  CHECK(zeros[0][2].abs().max().item<double>() == 0);
}

TEST_CASE("attention within sets counts 2 (d + e) for each token") {
  const SetsCase one;
  const at::Tensor q = random_tensor("q", {one.b, one.h, 6, one.d}, at::kFloat),
                   k = tokens("k", one, one.d, at::kFloat), v = tokens("v", one, one.e, at::kFloat);
  const OpCounter counter;
  (void)set_attention(q, k, v, {{one.size}, {}});
  CHECK(counter.counts().flops == 2 * one.b * one.h * one.n * (one.d + one.e));
}

}  // namespace xformer::kernels::token_sets_test
