// fmm (attention-core 3.15).
#include "attention/support.h"

namespace xformer::attention::fmm_test {

using namespace support;

at::Tensor parameter(const BuiltCore& core, const std::string& name) {
  for (const auto& [key, value] : core.parameters())
    if (key == name) return value.data();
  FAIL("no parameter " << name);
  return {};
}

double phi(const std::string& kernel, double x) {
  if (kernel == "elu" || kernel == "celu") return x > 0 ? x + 1 : std::exp(x);
  if (kernel == "elu-flip") return x < 0 ? 1 - x : std::exp(-x);
  if (kernel == "tanh") return 1 + std::tanh(x);
  if (kernel == "tanh-orthogonal") return 1 - std::tanh(x);
  if (kernel == "relu") return std::max(x, 0.0);
  if (kernel == "sigmoid") return 1 / (1 + std::exp(-x));
  if (kernel == "softplus") return std::log1p(std::exp(x));
  return x > 0 ? x + 1 : 0.01 * x + 1;  // leaky-relu
}

at::Tensor near_field(const Inputs& in, const SequenceMask& mask, int64_t band) {
  const auto weight = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    if (std::abs(i - j) >= band) return 0.0;
    return std::exp((in.q[b][h][i].dot(in.k[b][h][j]) / std::sqrt(in.q.size(3))).item<double>());
  };
  return valid_rows(dense_attention(in.v, mask, in.q.size(2), weight), mask);
}

at::Tensor far_field(const Inputs& in, const SequenceMask& mask, const std::string& kernel, bool by_sum = true) {
  const auto q = in.q.accessor<double, 4>(), k = in.k.accessor<double, 4>();
  const auto weight = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t c = 0; c < in.q.size(3); ++c) sum += phi(kernel, q[b][h][i][c]) * phi(kernel, k[b][h][j][c]);
    return sum;
  };
  if (by_sum) return dense_attention(in.v, mask, in.q.size(2), weight, 1e-6);
  at::Tensor out = at::zeros_like(in.q);
  for (int64_t b = 0; b < in.q.size(0); ++b)
    for (int64_t h = 0; h < in.q.size(1); ++h)
      for (int64_t i = 0; i < in.q.size(2); ++i)
        for (int64_t j = 0; j < in.k.size(2); ++j)
          if (mask.key_valid[b][j].item<bool>() && (!mask.causal || j <= i))
            out[b][h][i] += weight(b, h, i, j) * in.v[b][h][j] / std::sqrt(static_cast<double>(in.k.size(2)));
  return out;
}

TEST_CASE("fmm equals its two fields in loops, banded and dense, for ragged lengths and length 1") {
  for (const bool causal : {false, true})
    for (const std::string field : {"banded", "dense"})
      for (const int64_t n : {1, 14, 83})
        for (const int64_t band : {1, 5}) {
          INFO(field << " causal " << causal << " n " << n << " band " << band);
          const Inputs in = random_inputs(2, 2, n, 3);
          const SequenceMask mask = length_mask({n, (n + 1) / 2}, n, causal);
          const BuiltCore core =
              make_core("fmm", {{"band", band}, {"near_field", field}}, {.head_dim = 3, .causal = causal});
          const at::Tensor near = near_field(in, mask, band), far = far_field(in, mask, "elu");
          CHECK(max_difference(core(in.q, in.k, in.v, mask), near) < 1e-10);  // as it starts: w = (1, 0)
          const at::Tensor w1 = random_tensor("w1", {2, 1, 1}), w2 = random_tensor("w2", {2, 1, 1});
          parameter(core, "near_weight").copy_(w1);
          parameter(core, "far_weight").copy_(w2);
          CHECK(max_difference(core(in.q, in.k, in.v, mask), w1 * near + w2 * far) < 1e-10);
        }
}

