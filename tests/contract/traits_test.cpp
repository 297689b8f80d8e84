// Every trait that `describe` prints, against what the attention does.
#include <ATen/Context.h>

#include <algorithm>

#include "contract/claims.h"

namespace xformer::attention::contract {

namespace {

struct Trained : BuiltMixer {
  std::shared_ptr<kernels::DropoutStream> stream;
};

Trained trained(const std::string& name, double dropout) {
  const Resolved attention = resolve(name);
  const BuildContext context = make_context({.dropout = dropout});
  Trained result{{{build_any(attention, full_options(attention, kSmall), context), context.shared}},
                 context.dropout_stream};
  result.module->to(at::kDouble);
  result.shared->to(at::kDouble);
  return result;
}

std::vector<std::vector<int64_t>> shapes(const std::string& name, int64_t max_len) {
  std::vector<std::vector<int64_t>> result;
  for (const auto& [key, tensor] : make_mixer(name, kSmall, {.max_len = max_len}).state())
    result.push_back(tensor.sizes().vec());
  return result;
}

bool takes(const std::string& name, int64_t max_len, int64_t length) {
  try {
    (void)make_mixer(name, kSmall, {.max_len = max_len})(tokens(1, length));
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace

TEST_CASE("every trait is held by those who claim it, and by them alone") {
  for_each_name([](const std::string& name, const Claims& claims) {
    // A trait more does not compile: then its check belongs here.
    const auto [causal_ok, cross_ok, stochastic, fixed_length, carries, library_dropout] = resolve(name).traits();
    // What these mean has tests of its own in this folder.
    CHECK(causal_ok == claims.causal);
    if (cross_ok) CHECK(resolve(name).base->build_core);

    const at::Tensor x = tokens(2, 48);
    Trained mixer = trained(name, 0);
    const auto at_step = [&](bool training, int64_t step) {
      mixer.module->train(training);
      mixer.stream->set_step(step);
      return mixer(x).detach();
    };
    CHECK(at::equal(at_step(true, 1), at_step(true, 1)));
    CHECK(at::equal(at_step(true, 1), at_step(true, 2)) == !stochastic);

    CHECK(fixed_length == (shapes(name, 48) != shapes(name, 96) || !takes(name, 48, 96)));

    Carry carry;
    (void)mixer.module->forward(x, {}, carry);
    CHECK(carry.empty() == !carries);

    CHECK_FALSE(library_dropout);  // of a script of one's own alone
    Trained dropping = trained(name, 0.5);
    dropping.module->train();
    const auto with_seed = [&](uint64_t seed) {
      dropping.stream->set_step(1);
      at::manual_seed(seed);
      return dropping(x).detach();
    };
    CHECK(at::equal(with_seed(1), with_seed(2)));
  });
}

}  // namespace xformer::attention::contract
