// Products of batches of matrices against sums in double: every layout that attention hands over, shared factors,
// gradients and where they lie, what is counted, and when LibTorch multiplies instead.
#include "kernels/batched_product/batched_product.h"

#include <ATen/Parallel.h>

#include "fused_support.h"
#include "kernels/policy.h"
#include "policy_scope.h"
#include "tensor/autocast.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::batched_product_test {

// Factors as views of what the leaves hold.
struct Case {
  std::string name;
  Tensors leaves;
  std::function<Tensors(const Tensors&)> factors;
};

std::vector<Case> all_cases(at::ScalarType type) {
  const auto drawn = [type](const char* name, at::IntArrayRef shape) { return random_tensor(name, shape, type); };
  const auto turned = [](const at::Tensor& x) { return x.transpose(-1, -2); };
  const auto heads = [](const at::Tensor& x) { return x.transpose(1, 2); };
  std::vector<Case> cases;
  const auto add = [&](const char* name, const at::Tensor& a, const at::Tensor& b, const auto& views) {
    cases.push_back({name, {a, b}, views});
  };
  const auto plain = [](const Tensors& x) { return x; };
  add("three dimensions", drawn("a", {3, 50, 40}), drawn("b", {3, 40, 35}), plain);
  add("several tiles, no multiple of any", drawn("a", {2, 2, 300, 33}), drawn("b", {2, 2, 33, 270}), plain);
  add("heads between tokens, keys turned", drawn("q", {2, 70, 3, 32}), drawn("k", {2, 90, 3, 32}),
      [=](const Tensors& x) {
        return Tensors{heads(x[0]), turned(heads(x[1]))};
      });
  add("weights and values", drawn("w", {2, 3, 70, 600}), drawn("v", {2, 600, 3, 32}), [=](const Tensors& x) {
    return Tensors{x[0], heads(x[1])};
  });
  add("both turned", drawn("a", {2, 50, 40}), drawn("b", {2, 50, 50}), [=](const Tensors& x) {
    return Tensors{turned(x[0]), turned(x[1])};
  });
  add("one matrix for a whole batch", drawn("a", {1, 3, 50, 60}), drawn("b", {4, 3, 60, 40}), plain);
  add("one for all heads, on the other side", drawn("a", {4, 3, 40, 60}), drawn("b", {4, 1, 60, 50}), plain);
  add("each for many", drawn("a", {4, 1, 2, 40, 60}), drawn("b", {1, 3, 2, 60, 50}), plain);
  add("a large one for a whole batch", drawn("a", {1, 2, 400, 500}), drawn("b", {2, 2, 500, 32}), plain);
  add("an expanded view", drawn("a", {1, 3, 50, 60}), drawn("b", {4, 3, 60, 40}), [](const Tensors& x) {
    return Tensors{x[0].expand({4, -1, -1, -1}), x[1]};
  });
  add("windows that overlap", drawn("q", {2, 3, 4, 48, 40}), drawn("k", {2, 3, 96, 40}), [=](const Tensors& x) {
    return Tensors{x[0], x[1].unfold(2, 48, 16)};
  });
  add("elements apart", drawn("a", {2, 50, 80}), drawn("b", {2, 40, 90}), [](const Tensors& x) {
    return Tensors{x[0].slice(2, 0, 80, 2), x[1].slice(2, 0, 90, 2)};
  });
  add("one row for all", drawn("a", {2, 1, 600}), drawn("b", {2, 600, 32}), [](const Tensors& x) {
    return Tensors{x[0].expand({2, 40, 600}), x[1]};
  });
  return cases;
}

TensorFunction fused(const Case& one) {
  return [factors = one.factors](const Tensors& leaves) {
    const Tensors x = factors(leaves);
    return Tensors{batched_product(x[0], x[1])};
  };
}

// One sum an element, by hand, as a product of matrices in double is what is tested.
TensorFunction by_definition(const Case& one) {
  return [factors = one.factors](const Tensors& leaves) {
    const Tensors x = factors(leaves);
    return Tensors{(x[0].unsqueeze(-1) * x[1].unsqueeze(-3)).sum(-2)};
  };
}