TEST_CASE("fmm blends its fields in six ways, each from its own start") {
  const Inputs in = random_inputs(2, 2, 14, 3);
  const SequenceMask mask = length_mask({14, 9}, 14);
  const at::Tensor near = near_field(in, mask, 5), far = far_field(in, mask, "elu");
  const auto check = [&](const std::string& blend, const at::Tensor& start, size_t parameters) {
    INFO(blend);
    const BuiltCore core = make_core("fmm", {{"blend", blend}}, {.head_dim = 3});
    CHECK(core.parameters().size() == parameters);
    CHECK(max_difference(core(in.q, in.k, in.v, mask), start) < 1e-10);
    return core;
  };
  const auto now = [&](const BuiltCore& core) { return core(in.q, in.k, in.v, mask); };
  check("near", near, 0);
  check("far", far, 0);
  check("both-head", near, 2);
  const BuiltCore elem = check("far-elem", near, 1), head = check("near-head", far, 1),
                  convex = check("convex", (near + far) / 2, 1);
  const at::Tensor by_element = random_tensor("w", {2, 1, 3}), by_head = random_tensor("w", {2, 1, 1});
  parameter(elem, "far_weight").copy_(by_element);
  CHECK(max_difference(now(elem), near + by_element * far) < 1e-10);
  parameter(head, "near_weight").copy_(by_head);
  CHECK(max_difference(now(head), by_head * near + far) < 1e-10);
  parameter(convex, "near_weight").fill_(0.3);
  CHECK(max_difference(now(convex), 0.3 * near + 0.7 * far) < 1e-10);
}

TEST_CASE("fmm's far field is that of every kernel, divided by its sum or by root n") {
  const Inputs in = random_inputs(2, 2, 14, 3);
  for (const bool causal : {false, true})
    for (const std::string kernel :
         {"elu", "elu-flip", "tanh", "tanh-orthogonal", "relu", "sigmoid", "softplus", "celu", "leaky-relu"})
      for (const bool by_sum : {true, false}) {
        INFO(kernel << " causal " << causal << " by sum " << by_sum);
        const SequenceMask mask = length_mask({14, 9}, 14, causal);
        const BuiltCore core =
            make_core("fmm", {{"blend", "far"}, {"kernels", kernel}, {"norm", by_sum ? "sum" : "sqrt_n"}},
                      {.head_dim = 3, .causal = causal});
        CHECK(max_difference(core(in.q, in.k, in.v, mask), far_field(in, mask, kernel, by_sum)) < 1e-10);
      }
}

TEST_CASE("fmm weighs two kernels: learned from (1, 0), the second learned beside 1, or one half each") {
  const Inputs in = random_inputs(2, 2, 14, 3);
  const SequenceMask mask = length_mask({14, 9}, 14);
  const at::Tensor one = far_field(in, mask, "elu"), two = far_field(in, mask, "elu-flip");
  const auto make = [&](const std::string& weights) {
    return make_core("fmm", {{"blend", "far"}, {"kernels", "elu+elu_flip"}, {"kernel_weights", weights}},
                     {.head_dim = 3});
  };
  const auto now = [&](const BuiltCore& core) { return core(in.q, in.k, in.v, mask); };
  const BuiltCore learned = make("learned"), second = make("first-fixed"), equal = make("equal");
  CHECK(max_difference(now(learned), one) < 1e-10);
  CHECK(max_difference(now(second), one) < 1e-10);
  CHECK(max_difference(now(equal), (one + two) / 2) < 1e-10);
  CHECK(equal.parameters().empty());
  parameter(learned, "kernel_weights").copy_(at::tensor({0.3, -2.0}));
  parameter(second, "kernel_weights").copy_(at::tensor({-2.0}));
  CHECK(max_difference(now(learned), 0.3 * one - 2 * two) < 1e-10);
  CHECK(max_difference(now(second), one - 2 * two) < 1e-10);
}

