// FLOPs and calls against counts by hand, forward and backward.
#include "tensor/op_counter.h"

#include <ATen/Functions.h>

#include <catch2/catch.hpp>
#include <functional>
#include <vector>

#include "core/error.h"

namespace xformer::op_counter_test {

at::Tensor variable(at::IntArrayRef shape) { return at::ones(shape).requires_grad_(true); }

int64_t flops(const std::function<void()>& action) {
  const OpCounter counter;
  action();
  return counter.counts().flops;
}

// FLOPs of the forward pass, and of the backward pass from the sum of its result.
std::pair<int64_t, int64_t> both(const std::function<at::Tensor()>& forward) {
  at::Tensor loss;
  const int64_t first = flops([&] { loss = forward().sum(); });
  return {first, flops([&] { loss.backward(); })};
}

using Pair = std::pair<int64_t, int64_t>;

TEST_CASE("products are counted once, whatever calls them") {
  const at::Tensor a = variable({3, 4}), b = variable({4, 5}), c = variable({3, 5});
  CHECK(both([&] { return at::mm(a, b); }) == Pair(120, 240));
  CHECK(both([&] { return at::matmul(a, b); }) == Pair(120, 240));
  CHECK(both([&] { return at::addmm(c, a, b); }) == Pair(120, 240));
  CHECK(both([&] { return at::einsum("ij,jk->ik", {a, b}); }) == Pair(120, 240));
  const at::Tensor x = variable({2, 3, 4}), weight = variable({7, 4}), bias = variable({7});
  CHECK(both([&] { return at::linear(x, weight, bias); }) == Pair(336, 672));
  CHECK(both([&] { return at::linear(x, weight); }) == Pair(336, 672));
  const at::Tensor p = variable({2, 3, 4}), q = variable({2, 4, 5}), r = variable({2, 3, 5});
  CHECK(both([&] { return at::bmm(p, q); }) == Pair(240, 480));
  CHECK(both([&] { return at::baddbmm(r, p, q); }) == Pair(240, 480));
  CHECK(both([&] { return at::matmul(p.unsqueeze(0), q.unsqueeze(0)); }) == Pair(240, 480));
  CHECK(both([&] { return at::addbmm(c, p, q); }) == Pair(240, 480));
  CHECK(flops([&] { at::mv(a.detach(), at::ones({4})); }) == 24);
  CHECK(flops([&] { at::addmv(at::ones({3}), a.detach(), at::ones({4})); }) == 24);
  CHECK(flops([&] { at::dot(at::ones({9}), at::ones({9})); }) == 18);
  // In place and into a given tensor.
  at::Tensor target = at::zeros({3, 5});
  CHECK(flops([&] { target.addmm_(a.detach(), b.detach()); }) == 120);
  CHECK(flops([&] { at::mm_out(target, a.detach(), b.detach()); }) == 120);
}

TEST_CASE("a gradient that nobody wants is not counted") {
  const at::Tensor x = at::ones({3, 4}), w = variable({4, 5});
  CHECK(both([&] { return at::mm(x, w); }) == Pair(120, 120));
}

TEST_CASE("convolutions are counted by their outputs and filters") {
  const at::Tensor x = variable({2, 6, 9}), w = variable({8, 3, 4}), b = variable({8});
  // Width (9 + 2 * 1 - 4) / 2 + 1 = 4; two groups: 3 channels meet each filter. 2 * (2 * 8 * 4) * (3 * 4).
  CHECK(both([&] { return at::conv1d(x, w, b, 2, 1, 1, 2); }) == Pair(1536, 3072));
  const at::Tensor image = variable({1, 3, 8, 8}), patch = variable({5, 3, 4, 4});
  CHECK(both([&] { return at::conv2d(image, patch, {}, 4); }) == Pair(2 * 5 * 4 * 48, 4 * 5 * 4 * 48));
  const at::Tensor still = at::ones({1, 3, 8, 8});
  CHECK(both([&] { return at::conv2d(still, patch, {}, 4); }) == Pair(2 * 5 * 4 * 48, 2 * 5 * 4 * 48));
  const at::Tensor filters = variable({6, 2, 3});
  CHECK(both([&] { return at::conv_transpose1d(x, filters); }) == Pair(2 * 108 * 6, 4 * 108 * 6));
}

TEST_CASE("fused attention is counted by pairs") {
  const at::Tensor q = variable({2, 3, 16, 8}), k = variable({2, 3, 24, 8}), v = variable({2, 3, 24, 8});
  const int64_t product = 2 * 2 * 3 * 16 * 24 * 8;
  CHECK(both([&] { return at::scaled_dot_product_attention(q, k, v); }) == Pair(2 * product, 5 * product));
  // Causal: query i sees keys 0 .. i.
  const int64_t causal = 2 * 2 * 3 * (16 * 17 / 2) * 8;
  CHECK(both([&] { return at::scaled_dot_product_attention(q, k, v, {}, 0, true); }) == Pair(2 * causal, 5 * causal));
  // With dropout LibTorch's CPU falls back to products.
  const auto plain = both([&] { return at::scaled_dot_product_attention(q, k, v, {}, 0.5); });
  CHECK(plain == Pair(2 * product, 4 * product));
}

TEST_CASE("a training step of a small network") {
  const at::Tensor x = at::ones({10, 6}), first = variable({12, 6}), second = variable({4, 12});
  const auto forward = [&] { return at::linear(at::relu(at::linear(x, first)), second); };
  // 2 * 10 * 6 * 12 + 2 * 10 * 12 * 4; backward twice that without the gradient of x.
  CHECK(both(forward) == Pair(1440 + 960, 1440 + 2 * 960));
}

TEST_CASE("calls are those of operators, nested ones too") {
  const at::Tensor x = at::ones({3, 4}), w = at::ones({4, 5});
  const auto calls = [](const std::function<void()>& action) {
    const OpCounter counter;
    action();
    return counter.counts().calls;
  };
  CHECK(calls([] {}) == 0);
  CHECK(calls([&] { x.view({4, 3}); }) == 1);
  CHECK(calls([&] {
          at::neg(x);
          at::exp(x);
        }) == 2);
  // matmul calls mm, and mm a few that look at its arguments.
  CHECK(calls([&] { at::mm(x, w); }) >= 1);
  CHECK(calls([&] { at::matmul(x, w); }) == calls([&] { at::mm(x, w); }) + 1);
}

TEST_CASE("counters nest and end") {
  const at::Tensor x = at::ones({3, 4}), w = at::ones({4, 5});
  OpCounter outer;
  at::mm(x, w);
  {
    const OpCounter inner;
    at::mm(x, w);
    CHECK(inner.counts().flops == 120);
    CHECK(outer.counts().flops == 240);
  }
  at::mm(x, w);
  CHECK(outer.counts().flops == 360);
  const OpCounter fresh;
  CHECK(fresh.counts().flops == 0);
  CHECK(fresh.counts().calls == 0);
  std::vector<std::unique_ptr<OpCounter>> many;
  CHECK_THROWS_AS(
      [&] {
        for (int i = 0; i < 100; ++i) many.push_back(std::make_unique<OpCounter>());
      }(),
      InternalError);
}

TEST_CASE("values and sizes brought back to the host are counted") {
  const at::Tensor x = at::arange(6, at::kFloat);
  const auto reads = [](const std::function<void()>& action) {
    const OpCounter counter;
    action();
    return counter.counts().reads;
  };
  CHECK(reads([&] { static_cast<void>(x.sum().item<float>()); }) == 1);
  CHECK(reads([&] { static_cast<void>(x.masked_select(x > 2)); }) >= 1);
  CHECK(reads([&] { static_cast<void>(x.nonzero()); }) == 1);
  CHECK(reads([&] { static_cast<void>(x.equal(x)); }) == 1);
  CHECK(reads([&] { static_cast<void>((x * 2).softmax(0).argmax().add(1)); }) == 0);
}

}  // namespace xformer::op_counter_test