TEST_CASE("batched products are their definition however factors lie, with gradients", "[batched_product]") {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (const Case& one : all_cases(type)) {
      INFO(one.name);
      reset_backends();
      Tensors wide;
      for (const at::Tensor& leaf : one.leaves) wide.push_back(leaf.to(at::kDouble));
      const Tensors got = run_with_gradients(fused(one), one.leaves),
                    meant = run_with_gradients(by_definition(one), wide);
      CHECK(backends_run().at("batched_product") == "fused-cpu");
      CHECK(got[0].is_contiguous());
      // The gradients of the output are the same numbers, rounded where it is float.
      for (size_t i = 0; i < got.size(); ++i)
        CHECK(difference(got[i].to(at::kDouble), meant[i]) < (type == at::kDouble ? 1e-12 : 2e-5));
    }
  }
}

TEST_CASE("gradients of a batched product lie in memory as its factors do", "[batched_product]") {
  const at::Tensor q = random_tensor("q", {2, 70, 3, 32}).transpose(1, 2).requires_grad_(true);
  const at::Tensor k = random_tensor("k", {2, 90, 3, 32}).transpose(1, 2).transpose(2, 3).requires_grad_(true);
  const Tensors found = torch::autograd::grad({batched_product(q, k)}, {q, k}, {at::ones({2, 3, 70, 90}, at::kDouble)});
  CHECK(found[0].strides() == q.strides());
  CHECK(found[1].strides() == k.strides());
}

TEST_CASE("a batched product counts as at::matmul does, and a factor without a gradient costs none",
          "[batched_product]") {
  const at::Tensor a = random_tensor("a", {2, 3, 50, 60}), b = random_tensor("b", {2, 3, 60, 40});
  constexpr int64_t kProduct = int64_t{2} * 6 * 50 * 60 * 40;
  const auto flops = [](const auto& work) {
    const OpCounter counter;
    work();
    return counter.counts().flops;
  };
  CHECK(flops([&] { (void)batched_product(a, b); }) == kProduct);
  CHECK(flops([&] { (void)at::matmul(a, b); }) == kProduct);
  for (const bool first : {true, false}) {
    const at::Tensor x = a.detach().requires_grad_(first), y = b.detach().requires_grad_(!first);
    const at::Tensor out = batched_product(x, y).sum();
    CHECK(flops([&] { out.backward(); }) == kProduct);
    CHECK(x.grad().defined() == first);
    CHECK(y.grad().defined() == !first);
  }
}

TEST_CASE("batched products are the same bits on any number of threads", "[batched_product]") {
  const int before = at::get_num_threads();
  for (const Case& one : all_cases(at::kFloat)) {
    INFO(one.name);
    at::set_num_threads(1);
    const Tensors alone = run_with_gradients(fused(one), one.leaves);
    at::set_num_threads(5);
    const Tensors five = run_with_gradients(fused(one), one.leaves);
    for (size_t i = 0; i < alone.size(); ++i) CHECK(at::equal(alone[i], five[i]));
  }
  at::set_num_threads(before);
}

TEST_CASE("LibTorch multiplies small matrices, empty ones and what is no type of ours", "[batched_product]") {
  const auto ran = [](const at::Tensor& a, const at::Tensor& b) {
    reset_backends();
    const at::Tensor got = batched_product(a, b);
    CHECK(at::equal(got, at::matmul(a, b)));
    return backends_run().at("batched_product");
  };
  CHECK(ran(random_tensor("a", {9, 16, 64}), random_tensor("b", {9, 64, 64})) == "reference");
  CHECK(ran(random_tensor("a", {9, 8, 128}), random_tensor("b", {9, 128, 128})) == "reference");
  CHECK(ran(at::zeros({2, 0, 64}), at::zeros({2, 64, 64})) == "reference");
  CHECK(ran(at::ones({2, 64, 0}), at::ones({2, 0, 64})) == "reference");
  CHECK(ran(at::ones({2, 64, 64}, at::kLong), at::ones({2, 64, 64}, at::kLong)) == "reference");
  {
    const PolicyScope scope(Policy::kReference);
    CHECK(ran(at::ones({2, 64, 64}), at::ones({2, 64, 64})) == "reference");
  }
  const AutocastScope autocast(at::kCPU, at::kHalf);
  const at::Tensor half = batched_product(at::ones({2, 64, 64}), at::ones({2, 64, 64}));
  CHECK(half.scalar_type() == at::kHalf);
}

TEST_CASE("--kernels=check holds batched products against at::matmul", "[batched_product]") {
  const PolicyScope scope(Policy::kCheck);
  for (const Case& one : all_cases(at::kFloat)) {
    INFO(one.name);
    CHECK_NOTHROW(run_with_gradients(fused(one), one.leaves));
  }
}

}  // namespace xformer::kernels::batched_product_test
