// none (attention-core 3.19).
#include "attention/support.h"

namespace xformer::attention::none_test {

using namespace support;

TEST_CASE("none returns the values, and zero at padded positions, whatever queries and keys are") {
  for (const bool causal : {false, true}) {
    const BuiltCore core = make_core("none", {}, {.causal = causal});
    const Inputs in = random_inputs(2, 2, 48, 5), other = random_inputs(2, 2, 48, 5, "other");
    const SequenceMask mask = length_mask({48, 31}, 48, causal);
    CHECK(at::equal(core(in.q, in.k, in.v, mask), valid_rows(in.v, mask)));
    CHECK(at::equal(core(other.q, other.k, in.v, mask), valid_rows(in.v, mask)));
    CHECK(at::equal(core(in.q, in.k, in.v, {{}, causal}), in.v));
    const Inputs one = random_inputs(2, 2, 1, 5);
    CHECK(at::equal(core(one.q, one.k, one.v, {{}, causal}), one.v));
  }
}

TEST_CASE("none hands values their gradient, and queries and keys none, so that nothing is multiplied with zeros") {
  Inputs in = random_inputs(2, 2, 6, 5);
  for (at::Tensor* x : {&in.q, &in.k, &in.v}) x->requires_grad_(true);
  const SequenceMask mask = length_mask({6, 4}, 6);
  make_core("none")(in.q, in.k, in.v, mask).sum().backward();
  for (const at::Tensor& x : {in.q, in.k}) CHECK_FALSE(x.grad().defined());
  CHECK(at::equal(in.v.grad(), valid_rows(at::ones_like(in.v), mask)));
}

TEST_CASE("none costs its projections only, and has those of softmax") {
  const Setup setup{.heads = 2, .head_dim = 32, .max_len = 2048};
  const auto count = [&](const std::string& name) {
    int64_t result = 0;
    for (const auto& [key, value] : make_mixer(name, {}, setup).parameters()) result += value.numel();
    return result;
  };
  CHECK(count("none") == 16640);
  CHECK(count("softmax") == 16640);
  CHECK(make_mixer("none", {}, setup).module->cost(3, 100).flops_executed == 8.0 * 3 * 100 * 64 * 64);
}

}  // namespace xformer::attention::none_test
