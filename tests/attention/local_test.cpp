// local-window and local-block (attention-core 3.1).
#include "attention/shared/windows.h"
#include "attention/support.h"
#include "tensor/op_counter.h"
#include "tensor/probe.h"

namespace xformer::attention::local_test {

using namespace support;

// Softmax over the valid pairs with |i - j| <= w, in loops; rows of padding are zero.
at::Tensor window_reference(const Inputs& in, const SequenceMask& mask, int64_t w) {
  const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(static_cast<double>(in.q.size(-1)));
  const auto s = scores.accessor<double, 4>();
  const auto weight = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    return std::abs(i - j) <= w ? std::exp(s[b][h][i][j]) : 0;
  };
  return valid_rows(dense_attention(in.v, mask, in.q.size(2), weight), mask);
}

// The same over pairs of one block; `part` numbers the blocks.
at::Tensor block_reference(const Inputs& in, const SequenceMask& mask, const std::function<int64_t(int64_t)>& part) {
  const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(static_cast<double>(in.q.size(-1)));
  const auto s = scores.accessor<double, 4>();
  const auto weight = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    return part(i) == part(j) ? std::exp(s[b][h][i][j]) : 0;
  };
  return valid_rows(dense_attention(in.v, mask, in.q.size(2), weight), mask);
}

// Ragged masks over n tokens, and none.
std::vector<SequenceMask> masks(int64_t n, bool causal) {
  return {{{}, causal}, length_mask({n, (2 * n + 1) / 3}, n, causal), length_mask({1, n}, n, causal)};
}

TEST_CASE("local-window equals its definition in loops, for ragged lengths, any length and length 1") {
  for (const bool causal : {false, true})
    for (const int64_t n : {1, 2, 7, 48, 93})
      for (const int64_t w : {0, 1, 5, 32}) {
        INFO("causal " << causal << " n " << n << " w " << w);
        const Inputs in = random_inputs(2, 2, n, 5);
        const BuiltCore core = make_core("local-window", {{"window", {w}}}, {.causal = causal});
        for (const SequenceMask& mask : masks(n, causal))
          CHECK(max_difference(core(in.q, in.k, in.v, mask), window_reference(in, mask, w)) < 1e-10);
      }
}

TEST_CASE("local-block equals its definition in loops, for ragged lengths, any length and length 1") {
  for (const bool causal : {false, true})
    for (const int64_t n : {1, 2, 7, 48, 93})
      for (const int64_t b : {1, 6, 50}) {
        INFO("causal " << causal << " n " << n << " b " << b);
        const Inputs in = random_inputs(2, 2, n, 5);
        const BuiltCore core = make_core("local-block", {{"block", b}}, {.causal = causal});
        const BuiltCore strided =
            make_core("local-block", {{"block", b}, {"glra_strided_blocks", true}}, {.causal = causal});
        const int64_t stride = (n + b - 1) / b;
        for (const SequenceMask& mask : masks(n, causal)) {
          CHECK(max_difference(core(in.q, in.k, in.v, mask),
                               block_reference(in, mask, [b](int64_t i) { return i / b; })) < 1e-10);
          CHECK(max_difference(strided(in.q, in.k, in.v, mask),
                               block_reference(in, mask, [stride](int64_t i) { return i % stride; })) < 1e-10);
        }
      }
}

TEST_CASE("local golden numbers") {
  const double ln3 = std::log(3.0);
  const at::Tensor q = column({1, 1, 1}), k = column({0, ln3, ln3}), v = column({0, 4, 8});
  const Setup one{.heads = 1, .head_dim = 1};
  // Weights 1 and 3 on values 0 and 4; 1, 3 and 3 on 0, 4 and 8; 3 and 3 on 4 and 8.
  const at::Tensor window = make_core("local-window", {{"window", {1}}}, one)(q, k, v).flatten();
  CHECK(max_difference(window, at::tensor({3.0, 36.0 / 7, 6.0}, at::kDouble)) < 1e-12);
  // Blocks {0, 1} and {2}.
  const at::Tensor block = make_core("local-block", {{"block", 2}}, one)(q, k, v).flatten();
  CHECK(max_difference(block, at::tensor({3.0, 3.0, 8.0}, at::kDouble)) < 1e-12);
  // ceil(3 / 2) = 2 apart: {0, 2} and {1}.
  const Json strided{{"block", 2}, {"glra_strided_blocks", true}};
  CHECK(max_difference(make_core("local-block", strided, one)(q, k, v).flatten(),
                       at::tensor({6.0, 4.0, 6.0}, at::kDouble)) < 1e-12);
}

TEST_CASE("local attention that covers the sequence equals softmax, and one token less does not") {
  const int64_t n = 48;
  const Inputs in = random_inputs(2, 2, n, 5);
  for (const bool causal : {false, true}) {
    const SequenceMask mask = length_mask({n, 31}, n, causal);
    const auto difference = [&](const std::string& name, const Json& options) {
      return max_difference(make_core(name, options, {.causal = causal})(in.q, in.k, in.v, mask),
                            valid_rows(dense_softmax(in, mask), mask));
    };
    CHECK(difference("local-window", {{"window", {n - 1}}}) < 1e-10);
    CHECK(difference("local-window", {{"window", {n - 2}}}) > 1e-4);
    CHECK(difference("local-block", {{"block", n}}) < 1e-10);
    CHECK(difference("local-block", {{"block", n - 1}}) > 1e-4);
  }
}

