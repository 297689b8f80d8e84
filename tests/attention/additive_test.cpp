// additive (Bahdanau et al. 2015).
#include "attention/support.h"

namespace xformer::attention::additive_test {

using namespace support;

at::Tensor weight_of(const BuiltCore& core) { return core.module->named_parameters()["score_weight"].detach(); }

// The equations in loops over pairs of tokens and channels.
at::Tensor reference(const Inputs& in, const SequenceMask& mask, const at::Tensor& score_weight) {
  const auto q = in.q.accessor<double, 4>(), k = in.k.accessor<double, 4>();
  const auto w = score_weight.accessor<double, 2>();
  const auto weight = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    double score = 0;
    for (int64_t c = 0; c < in.q.size(3); ++c) score += w[h][c] * std::tanh(q[b][h][i][c] + k[b][h][j][c]);
    return std::exp(score);
  };
  return valid_rows(dense_attention(in.v, mask, in.q.size(2), weight), mask);
}

TEST_CASE("additive equals its equations in loops, for ragged lengths, any length and length 1") {
  for (const bool causal : {false, true})
    for (const int64_t n : {1, 2, 17, 48}) {
      INFO("causal " << causal << " n " << n);
      const Inputs in = random_inputs(2, 2, n, 5);
      const BuiltCore core = make_core("additive", {}, {.causal = causal});
      for (const SequenceMask& mask : ragged_masks(n, causal))
        CHECK(max_difference(core(in.q, in.k, in.v, mask), reference(in, mask, weight_of(core))) < 1e-10);
    }
}

TEST_CASE("additive golden numbers") {
  // tanh(0) = 0 and tanh(q + k) = 1/2 for q + k = ln(3) / 2; w = 2 ln 3: weights 1 and 3 on 0 and 4.
  const BuiltCore core = make_core("additive", {}, {.heads = 1, .head_dim = 1});
  core.module->named_parameters()["score_weight"].data().fill_(2 * std::log(3.0));
  const at::Tensor out = core(column({0.3, 0.3}), column({-0.3, std::log(3.0) / 2 - 0.3}), column({0, 4}));
  CHECK(max_difference(out.flatten(), at::tensor({3.0, 3.0}, at::kDouble)) < 1e-12);
}

TEST_CASE("what is added to queries and taken from keys changes nothing, and w = 0 gives the mean") {
  const Inputs in = random_inputs(2, 2, 30, 5);
  const BuiltCore core = make_core("additive");
  const SequenceMask mask = length_mask({30, 11}, 30);
  const at::Tensor shift = random_tensor("shift", {1, 2, 1, 5}), out = core(in.q, in.k, in.v, mask);
  CHECK(max_difference(core(in.q + shift, in.k - shift, in.v, mask), out) < 1e-10);
  core.module->named_parameters()["score_weight"].data().zero_();
  const at::Tensor flat = core(in.q, in.k, in.v, mask);
  CHECK(max_difference(flat[0], in.v[0].mean(1, true).expand({2, 30, 5})) < 1e-10);
  CHECK(max_difference(flat[1].narrow(1, 0, 11), in.v[1].narrow(1, 0, 11).mean(1, true).expand({2, 11, 5})) < 1e-10);
}

TEST_CASE("small queries and keys leave every row with the softmax of w k") {
  const Inputs in = random_inputs(1, 2, 20, 5);
  const BuiltCore core = make_core("additive");
  const at::Tensor scores = at::matmul(in.k, weight_of(core).unsqueeze(0).unsqueeze(-1)).transpose(2, 3);  // [1,2,1,20]
  const auto apart = [&](double scale) {
    const at::Tensor meant = at::matmul(at::softmax(scores * scale, -1), in.v).expand({1, 2, 20, 5});
    return max_difference(core(in.q * scale, in.k * scale, in.v), meant);
  };
  CHECK(apart(0.01) < 1e-4);
  CHECK(apart(0.01) < apart(0.1) / 50);
}

TEST_CASE("additive counts 4 d for each pair that its tiles read, and has a weight for each channel") {
  const auto cost = [](bool causal) {
    return make_core("additive", {}, {.causal = causal}).module->cost({3, 2, 100, 100, 5});
  };
  CHECK(cost(false).flops_executed == 4.0 * 6 * 5 * 10000);
  CHECK(cost(true).flops_pattern == 4.0 * 6 * 5 * 5050);
  CHECK(cost(true).flops_executed < 4.0 * 6 * 5 * 5050 * 1.2);
  CHECK(cost(false).peak_elements == 2 * make_core("additive").module->cost({3, 2, 50, 50, 5}).peak_elements);
  CHECK(parameters_of("additive") == 16704);
}

}  // namespace xformer::attention::additive_test
