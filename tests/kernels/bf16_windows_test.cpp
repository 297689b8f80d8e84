// Attention over windows under autocast to bf16 on a CPU (bf16_support.h).
#include "bf16_support.h"
#include "kernels/window_attention/window_attention.h"
#include "place_support.h"

namespace xformer::kernels::bf16_test::windows {

namespace {

constexpr int64_t kHeads = 2;

// What a case leaves as it is says nothing; inputs are q, k, v, extra keys and values, vectors and bias of distances.
struct WindowCall {
  WindowAttentionOptions options;
  at::Tensor allowed, places, extra_bias;

  [[nodiscard]] Tensors operator()(auto* run, const Tensors& x) const {
    at::Tensor log_sum;
    const at::Tensor out = run(x[0], x[1], x[2], ExtraKeys{x[3], x[4], allowed, places, extra_bias}, options, &log_sum,
                               RelativeKeys{x[5], x[6]});
    // A row without a key has another number in double.
    return {out, at::where(log_sum < -1e20, 0, log_sum)};
  }
};

void add(std::vector<Case>& cases, const WindowCall& call, int64_t extras = 0, bool relative = false, int64_t d = 8) {
  const int64_t n = call.options.windows.length, e = d - 2;
  const int64_t offsets = call.options.windows.back + 1 + call.options.windows.ahead;
  Tensors inputs{activation("q", {3, kHeads, n, d}),
                 activation("k", {3, kHeads, n, d}),
                 activation("v", {3, kHeads, n, e}),
                 {},
                 {},
                 {},
                 {}};
  if (extras > 0)
    inputs[3] = activation("extra_k", {3, kHeads, extras, d}),
    inputs[4] = activation("extra_v", {3, kHeads, extras, e});
  // Vectors are what products take of them, so they are numbers of bf16, too.
  if (relative) inputs[5] = activation("vectors", {offsets, d}), inputs[6] = parameter("distances", {kHeads, offsets});
  cases.push_back({.name = "window_attention",
                   .fused = [call](const Tensors& x) { return call(&window_attention, x); },
                   .reference = [call](const Tensors& x) { return call(&window_attention_reference, x); },
                   .inputs = inputs,
                   .roundings = 3,  // one is that of the output, which gradients of weights have taken off
                   .statistics = {1}});
}

std::vector<Case> window_cases() {
  std::vector<Case> cases;
  for (const int64_t n : {1, 37, 300}) {
    for (const Windows& windows : {Windows::sliding(n, 5, 3), Windows::sliding(n, 5, 0, 3),
                                   Windows::own_block(n, 64, false), Windows::neighbour_blocks(n, 20, true)}) {
      add(cases, {{windows, valid(n, true), place_of(0.25), {}}, {}, {}, {}});
      add(cases, {{windows, {}, place_of(0), {}}, {}, {}, {}});
    }
    // Keys that all rows see, some of which do not count; a bias of keys.
    const at::Tensor allowed = valid(7, false).unsqueeze(1);
    add(cases,
        {{Windows::sliding(n, 4, 4), valid(n, true), place_of(0.2), parameter("gains", {3, 1, n})},
         allowed,
         {},
         parameter("extra_gains", {3, 1, 7})},
        7);
    // Keys of each block: as they lie, and from here and there.
    const Windows blocks = Windows::own_block(n, 16, false);
    for (const int64_t step : {1, 5}) {
      const at::Tensor places = (at::arange(blocks.blocks * 4).view({1, blocks.blocks, 4}) * step)
                                    .remainder(23)
                                    .masked_fill(at::arange(4).eq(2), -1);
      add(cases, {{blocks, valid(n, true), place_of(0.2), {}}, {}, places, {}}, 23);
    }
    add(cases, {{Windows::sliding(n, 30, 11), valid(n, true), place_of(0.2), {}}, {}, {}, {}}, 0, /*relative=*/true);
  }
  add(cases, {{Windows::sliding(150, 40, 40), {}, place_of(0.1), {}}, {}, {}, {}}, 0, false, /*d=*/40);
  return cases;
}

TEST_CASE("in bf16 attention over windows is its definition but for the format's rounding, with gradients") {
  check_definitions(window_cases());
}

TEST_CASE("--kernels=check holds windows in bf16 against their definition, forwards and backwards") {
  check_policy(window_cases());
}

TEST_CASE("in bf16 windows give the same bits on any number of threads") { check_threads(window_cases()); }

TEST_CASE("windows of bf16 operands without autocast are those under it; log-sums and what distances add are float") {
  const WindowCall call{{Windows::sliding(60, 9, 4), valid(60, true), place_of(0.2), {}}, {}, {}, {}};
  std::vector<Case> cases;
  add(cases, call, 0, /*relative=*/true);
  const Case& one = cases.front();
  Tensors stored = one.inputs;
  for (size_t i = 0; i < 3; ++i) stored[i] = stored[i].to(at::kBFloat16);
  const Tensors got = run_with_gradients(one.fused, stored),
                inside = run_with_gradients(under_bf16(one.fused), one.inputs);
  // The rows and log-sums; gradients of q, k, v, vectors and numbers of distances.
  REQUIRE(got.size() == 7);
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i].scalar_type() == (i == 1 || i > 4 ? at::kFloat : at::kBFloat16));
    CHECK(at::equal(got[i].to(at::kFloat), inside[i].to(at::kFloat)));
  }
}

TEST_CASE("in bf16 windows without any gradient of their log-sums have that of their rows alone") {
  const WindowCall call{{Windows::sliding(60, 5, 5), valid(60, true), place_of(0.2), {}}, {}, {}, {}};
  std::vector<Case> cases;
  add(cases, call);
  Case& one = cases.front();
  for (TensorFunction* run : {&one.fused, &one.reference})
    *run = [all = *run](const Tensors& x) { return Tensors{all(x)[0]}; };
  one.statistics = {};
  check_definitions(cases);
}

}  // namespace

}  // namespace xformer::kernels::bf16_test::windows
