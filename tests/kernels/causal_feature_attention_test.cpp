// The causal form of fused feature attention, chunk by chunk and block by block.
#include <ATen/Parallel.h>

#include "feature_attention_support.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

TEST_CASE("causal feature attention: the last row of a prefix is what the bidirectional form gives it") {
  const at::Tensor x = random_tensor("x", {2, 2, 530, 8});
  for (const Form form : kForms) {
    FeatureAttentionOptions options = options_of(form, 8, 24, at::kDouble);
    options.mask.causal = true;
    const at::Tensor out = feature_attention(x, x, x, options);
    options.mask.causal = false;
    for (const int64_t length : {1, 15, 16, 17, 33, 64, 170, 256, 257, 512, 530}) {
      const at::Tensor prefix = x.narrow(2, 0, length);
      CHECK(difference(out.select(2, length - 1),
                       feature_attention(prefix, prefix, prefix, options).select(2, length - 1)) < 1e-12);
    }
  }
}

TEST_CASE("causal feature attention: no output depends on a later token, and no gradient on an earlier row") {
  constexpr int64_t kLength = 300;
  const at::Tensor x = random_tensor("x", {1, 2, kLength, 8}, at::kFloat),
                   other = random_tensor("y", {1, 2, kLength, 8}, at::kFloat);
  for (const Form form : kForms) {
    FeatureAttentionOptions options = options_of(form, 8, 24, at::kFloat);
    options.mask.causal = true;
    const at::Tensor out = feature_attention(x, x, x, options);
    for (const int64_t first : {1, 16, 45, 100, 256, 270}) {
      const at::Tensor changed = at::cat({x.narrow(2, 0, first), 30 * other.narrow(2, first, kLength - first)}, 2);
      CHECK(at::equal(feature_attention(changed, changed, changed, options).narrow(2, 0, first),
                      out.narrow(2, 0, first)));
      Tensors leaves;
      for (int i = 0; i < 3; ++i) leaves.push_back(x.detach().clone().requires_grad_(true));
      feature_attention(leaves[0], leaves[1], leaves[2], options).narrow(2, 0, first).square().sum().backward();
      for (const at::Tensor& leaf : leaves)
        CHECK(leaf.grad().narrow(2, first, kLength - first).abs().sum().item<double>() == 0);
    }
  }
}

TEST_CASE("causal feature attention: what gives a row its largest score may lie in an earlier block") {
  // The largest score stands early and comes again, equal and not, in later blocks.
  FeatureAttentionOptions options = options_of(Form::kSoftmax, 8, 32, at::kDouble);
  options.mask.causal = true;
  options.mask.key_valid = at::ones({2, 700}, at::kBool);
  options.mask.key_valid[1][13] = false;
  Tensors inputs = inputs_of({2, 2, 700, 700, 8, 8, 32}, at::kDouble);
  for (const int64_t place : {13, 255, 300, 520}) {
    inputs[1].select(2, place).copy_(options.omega[5] * (place == 520 ? 4 : 3));
    inputs[2].select(2, place).fill_(1);
  }
  CHECK(worst_difference(fused(options), reference(options), inputs) < 1e-11);
  CHECK(is_near_in_float(options, inputs));
}

TEST_CASE("causal feature attention: NaN of one sample reaches no other that is computed behind it") {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  for (const Form form : kForms) {
    FeatureAttentionOptions options = options_of(form, 4, 12, at::kFloat);
    options.mask.causal = true;
    Tensors inputs = inputs_of({2, 1, 40, 40, 4, 4, 12}, at::kFloat);
    // Fewer keys than rows in chunks that are not the last, and a last chunk that is not full.
    options.mask.key_valid = at::arange(40).lt(5).unsqueeze(0).repeat({2, 1});
    const Tensors meant = run_with_gradients(fused(options), inputs);
    for (at::Tensor& input : inputs) input[0].fill_(NAN);
    options.mask.key_valid[0].fill_(true);
    const Tensors got = run_with_gradients(fused(options), inputs);
    for (size_t i = 0; i < got.size(); ++i) CHECK(at::equal(got[i][1], meant[i][1]));
    CHECK(got[0][0].isnan().all().item<bool>());
  }
  at::set_num_threads(before);
}

TEST_CASE("causal feature attention multiplies a chunk with itself and every row with the table once") {
  const auto flops = [&](int64_t n, const FeatureAttentionOptions& options) {
    const at::Tensor x = random_tensor("x", {1, 2, n, 8}, at::kFloat);
    const OpCounter counter;
    static_cast<void>(feature_attention(x, x, x, options));
    return counter.counts().flops;
  };
  for (const Form form : kForms) {
    FeatureAttentionOptions options = options_of(form, 8, 24, at::kFloat);
    options.mask.causal = true;
    const int64_t f = options.omega.defined() ? 24 : 8, columns = options.divisor > 0 ? 8 : 9;
    for (const int64_t n : {1, 16, 17, 70, 300}) {
      int64_t products = options.omega.defined() ? 2 * n * 8 * f : 0;
      for (int64_t first = 0; first < n; first += kCausalRows) {
        const int64_t rows = std::min(kCausalRows, n - first);
        products += rows * rows * (f + 8) + rows * f * columns * ((first > 0) + (first + rows < n));
      }
      CHECK(flops(n, options) == 2 * 2 * products);
    }
  }
}

}  // namespace xformer::kernels
