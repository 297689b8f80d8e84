// Projections around a core (Vaswani et al. 2017, section 3.2.2), their initial values (attention-core 0.9), and what
// layers share.
#include "attention/multi_head.h"

#include <ATen/autocast_mode.h>

#include "attention/support.h"

namespace xformer::attention::multi_head_test {

using namespace support;

TEST_CASE("multi-head attention is the core between four linear maps, heads side by side") {
  const BuiltMixer mixer = make_mixer("softmax");
  const BuiltCore core = make_core("softmax");
  const auto parameters = mixer.module->named_parameters();
  const at::Tensor x = random_tensor("x", {2, 9, 10});
  const SequenceMask mask = length_mask({9, 4}, 9);
  const auto map = [&](const std::string& name, const at::Tensor& rows) {
    return at::matmul(rows, parameters[name + ".weight"].t()) + parameters[name + ".bias"];
  };
  const auto heads = [&](const std::string& name) {  // columns 0 .. 4 are head 0
    const at::Tensor rows = map(name, x);
    return at::stack({rows.narrow(2, 0, 5), rows.narrow(2, 5, 5)}, 1);
  };
  const at::Tensor mixed = valid_rows(core(heads("query"), heads("key"), heads("value"), mask), mask);
  const at::Tensor wanted = map("out", at::cat({mixed.select(1, 0), mixed.select(1, 1)}, -1));
  CHECK(max_difference(mixer(x, mask), wanted) < 1e-12);
}

TEST_CASE("projections hold 16640 numbers at width 64") {
  int64_t count = 0;
  for (const auto& [name, value] : make_mixer("softmax", {}, {.heads = 2, .head_dim = 32}).parameters())
    count += value.numel();
  CHECK(count == 16640);  // attention-core 7: 4 (64 * 64 + 64)
}

TEST_CASE("initial values follow the scheme: mlpen U(+-1/sqrt(in)) with bias, glra Xavier with none") {
  const Linear mlpen(64, 256, true, "mlpen", InitStream(1)), glra(64, 256, false, "glra", InitStream(1));
  CHECK(mlpen.weight.abs().max().item<double>() == Approx(0.125).epsilon(1e-3));
  CHECK(mlpen.bias.abs().max().item<double>() == Approx(0.125).epsilon(0.05));
  CHECK(glra.weight.abs().max().item<double>() == Approx(std::sqrt(6.0 / 320)).epsilon(1e-3));
  CHECK_FALSE(glra.bias.defined());
  // No two maps of a layer share numbers.
  const BuiltMixer mixer = make_mixer("softmax");
  const auto parameters = mixer.module->named_parameters();
  CHECK_FALSE(at::equal(parameters["query.weight"], parameters["key.weight"]));
}

TEST_CASE("the core computes in float32 when the layer does in bfloat16") {
  const BuiltMixer mixer = make_mixer("softmax", {}, {.type = at::kFloat});
  mixer.module->to(at::kBFloat16);
  const at::Tensor x = random_tensor("x", {2, 9, 10}).to(at::kBFloat16);
  // The output map meets a float32 tensor: only autocast brings it down again.
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor out = mixer(x);
  CHECK(at::autocast::is_autocast_enabled(at::kCPU));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK(out.scalar_type() == at::kBFloat16);
  CHECK(out.isfinite().all().item<bool>());
}

}  // namespace xformer::attention::multi_head_test