TEST_CASE("fmm's far field alone is linear, and its near field with a wide band is softmax") {
  const Inputs in = random_inputs(2, 2, 48, 5);
  for (const bool causal : {false, true}) {
    const SequenceMask mask = length_mask({48, 31}, 48, causal);
    for (const std::string norm : {"sum", "sqrt-n"}) {
      const BuiltCore far = make_core("fmm", {{"blend", "far"}, {"norm", norm}}, {.causal = causal}),
                      linear = make_core("linear", {{"norm", norm}}, {.causal = causal});
      CHECK(max_difference(valid_rows(far(in.q, in.k, in.v, mask), mask), linear(in.q, in.k, in.v, mask)) < 1e-12);
    }
    for (const std::string field : {"banded", "dense"})
      CHECK(max_difference(make_core("fmm", {{"blend", "near"}, {"band", 49}, {"near_field", field}},
                                     {.causal = causal})(in.q, in.k, in.v, mask),
                           valid_rows(dense_softmax(in, mask), mask)) < 1e-10);
  }
}

TEST_CASE("fmm's near field alone is local-window with one token less on each side than the band") {
  const Inputs in = random_inputs(2, 2, 83, 5);
  for (const bool causal : {false, true}) {
    const SequenceMask mask = length_mask({83, 31}, 83, causal);
    CHECK(at::equal(make_core("fmm", {{"blend", "near"}, {"band", 5}}, {.causal = causal})(in.q, in.k, in.v, mask),
                    make_core("local-window", {{"window", {4}}}, {.causal = causal})(in.q, in.k, in.v, mask)));
  }
}

TEST_CASE("fmm hides padding in the far field too, once its weight is not zero") {
  const BuiltCore core = make_core("fmm");
  parameter(core, "far_weight").fill_(0.7);
  const Inputs in = random_inputs(2, 2, 48, 5), more = random_inputs(2, 2, 17, 5, "appended");
  const SequenceMask mask = length_mask({48, 31}, 48);
  const auto longer = [](const at::Tensor& x, const at::Tensor& tail) { return at::cat({x, tail}, 2); };
  const at::Tensor out =
      core(longer(in.q, more.q), longer(in.k, more.k), longer(in.v, more.v), length_mask({48, 31}, 65));
  CHECK(max_difference(valid_rows(out.narrow(2, 0, 48), mask), valid_rows(core(in.q, in.k, in.v, mask), mask)) < 1e-10);
}

TEST_CASE("fmm golden number") {
  // Band 1 is the token itself: 4. Far: features 1 and 2 of keys 0 and 1 weigh values 1 and 4 to 3. Half of each: 3.5.
  const BuiltCore core = make_core("fmm", {{"band", 1}, {"blend", "convex"}}, {.heads = 1, .head_dim = 1});
  CHECK(core(column({7, 0}), column({0, 1}), column({1, 4}))[0][0][1][0].item<double>() == Approx(3.5).epsilon(1e-6));
}

TEST_CASE("fmm has the blend weights of attention-core 7 and the pairs of its band") {
  const auto count = [](const Json& options) {
    int64_t result = 0;
    for (const auto& [key, value] : make_mixer("fmm", options, {.head_dim = 32, .max_len = 2048}).parameters())
      result += value.numel();
    return result - 16640;
  };
  CHECK(count({{"blend", "both-head"}}) == 4);
  CHECK(count({{"blend", "far-elem"}}) == 64);
  CHECK(count({{"blend", "near-head"}}) == 2);
  CHECK(count({{"blend", "convex"}}) == 1);
  CHECK(count({{"kernels", "elu+elu-flip"}}) == 4 + 2);
  CHECK(count({{"kernels", "elu+elu-flip"}, {"kernel_weights", "first-fixed"}}) == 4 + 1);
  // N (2 (band - 1) + 1) - (band - 1) band pairs near, 4 N D^2 + 4 N D far; the dense form executes N^2.
  const double n = 2048, d = 32;
  const Cost banded = make_core("fmm").module->cost({1, 1, 2048, 2048, 32}),
             dense = make_core("fmm", {{"near_field", "dense"}}).module->cost({1, 1, 2048, 2048, 32});
  const double far = 4 * n * d * d + 4 * n * d;
  CHECK(banded.flops_pattern == 4 * d * (9 * n - 20) + far);
  CHECK(dense.flops_pattern == banded.flops_pattern);
  CHECK(dense.flops_executed == 4 * d * n * n + far);
  CHECK(banded.flops_executed < dense.flops_executed / 20);
}

}  // namespace xformer::attention::fmm_test
