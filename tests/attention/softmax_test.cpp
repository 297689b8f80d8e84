// softmax and softmax-fused (attention-core 2).
#include "attention/support.h"
#include "kernels/policy_scope.h"
#include "tensor/memory.h"

namespace xformer::attention::softmax_test {

using namespace support;

const std::vector<std::string> kNames = {"softmax", "softmax-fused"};

TEST_CASE("softmax equals equation 1 in loops, for ragged lengths and length 1") {
  for (const std::string& name : kNames)
    for (const bool causal : {false, true})
      for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{48, 31}, {1, 48}}) {
        INFO(name << " causal " << causal);
        const SequenceMask mask = length_mask(lengths, 48, causal);
        const Inputs in = random_inputs(2, 2, 48, 5);
        const BuiltCore core = make_core(name, {}, {.causal = causal});
        CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask),
                             valid_rows(dense_softmax(in, mask), mask)) < 1e-10);
        const Inputs one = random_inputs(2, 2, 1, 5);
        CHECK(max_difference(core(one.q, one.k, one.v, {{}, causal}), one.v) < 1e-12);
        CHECK(max_difference(core(in.q, in.k, in.v, {{}, causal}), dense_softmax(in, {{}, causal})) < 1e-10);
      }
}

TEST_CASE("softmax golden number") {
  // Scores 0 and ln 3 give weights 1/4 and 3/4: 1/4 * 0 + 3/4 * 4 = 3.
  for (const std::string& name : kNames) {
    const BuiltCore core = make_core(name, {}, {.heads = 1, .head_dim = 1});
    CHECK(core(column({1, 1}), column({0, std::log(3.0)}), column({0, 4}))[0][0][0][0].item<double>() == Approx(3));
  }
}

TEST_CASE("softmax takes queries and keys of different lengths") {
  for (const std::string& name : kNames) {
    const Inputs long_ones = random_inputs(2, 2, 9, 5), short_ones = random_inputs(2, 2, 4, 5, "other");
    const Inputs in{short_ones.q, long_ones.k, long_ones.v};
    const SequenceMask mask = length_mask({9, 6}, 9);
    CHECK(max_difference(make_core(name)(in.q, in.k, in.v, mask), dense_softmax(in, mask)) < 1e-10);
  }
}

TEST_CASE("softmax output lies between the smallest and the largest valid value") {
  for (const std::string& name : kNames) {
    const Inputs in = random_inputs(1, 2, 20, 5);
    const at::Tensor out = make_core(name)(in.q, in.k, in.v, length_mask({13}, 20));
    const at::Tensor valid = in.v.narrow(2, 0, 13);
    CHECK((out <= valid.amax(2, true)).all().item<bool>());
    CHECK((out >= valid.amin(2, true)).all().item<bool>());
  }
}

TEST_CASE("softmax ignores a constant vector added to all keys") {
  for (const std::string& name : kNames) {
    const Inputs in = random_inputs(1, 2, 20, 5);
    const BuiltCore core = make_core(name);
    const at::Tensor moved = in.k + random_tensor("shift", {1, 1, 1, 5});
    CHECK(max_difference(core(in.q, in.k, in.v), core(in.q, moved, in.v)) < 1e-12);
  }
}

TEST_CASE(
    "softmax rows that see no key are zero, with zero gradient, also before the first valid key of a causal row") {
  for (const std::string& name : kNames) {
    Inputs in = random_inputs(1, 1, 6, 5);
    SequenceMask mask{at::tensor({0, 0, 1, 1, 0, 1}).view({1, 6}) > 0, true};
    for (at::Tensor* x : {&in.q, &in.k, &in.v}) x->requires_grad_(true);
    const at::Tensor out = make_core(name, {}, {.heads = 1, .causal = true})(in.q, in.k, in.v, mask);
    CHECK(out.narrow(2, 0, 2).abs().max().item<double>() == 0);
    out.sum().backward();
    CHECK(in.q.grad().narrow(2, 0, 2).abs().max().item<double>() == 0);
    CHECK(in.v.grad().narrow(2, 0, 2).abs().max().item<double>() == 0);
    CHECK(in.k.grad().isfinite().all().item<bool>());
  }
}

TEST_CASE("softmax-fused names the backend that ran") {
  const Inputs in = random_inputs(2, 2, 8, 5);
  const BuiltCore plain = make_core("softmax-fused");
  (void)plain(in.q, in.k, in.v);
  CHECK(plain.module->backend().starts_with("fused-cpu in "));
  CHECK(make_core("softmax").module->backend() == "explicit");
  const BuiltCore dropping = make_core("softmax-fused", {}, {.dropout = 0.5});
  dropping.module->train();
  (void)dropping(in.q, in.k, in.v);
  CHECK(dropping.module->backend() == "fused-cpu in training");
  for (const kernels::Policy policy : {kernels::Policy::kReference, kernels::Policy::kComposite}) {
    const kernels::PolicyScope scope(policy);
    const BuiltCore told = make_core("softmax-fused");
    (void)told(in.q, in.k, in.v);
    CHECK(told.module->backend().starts_with("reference in "));
  }
}

