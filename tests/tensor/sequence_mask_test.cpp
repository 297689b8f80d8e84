// Masks, pooling and masked softmax against loops over tokens.
#include "tensor/sequence_mask.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "core/error.h"
#include "tensor/init.h"

namespace xformer::sequence_mask_test {

at::Tensor numbers(at::IntArrayRef shape, const std::string& name = "x") {
  return InitStream(7).normal(name, shape, 1).to(at::kDouble);
}

// [b, n] bool with about a quarter of the tokens invalid; sample 0 all valid, the last all invalid.
at::Tensor some_valid(int64_t b, int64_t n) {
  at::Tensor valid = InitStream(8).uniform("valid", {b, n}, 0, 1) > 0.25;
  valid[0].fill_(true);
  if (b > 1) valid[b - 1].fill_(false);
  return valid;
}

// First and last token (exclusive) of a group.
std::pair<int64_t, int64_t> span(int64_t group, int64_t n, int64_t scale, int64_t pinned) {
  if (group < pinned) return {group, group + 1};
  const int64_t first = pinned + (group - pinned) * scale;
  return {first, std::min(first + scale, n)};
}

// Central differences of f at x.
at::Tensor differences(const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& x) {
  const double width = 1e-6;
  at::Tensor result = at::zeros_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    at::Tensor up = x.detach().clone(), down = x.detach().clone();
    up.flatten()[i] += width;
    down.flatten()[i] -= width;
    result.flatten()[i] = (f(up) - f(down)) / (2 * width);
  }
  return result;
}

struct Shape {
  int64_t n, scale, pinned, groups;
};
// Even, ragged, pinned, a scale beyond the length, one token.
const std::vector<Shape> kShapes = {{12, 4, 0, 3}, {13, 4, 0, 4}, {13, 4, 1, 4}, {14, 4, 1, 5}, {9, 3, 2, 5},
                                    {5, 8, 0, 1},  {5, 8, 1, 2},  {7, 1, 0, 7},  {1, 2, 0, 1},  {3, 2, 3, 3}};

TEST_CASE("pooling is the masked mean of each group") {
  for (const Shape& shape : kShapes) {
    const auto [n, scale, pinned, groups] = shape;
    INFO("n " << n << ", scale " << scale << ", pinned " << pinned);
    CHECK(pooled_len(n, scale, pinned) == groups);
    const at::Tensor x = numbers({3, 2, n, 4});
    for (const bool masked : {false, true}) {
      const SequenceMask mask{masked ? some_valid(3, n) : at::Tensor(), true};
      const at::Tensor pooled = pool_tokens(x, mask, scale, pinned);
      const SequenceMask pooled_mask = mask.pooled(scale, pinned);
      CHECK(pooled_mask.causal);
      CHECK(pooled_mask.all_valid() == mask.all_valid());
      REQUIRE(pooled.sizes() == at::IntArrayRef({3, 2, groups, 4}));
      for (int64_t b = 0; b < 3; ++b) {
        for (int64_t g = 0; g < groups; ++g) {
          const auto [first, last] = span(g, n, scale, pinned);
          at::Tensor sum = at::zeros({2, 4}, at::kDouble);
          int64_t count = 0;
          for (int64_t i = first; i < last; ++i) {
            if (masked && !mask.key_valid[b][i].item<bool>()) continue;
            sum = sum + x[b].select(1, i);
            ++count;
          }
          // Scale 1 is the identity: nothing is cleared.
          if (scale == 1) sum = x[b].select(1, g);
          const at::Tensor mean = count == 0 || scale == 1 ? sum : sum / count;
          CHECK(at::allclose(pooled[b].select(1, g), mean, 0, 1e-12));
          if (masked) CHECK(pooled_mask.key_valid[b][g].item<bool>() == (count > 0));
        }
      }
    }
  }
}

