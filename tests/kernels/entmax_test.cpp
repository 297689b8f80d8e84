// alpha-entmax by rows against its definition: outputs and gradients, over powers, lengths and rows without a key. The
// exact solutions by sorting and bisection are in tests/attention/entmax_test.cpp.
#include "kernels/entmax/entmax.h"

#include "fused_support.h"

namespace xformer::kernels::entmax_test {

// Scores of which the last keys of some rows are closed, and of the last row all.
at::Tensor scores_of(int64_t keys, double spread, at::ScalarType type) {
  at::Tensor scores = random_tensor("scores", {2, 3, 5, keys}, type) * spread;
  if (keys > 3) scores[0].narrow(-1, keys / 2, keys - keys / 2).fill_(-1e30);
  scores[1][2][4].fill_(-1e30);
  return scores;
}

TEST_CASE("entmax fused equals its definition, with gradients of scores and alpha") {
  for (const at::ScalarType type : {at::kDouble, at::kFloat})
    for (const int64_t keys : {1, 2, 31, 32, 70, 1000})
      for (const double spread : {0.5, 4.0})
        for (const double fixed : {0.0, 1.5, 2.0}) {
          INFO("keys " << keys << " spread " << spread << " alpha " << fixed << " double " << (type == at::kDouble));
          const EntmaxOptions options{fixed, -1e29};
          const at::Tensor alpha = fixed != 0 ? at::full({1}, fixed, type) : at::tensor({1.05, 1.4, 1.9}, type);
          const auto with = [&](const auto& made) {
            return [&, made](const Tensors& x) { return Tensors{made(x[0], fixed != 0 ? alpha : x[1], options)}; };
          };
          Tensors in{scores_of(keys, spread, type)};
          if (fixed == 0) in.push_back(alpha);
          const double bound = type == at::kDouble ? 1e-9 : keys == 1 ? 1e-3 : 2e-4;
          CHECK(worst_difference(with(entmax), with(entmax_reference), in) < bound);
        }
}

TEST_CASE("rows of entmax sum to 1 in float, and to nothing without a key") {
  for (const double fixed : {0.0, 1.5, 2.0}) {
    const at::Tensor alpha = fixed != 0 ? at::full({1}, fixed, at::kFloat) : at::tensor({1.01F, 1.3F, 2.0F});
    const at::Tensor sums = entmax(scores_of(300, 2, at::kFloat), alpha, {fixed, -1e29}).sum(-1);
    CHECK(sums[1][2][4].item<float>() == 0);
    CHECK((sums[0] - 1).abs().max().item<float>() < 1e-5);
  }
}

}  // namespace xformer::kernels::entmax_test
