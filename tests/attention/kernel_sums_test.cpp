// Causal sums of kernel attention in chunks.
#include "attention/shared/kernel_sums.h"

#include "attention/support.h"
#include "tensor/op_counter.h"

namespace xformer::attention::kernel_sums_test {

using namespace support;

at::Tensor reference(const at::Tensor& phi_q, const at::Tensor& phi_k, const at::Tensor& values, const at::Tensor& s) {
  at::Tensor out = at::zeros_like(values);
  for (int64_t i = 0; i < values.size(2); ++i)
    for (int64_t j = 0; j <= i; ++j) {
      at::Tensor weight = (phi_q.select(2, i) * phi_k.select(2, j)).sum(-1, true);  // [b,h,1]
      if (s.defined()) weight = weight * at::exp(s.select(2, j) - s.select(2, i));
      out.select(2, i) += weight * values.select(2, j);
    }
  return out;
}

TEST_CASE("causal kernel sums equal the loop over earlier rows at any length, and cost what is said") {
  for (const int64_t n : {1, 2, 63, 64, 65, 200}) {
    const at::Tensor q = random_tensor("phi_q", {2, 2, n, 3}), k = random_tensor("phi_k", {2, 2, n, 3});
    const at::Tensor values = random_tensor("values", {2, 2, n, 4});
    const at::Tensor rising = random_tensor("steps", {2, 2, n, 1}).abs().cumsum(2);
    for (const bool scaled : {false, true}) {
      const at::Tensor s = scaled ? rising : at::Tensor();
      const OpCounter counter;
      const at::Tensor out = causal_kernel_sums(q, k, values, s);
      CHECK(static_cast<double>(counter.counts().flops) == kernel_sums_flops({2, 2, n, n, 3}, 3, 4, true));
      CHECK(max_difference(out, reference(q, k, values, s)) < 1e-10);
    }
  }
}

TEST_CASE("causal kernel sums stay finite while the scale climbs from nothing to far beyond exp's range") {
  const int64_t n = 150;
  const at::Tensor q = random_tensor("phi_q", {1, 1, n, 3}).requires_grad_(true),
                   values = random_tensor("values", {1, 1, n, 4});
  at::Tensor s = at::linspace(0, 5000, n, at::kDouble).view({1, 1, n, 1});
  s.narrow(2, 0, 10).fill_(-1e30);
  s.requires_grad_(true);
  const at::Tensor out = causal_kernel_sums(q, q, values, s);
  CHECK(max_difference(out.detach(), reference(q, q, values, s).detach()) < 1e-10);
  out.sum().backward();
  CHECK(q.grad().isfinite().all().item<bool>());
  CHECK(s.grad().isfinite().all().item<bool>());
}

TEST_CASE("values and count: padded rows are zero, the last column counts") {
  const at::Tensor v = random_tensor("values", {2, 3, 5, 4});
  const SequenceMask mask = length_mask({5, 2}, 5);
  const at::Tensor both = values_and_count(v, mask);
  CHECK(both.sizes() == at::IntArrayRef({2, 3, 5, 5}));
  CHECK(at::equal(both.narrow(-1, 0, 4), valid_rows(v, mask)));
  CHECK(at::equal(both.select(-1, 4).sum(-1), at::tensor({5., 5., 5., 2., 2., 2.}, at::kDouble).view({2, 3})));
  CHECK(at::equal(values_and_count(v, {}), values_and_count(v, length_mask({5, 5}, 5))));
}

}  // namespace xformer::attention::kernel_sums_test
