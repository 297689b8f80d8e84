// explicit-sparse (attention-third 8).
#include <algorithm>

#include "attention/support.h"
#include "kernels/policy_scope.h"
#include "tensor/probe.h"

namespace xformer::attention::explicit_sparse_test {

using namespace support;

// Softmax over the keys whose score reaches the k-th largest, in loops; k = max(top_k, ceil(fraction keys)).
at::Tensor reference(const Inputs& in, const SequenceMask& mask, int64_t top_k, double fraction = 0) {
  const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(static_cast<double>(in.q.size(-1)));
  const auto s = scores.accessor<double, 4>();
  const auto open = [&](int64_t b, int64_t i, int64_t j) {
    return (!mask.causal || j <= i) && (mask.all_valid() || mask.key_valid[b][j].item<bool>());
  };
  const auto weight = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    std::vector<double> row;
    for (int64_t other = 0; other < in.k.size(2); ++other)
      if (open(b, i, other)) row.push_back(s[b][h][i][other]);
    std::sort(row.rbegin(), row.rend());
    const auto keys = static_cast<int64_t>(row.size());
    const int64_t k = std::max(top_k, static_cast<int64_t>(std::ceil(fraction * static_cast<double>(keys) - 1e-9)));
    return s[b][h][i][j] >= row[static_cast<size_t>(std::min(k, keys) - 1)] ? std::exp(s[b][h][i][j]) : 0;
  };
  return valid_rows(dense_attention(in.v, mask, in.q.size(2), weight), mask);
}

TEST_CASE("explicit-sparse equals its definition in loops, for ragged lengths, any length and fewer keys than k") {
  for (const bool causal : {false, true})
    for (const int64_t n : {1, 2, 7, 31})
      for (const int64_t k : {1, 3, 8})
        for (const double fraction : {0.0, 0.3}) {
          INFO("causal " << causal << " n " << n << " k " << k << " fraction " << fraction);
          const Inputs in = random_inputs(2, 2, n, 5);
          const BuiltCore core =
              make_core("explicit-sparse", {{"top_k", k}, {"top_fraction", fraction}}, {.causal = causal});
          for (const SequenceMask& mask : ragged_masks(n, causal))
            CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask), reference(in, mask, k, fraction)) <
                  1e-10);
        }
}

TEST_CASE("lists of the best keys say the same as weights of all pairs, where keys are many or few, like or unlike") {
  for (const bool causal : {false, true})
    for (const int64_t n : {15, 16, 17, 90, 300})
      for (const double fraction : {0.0, 0.2})
        for (const bool alike : {false, true}) {
          INFO("causal " << causal << " n " << n << " fraction " << fraction << " alike " << alike);
          Inputs in = random_inputs(2, 2, n, 4);                      // scaled by a half, which rounds nothing
          if (alike) in.q = at::round(in.q), in.k = at::round(in.k);  // many ties
          const BuiltCore core =
              make_core("explicit-sparse", {{"top_k", 8}, {"top_fraction", fraction}}, {.causal = causal});
          for (const SequenceMask& mask : ragged_masks(n, causal)) {
            const at::Tensor got = valid_rows(core(in.q, in.k, in.v, mask), mask);
            const kernels::PolicyScope definition(kernels::Policy::kReference);
            CHECK(max_difference(got, valid_rows(core(in.q, in.k, in.v, mask), mask)) < 1e-12);
          }
        }
}

TEST_CASE("explicit-sparse golden numbers: one key is the best one's value, ties stay") {
  const at::Tensor q = column({1, -1, 1}), k = column({0, 2, 1}), v = column({3, 5, 7});
  const at::Tensor best = make_core("explicit-sparse", {{"top_k", 1}}, {.heads = 1, .head_dim = 1})(q, k, v).flatten();
  CHECK(max_difference(best, at::tensor({5.0, 3.0, 5.0}, at::kDouble)) < 1e-12);
  // Six equal scores are six second largest ones: all stay.
  const at::Tensor equal = make_core("explicit-sparse", {{"top_k", 2}}, {.heads = 1, .head_dim = 1})(
      column({1, 1, 1, 1, 1, 1}), column({4, 4, 4, 4, 4, 4}), column({0, 1, 2, 3, 4, 5}));
  CHECK(max_difference(equal.flatten(), at::full({6}, 2.5, at::kDouble)) < 1e-12);
}

TEST_CASE("keys that are not kept get no gradient, and scaling keys keeps the same ones") {
  Inputs in = random_inputs(1, 1, 20, 5);
  const BuiltCore core = make_core("explicit-sparse", {{"top_k", 3}}, {.heads = 1});
  const auto kept = [&] {
    const ProbeRecorder recorder([](const std::string& name) { return name == "weights"; });
    (void)core(in.q, in.k, in.v);
    return recorder.kept().front().second.detach()[0][0].gt(0);
  };
  const at::Tensor chosen = kept();
  CHECK(at::equal(chosen.sum(-1), at::full({20}, 3, at::kLong)));
  in.k.requires_grad_(true), in.v.requires_grad_(true);
  core(in.q, in.k, in.v).select(2, 4).square().sum().backward();
  const at::Tensor moved = at::cat({in.k.grad(), in.v.grad()}, -1).abs().amax(-1)[0][0];
  for (int64_t j = 0; j < 20; ++j) CHECK((moved[j].item<double>() == 0) == !chosen[4][j].item<bool>());
  in.k = in.k.detach() * 7;
  CHECK(at::equal(kept(), chosen));
}

TEST_CASE("explicit-sparse multiplies all pairs and asks for k of the second products; it has no parameters") {
  const auto cost = [](bool causal) {
    return make_core("explicit-sparse", {{"top_k", 8}}, {.causal = causal}).module->cost({3, 2, 100, 100, 5});
  };
  CHECK(cost(false).flops_executed == 2.0 * 6 * 5 * (10000 + 2 * 800));
  CHECK(cost(false).flops_pattern == 2.0 * 6 * 5 * (10000 + 800));
  CHECK(cost(true).flops_pattern == 2.0 * 6 * 5 * (5050 + 36 + 92 * 8));  // the first eight rows keep 1 to 8
  CHECK(parameters_of("explicit-sparse") == 16640);
}

}  // namespace xformer::attention::explicit_sparse_test