TEST_CASE("a row has a gradient from the token at distance w and none from w + 1, or from another block") {
  const int64_t n = 61, row = 30;
  const auto gradient = [&](const std::string& name, const Json& options) {  // |d out_row / d (k, v)_j| [n]
    Inputs in = random_inputs(1, 2, n, 5);
    in.k.requires_grad_(true), in.v.requires_grad_(true);
    make_core(name, options)(in.q, in.k, in.v).select(2, row).square().sum().backward();
    return at::cat({in.k.grad(), in.v.grad()}, -1).abs().amax(at::IntArrayRef({0, 1, 3}));
  };
  const at::Tensor window = gradient("local-window", {{"window", {5}}});
  const at::Tensor block = gradient("local-block", {{"block", 8}});  // row 30 is in block 24 to 31
  for (int64_t j = 0; j < n; ++j) {
    INFO(j);
    CHECK((window[j].item<double>() > 1e-6) == (std::abs(j - row) <= 5));
    CHECK((window[j].item<double>() == 0) == (std::abs(j - row) > 5));
    CHECK((block[j].item<double>() > 1e-6) == (j / 8 == 3));
    CHECK((block[j].item<double>() == 0) == (j / 8 != 3));
  }
}

TEST_CASE("the pairs of local attention have the closed forms of attention-core 3.1") {
  const auto pairs = [](const std::string& name, const Json& options, int64_t n) {
    return make_core(name, options).module->cost({3, 2, n, n, 5}).flops_pattern / (4 * 3 * 2 * 5);
  };
  for (const int64_t n : {33, 48, 77, 2048})
    for (const int64_t w : {0, 1, 5, 32})
      CHECK(pairs("local-window", {{"window", {w}}}, n) == static_cast<double>(n * (2 * w + 1) - w * (w + 1)));
  for (const int64_t blocks : {1, 2, 41}) CHECK(pairs("local-block", {}, blocks * 50) == blocks * 2500.0);
  // A last block that is not full holds fewer pairs than ceil(n / b) b^2.
  CHECK(pairs("local-block", {}, 77) == 50 * 50 + 27 * 27);
  CHECK(pairs("local-window", {{"window", {99}}}, 20) == 400);
}

TEST_CASE("local attention's weights are those of its windows and far fewer than n^2; its cost keeps none") {
  for (const std::string name : {"local-window", "local-block"}) {
    const int64_t n = 1024;
    const Inputs in = random_inputs(1, 2, n, 5);
    const BuiltCore core = make_core(name);
    const ProbeRecorder recorder([](const std::string&) { return true; });
    (void)core(in.q, in.k, in.v);
    REQUIRE(recorder.kept().size() == 1);
    const auto elements = static_cast<double>(recorder.kept()[0].second.numel());
    const Windows windows = name == "local-window" ? Windows::sliding(n, 32, 32) : Windows::own_block(n, 50, false);
    CHECK(elements == 2 * windows.explicit_pairs());
    CHECK(core.module->cost({1, 2, n, n, 5}).peak_elements == 2 * n * (4 * 5 + 1));
    CHECK(elements < 0.2 * 2 * n * n);
  }
}

TEST_CASE("local attention reads nothing back to the host, forward or backward") {
  for (const std::string name : {"local-window", "local-block"}) {
    Inputs in = random_inputs(2, 2, 77, 5);
    in.k.requires_grad_(true);
    const SequenceMask mask = length_mask({77, 31}, 77);
    const BuiltCore core = make_core(name, {{"window", {5}}}, {.dropout = 0.1});
    core.module->train();
    const OpCounter counter;
    core(in.q, in.k, in.v, mask).sum().backward();
    CHECK(counter.counts().calls > 0);
    CHECK(counter.counts().reads == 0);
  }
}

TEST_CASE("a list of windows goes over the layers in turn") {
  const Inputs in = random_inputs(1, 2, 20, 5);
  const Json list{{"window", {2, 4}}};
  for (const int64_t layer : {0, 1, 2, 3}) {
    const BuiltCore core = make_core("local-window", list, {.layer = layer});
    CHECK(max_difference(core(in.q, in.k, in.v), window_reference(in, {}, layer % 2 == 0 ? 2 : 4)) < 1e-10);
  }
}

TEST_CASE("local attention runs at every length of the benchmarks, in float, near the double result") {
  for (const std::string name : {"local-window", "local-block"})
    for (const int64_t n : {1, 2, 7, 29, 93, 144, 315, 405, 1024, 1751}) {
      const Inputs in = random_inputs(1, 2, n, 4);
      const SequenceMask mask = length_mask({(n + 1) / 2}, n);
      const BuiltCore core = make_core(name);
      const at::Tensor exact = core(in.q, in.k, in.v, mask);
      const at::Tensor single = core(in.q.to(at::kFloat), in.k.to(at::kFloat), in.v.to(at::kFloat), mask);
      CHECK(single.scalar_type() == at::kFloat);
      CHECK(max_difference(exact, single.to(at::kDouble)) < 1e-4);
    }
}

TEST_CASE("local attention has no parameters of its own, and refuses what is no window or block") {
  for (const std::string name : {"local-window", "local-block"}) {
    int64_t count = 0;
    for (const auto& [key, value] : make_mixer(name, Json::object(), {.head_dim = 32, .max_len = 2048}).state())
      count += value.numel();
    CHECK(count == 16640);
  }
  CHECK_THROWS_AS(make_core("local-window", {{"window", {-1}}}), UserError);
  CHECK_THROWS_AS(make_core("local-window", {{"window", Json::array()}}), UserError);
  CHECK_THROWS_AS(make_core("local-block", {{"block", 0}}), UserError);
}

}  // namespace xformer::attention::local_test