TEST_CASE("softmax-fused drops what softmax drops") {
  const Inputs in = random_inputs(2, 2, 70, 5);
  const SequenceMask mask = length_mask({70, 33}, 70);
  const auto run = [&](const char* name) {
    const BuiltCore core = make_core(name, {}, {.dropout = 0.4});
    core.module->train();
    return valid_rows(core(in.q, in.k, in.v, mask), mask);
  };
  CHECK(max_difference(run("softmax-fused"), run("softmax")) < 1e-12);
}

TEST_CASE("softmax dropout depends on seed, step and layer, and on nothing that ran before") {
  for (const std::string& name : kNames) {
    INFO(name);
    const Inputs in = random_inputs(2, 2, 8, 5);
    const auto run = [&](uint64_t seed, int64_t step, int64_t calls_before, int64_t other_sites) {
      const Resolved attention = resolve(name);
      BuildContext context = make_context({.dropout = 0.5, .seed = seed});
      for (int64_t i = 0; i < other_sites; ++i) (void)context.make_dropout();
      const auto core = build_core(attention, Json::object(), context);
      Carry carry;
      for (int64_t i = 0; i < calls_before; ++i) (void)core->forward(in.q, in.k, in.v, {}, carry);
      context.dropout_stream->set_step(step);
      return core->forward(in.q, in.k, in.v, {}, carry);
    };
    const at::Tensor first = run(1, 5, 0, 0);
    CHECK(at::equal(first, run(1, 5, 3, 0)));
    CHECK_FALSE(at::equal(first, run(1, 6, 0, 0)));
    CHECK_FALSE(at::equal(first, run(2, 5, 0, 0)));
    CHECK_FALSE(at::equal(first, run(1, 5, 0, 1)));
  }
}

TEST_CASE("softmax formed again in the backward pass has the same outputs, draws and gradients", "[recompute]") {
  for (const std::string name : {"softmax", "mrs-softmax"})
    for (const bool training : {false, true}) {
      INFO(name << (training ? " training, with dropout" : " evaluating"));
      const bool causal = name == "softmax";
      Inputs in = random_inputs(2, 2, 24, 5);
      for (at::Tensor* x : {&in.q, &in.k, &in.v}) x->requires_grad_(true);
      const at::Tensor weights = random_tensor("loss", {2, 2, 24, 5});
      const auto run = [&](bool recompute) {
        BuildContext context = make_context({.max_len = 24, .causal = causal, .dropout = 0.4});
        const Resolved attention = resolve(name);
        const auto core = build_core(attention, full_options(attention, {{"recompute", recompute}}), context);
        core->train(training);
        context.dropout_stream->set_step(3, 2);  // as the second half of a batch
        Carry carry;
        for (at::Tensor* x : {&in.q, &in.k, &in.v}) x->mutable_grad() = at::Tensor();
        const at::Tensor out = core->forward(in.q, in.k, in.v, length_mask({24, 15}, 24, causal), carry);
        (out * weights).sum().backward();
        return std::vector<at::Tensor>{out.detach(), in.q.grad().clone(), in.k.grad().clone(), in.v.grad().clone()};
      };
      const auto meant = run(false), got = run(true);
      for (size_t i = 0; i < meant.size(); ++i) CHECK(max_difference(meant[i], got[i]) < 1e-12);
    }
}

TEST_CASE("softmax formed again refuses a backward pass that would drop other weights", "[recompute]") {
  const BuildContext context = make_context({.dropout = 0.4});
  const Resolved attention = resolve("softmax");
  const auto core = build_core(attention, full_options(attention, {{"recompute", true}}), context);
  Inputs in = random_inputs(1, 2, 8, 5);
  in.q.requires_grad_(true);
  Carry carry;
  const at::Tensor out = core->forward(in.q, in.k, in.v, {}, carry);
  context.dropout_stream->set_step(1);
  CHECK_THROWS_WITH(out.sum().backward(), Catch::Matchers::Contains("modified by an inplace operation"));
}

TEST_CASE("softmax formed again keeps no pair of tokens between the passes, and says so", "[recompute]") {
  install_caching_allocator();
  constexpr int64_t kLength = 256;
  const auto pairs = static_cast<double>(2 * 2 * kLength * kLength);
  Inputs in = random_inputs(2, 2, kLength, 5);
  for (at::Tensor* x : {&in.q, &in.k, &in.v}) x->requires_grad_(true);
  const auto kept = [&](bool recompute) {
    const BuiltCore core = make_core("softmax", {{"recompute", recompute}}, {.max_len = kLength, .dropout = 0.1});
    core.module->train();
    const int64_t before = host_memory().live_bytes;
    const at::Tensor out = core(in.q, in.k, in.v);
    const auto alive = static_cast<double>(host_memory().live_bytes - before) / sizeof(double);
    CHECK(core.module->cost({2, 2, kLength, kLength, 5}).peak_elements ==
          (recompute ? 2.0 * 4 * 5 * 2 * kLength : 2 * pairs));
    return alive;
  };
  CHECK(kept(false) >= 2 * pairs);
  CHECK(kept(true) < pairs / 4);
}

}  // namespace xformer::attention::softmax_test