TEST_CASE("repeating gives every token its group's row") {
  for (const Shape& shape : kShapes) {
    const auto [n, scale, pinned, groups] = shape;
    INFO("n " << n << ", scale " << scale << ", pinned " << pinned);
    const at::Tensor x = numbers({2, 3, groups, 4});
    const at::Tensor repeated = repeat_tokens(x, n, scale, pinned);
    REQUIRE(repeated.sizes() == at::IntArrayRef({2, 3, n, 4}));
    for (int64_t g = 0; g < groups; ++g) {
      const auto [first, last] = span(g, n, scale, pinned);
      for (int64_t i = first; i < last; ++i) CHECK(at::equal(repeated.select(2, i), x.select(2, g)));
    }
    // Pooling undoes it.
    CHECK(at::allclose(pool_tokens(repeated, {}, scale, pinned), x, 0, 1e-12));
  }
}

TEST_CASE("what stands at invalid tokens does not matter to pooled groups") {
  const int64_t n = 11;
  const SequenceMask mask{some_valid(3, n)};
  const at::Tensor x = numbers({3, 2, n, 4});
  const at::Tensor changed = at::where(mask.as_factor(at::kBool), x, numbers({3, 2, n, 4}, "other"));
  for (const int64_t pinned : {0, 1}) {
    CHECK(at::equal(pool_tokens(x, mask, 3, pinned), pool_tokens(changed, mask, 3, pinned)));
  }
  // Appended padding changes no group that existed.
  const SequenceMask longer{at::constant_pad_nd(mask.key_valid, {0, 4}, false)};
  const at::Tensor padded = at::constant_pad_nd(x, {0, 0, 0, 4}, 5);
  CHECK(at::allclose(pool_tokens(padded, longer, 3).narrow(2, 0, 4), pool_tokens(x, mask, 3), 0, 1e-12));
  CHECK((pool_tokens(padded, longer, 3).select(2, 4) == 0).all().item<bool>());
}

TEST_CASE("pooling a group twice is pooling it once by both scales when all are valid") {
  const at::Tensor x = numbers({2, 2, 16, 3});
  CHECK(at::allclose(pool_tokens(pool_tokens(x, {}, 2), {}, 4), pool_tokens(x, {}, 8), 0, 1e-12));
}

TEST_CASE("gradients of pooling and repeating") {
  const SequenceMask mask{some_valid(2, 7)};
  const at::Tensor weights = numbers({2, 1, 3, 2}, "weights");
  const auto pooled = [&](const at::Tensor& x) { return (weights * pool_tokens(x, mask, 3)).sum(); };
  const at::Tensor x = numbers({2, 1, 7, 2}).requires_grad_(true);
  CHECK(at::allclose(torch::autograd::grad({pooled(x)}, {x})[0], differences(pooled, x), 0, 1e-8));
  const at::Tensor long_weights = numbers({2, 1, 7, 2}, "weights");
  const auto repeated = [&](const at::Tensor& y) { return (long_weights * repeat_tokens(y, 7, 3)).sum(); };
  const at::Tensor y = numbers({2, 1, 3, 2}).requires_grad_(true);
  CHECK(at::allclose(torch::autograd::grad({repeated(y)}, {y})[0], differences(repeated, y), 0, 1e-8));
}

TEST_CASE("a mask as factors") {
  const SequenceMask mask{some_valid(3, 5)}, open;
  CHECK(open.all_valid());
  CHECK_FALSE(mask.all_valid());
  const at::Tensor factor = mask.as_factor(at::kFloat);
  CHECK(factor.sizes() == at::IntArrayRef({3, 1, 5, 1}));
  CHECK(factor.scalar_type() == at::kFloat);
  CHECK(at::equal(factor.flatten(), mask.key_valid.flatten().to(at::kFloat)));
  CHECK_THROWS_AS(open.as_factor(at::kFloat), InternalError);
}

// Rows of exponentials over the allowed keys, by loops.
at::Tensor loop_softmax(const at::Tensor& scores, const SequenceMask& mask) {
  at::Tensor result = at::zeros_like(scores);
  const int64_t queries = scores.size(2), keys = scores.size(3);
  for (int64_t b = 0; b < scores.size(0); ++b) {
    for (int64_t h = 0; h < scores.size(1); ++h) {
      for (int64_t q = 0; q < queries; ++q) {
        std::vector<int64_t> allowed;
        for (int64_t k = 0; k < keys; ++k) {
          const bool valid = mask.all_valid() || mask.key_valid[b][k].item<bool>();
          if (valid && (!mask.causal || k <= q + keys - queries)) allowed.push_back(k);
        }
        double sum = 0;
        for (const int64_t k : allowed) sum += std::exp(scores[b][h][q][k].item<double>());
        for (const int64_t k : allowed) result[b][h][q][k] = std::exp(scores[b][h][q][k].item<double>()) / sum;
      }
    }
  }
  return result;
}

TEST_CASE("masked softmax is the softmax over allowed keys") {
  for (const int64_t queries : {1, 4, 6}) {
    const at::Tensor scores = numbers({3, 2, queries, 6});
    for (const bool causal : {false, true}) {
      for (const bool masked : {false, true}) {
        const SequenceMask mask{masked ? some_valid(3, 6) : at::Tensor(), causal};
        INFO("queries " << queries << ", causal " << causal << ", masked " << masked);
        const at::Tensor weights = masked_softmax(scores, mask);
        CHECK(at::allclose(weights, loop_softmax(scores, mask), 0, 1e-13));
        // What is forbidden weighs exactly nothing.
        CHECK(at::equal(weights == 0, loop_softmax(scores, mask) == 0));
      }
    }
  }
}

TEST_CASE("a row without a key gives zeros and zero gradient") {
  at::Tensor valid = at::ones({2, 5}, at::kBool);
  valid[1].fill_(false);
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor scores = numbers({2, 1, 5, 5}).to(type).requires_grad_(true);
    const at::Tensor weights = masked_softmax(scores, {valid, true});
    CHECK((weights[1] == 0).all().item<bool>());
    const at::Tensor gradient =
        torch::autograd::grad({(weights * numbers({2, 1, 5, 5}, "g").to(type)).sum()}, {scores})[0];
    CHECK((gradient[1] == 0).all().item<bool>());
    CHECK(gradient.isfinite().all().item<bool>());
    CHECK((gradient[0] != 0).any().item<bool>());
  }
}

TEST_CASE("the gradient of masked softmax") {
  const SequenceMask mask{some_valid(3, 5), true};
  const at::Tensor weights = numbers({3, 1, 5, 5}, "weights");
  const auto loss = [&](const at::Tensor& scores) { return (weights * masked_softmax(scores, mask)).sum(); };
  const at::Tensor scores = numbers({3, 1, 5, 5}).requires_grad_(true);
  CHECK(at::allclose(torch::autograd::grad({loss(scores)}, {scores})[0], differences(loss, scores), 0, 1e-8));
}

TEST_CASE("scores of forbidden keys do not matter, however large") {
  const SequenceMask mask{some_valid(3, 6)};
  const at::Tensor scores = numbers({3, 2, 4, 6}), allowed = mask.key_valid.unsqueeze(1).unsqueeze(1);
  const at::Tensor weights = masked_softmax(scores, mask);
  for (const double value : {0.0, 1e4, -1e4, 1e30, std::numeric_limits<double>::infinity()}) {
    CHECK(at::equal(masked_softmax(scores.masked_fill(allowed.logical_not(), value), mask), weights));
  }
  // Nor does a constant added to a row, nor appended invalid keys.
  CHECK(at::allclose(masked_softmax(scores + 100, mask), weights, 0, 1e-13));
  const SequenceMask longer{at::constant_pad_nd(mask.key_valid, {0, 3}, false)};
  CHECK(
      at::allclose(masked_softmax(at::constant_pad_nd(scores, {0, 3}, 9), longer).narrow(3, 0, 6), weights, 0, 1e-13));
}

TEST_CASE("a causal row does not see later scores") {
  const SequenceMask mask{at::Tensor(), true};
  const at::Tensor scores = numbers({1, 1, 6, 6}), changed = scores.clone();
  changed.select(3, 4).fill_(50);
  const at::Tensor before = masked_softmax(scores, mask), after = masked_softmax(changed, mask);
  CHECK(at::equal(before.narrow(2, 0, 4), after.narrow(2, 0, 4)));
  CHECK_FALSE(at::equal(before.narrow(2, 4, 2), after.narrow(2, 4, 2)));
}

}  // namespace xformer::sequence_mask_test
