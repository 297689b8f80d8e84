// sparse-fixed and sparse-strided (attention-core 3.2, attention-more 14).
#include "attention/support.h"
#include "tensor/op_counter.h"

namespace xformer::attention::sparse_test {

using namespace support;

struct Case {
  std::string name = "sparse-fixed";
  int64_t stride = 4, summary = 1;
  bool first = false, split = false;
  int64_t pinned = 0;

  [[nodiscard]] Json options() const {
    return {{"stride", stride}, {"summary", summary}, {"summary_first", first}, {"head_split", split}};
  }
};

const std::vector<Case> kCases = {{"sparse-fixed"},
                                  {"sparse-strided"},
                                  {"sparse-fixed", 5, 2},
                                  {"sparse-fixed", 6, 2, true},
                                  {"sparse-fixed", 3, 3, true},
                                  {"sparse-strided", 7},
                                  {"sparse-strided", 1},
                                  {"sparse-fixed", 4, 1, true, true},
                                  {"sparse-strided", 4, 1, false, true},
                                  {"sparse-fixed", 4, 2, false, false, 1},
                                  {"sparse-strided", 5, 1, false, false, 2},
                                  {"sparse-fixed", 4, 2, true, true, 2},
                                  {"sparse-strided", 5, 1, false, true, 1}};

// Whether row i of head h (of three) may read key j, by the sets of the paper.
bool allowed(const Case& c, bool causal, int64_t h, int64_t i, int64_t j) {
  if (causal && j > i) return false;
  if (i < c.pinned || j < c.pinned) return true;
  i -= c.pinned, j -= c.pinned;
  const int64_t l = c.stride;
  const bool fixed = c.name == "sparse-fixed";
  const bool near = fixed ? i / l == j / l : std::abs(i - j) < l;
  const bool far = fixed ? j % l >= l - c.summary || (c.first && j % l == 0) : (i - j) % l == 0;
  if (!c.split) return near || far;
  return h < 2 ? near : far;
}

at::Tensor reference(const Inputs& in, const SequenceMask& mask, const Case& c) {
  const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(static_cast<double>(in.q.size(-1)));
  const auto s = scores.accessor<double, 4>();
  return dense_attention(in.v, mask, in.q.size(2), [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    return allowed(c, mask.causal, h, i, j) ? std::exp(s[b][h][i][j]) : 0;
  });
}

BuiltCore make(const Case& c, bool causal) {
  return make_core(c.name, c.options(), {.heads = 3, .max_len = 200, .pinned = c.pinned, .causal = causal});
}

TEST_CASE("sparse equals the dense softmax over its sets, merged or split over heads, with and without pinned tokens") {
  for (const Case& c : kCases)
    for (const bool causal : {false, true})
      for (const int64_t n : {48, 47, 17, 6, 2, 1}) {
        INFO(c.name << " " << c.options().dump() << " pinned " << c.pinned << " causal " << causal << " n " << n);
        const BuiltCore core = make(c, causal);
        const Inputs in = random_inputs(2, 3, n, 5);
        for (const SequenceMask& mask :
             {SequenceMask{{}, causal}, length_mask({n, (2 * n + 2) / 3}, n, causal), length_mask({1, n}, n, causal)})
          CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask),
                               valid_rows(reference(in, mask, c), mask)) < 1e-10);
      }
}

TEST_CASE("sparse combines window and residue at lengths of several blocks") {
  for (const int64_t n : {150, 200}) {
    const Inputs in = random_inputs(1, 3, n, 5);
    for (const Case& c : {Case{"sparse-strided", 40}, Case{"sparse-strided", 9}, Case{"sparse-fixed", 33, 8}})
      for (const bool causal : {false, true}) {
        const SequenceMask mask = length_mask({n - 13}, n, causal);
        CHECK(max_difference(valid_rows(make(c, causal)(in.q, in.k, in.v, mask), mask),
                             valid_rows(reference(in, mask, c), mask)) < 1e-10);
      }
  }
}

TEST_CASE("sparse reads exactly the keys of its definition, n = 17 and l = 4") {
  const at::Tensor x = random_tensor("x", {1, 3, 17, 17});
  const at::Tensor eye = at::eye(17, at::kDouble).expand({1, 3, 17, 17});  // then the output is the weights
  for (const std::string name : {"sparse-fixed", "sparse-strided"})
    for (const bool causal : {false, true}) {
      const Case c{name, 4, 2};
      const BuiltCore core =
          make_core(name, c.options(), {.heads = 3, .head_dim = 17, .max_len = 17, .causal = causal});
      const at::Tensor weights = core(x, x, eye, {{}, causal})[0][0];
      at::Tensor expected = at::zeros({17, 17}, at::kBool);
      for (int64_t i = 0; i < 17; ++i)
        for (int64_t j = 0; j < 17; ++j) expected[i][j] = allowed(c, causal, 0, i, j);
      CHECK(weights.ne(0).equal(expected));
      // Two layers connect every pair of whole blocks (causal: every earlier one).
      const at::Tensor links = expected.to(at::kDouble).narrow(0, 0, 16).narrow(1, 0, 16);
      const at::Tensor all = at::ones({16, 16}, at::kBool);
      CHECK(at::matmul(links, links).gt(0).equal(causal ? all.tril() : all));
    }
}

TEST_CASE("sparse golden numbers") {
  // l = 2, c = 1, n = 4: row 0 sees its block {0, 1} and the summary {1, 3}: weights 1, 1 and 2 of values 1, 2, 4.
  const at::Tensor q = column({1, 1, 1, 1}), k = column({0, 0, 7, std::log(2.0)}), v = column({1, 2, 9, 4});
  const Setup one{.heads = 1, .head_dim = 1};
  const Json options = {{"stride", 2}, {"summary", 1}};
  CHECK(make_core("sparse-fixed", options, one)(q, k, v)[0][0][0][0].item<double>() == Approx(11.0 / 4));
  // Strided, causal: row 3 sees {2, 3} and {1, 3}, the own key once: weights e^7, 2 and 1 of values 9, 4 and 2.
  const Setup causal{.heads = 1, .head_dim = 1, .causal = true};
  const double e = std::exp(7.0);
  CHECK(make_core("sparse-strided", options, causal)(q, k, v, {{}, true})[0][0][3][0].item<double>() ==
        Approx((9 * e + 2 * 4 + 2) / (e + 3)));
}

TEST_CASE("sparse's pairs are those counted in the mask, and of the closed forms where l divides n") {
  for (const Case& c : kCases)
    for (const bool causal : {false, true})
      for (const int64_t n : {60, 47, 3}) {
        INFO(c.name << " " << c.options().dump() << " pinned " << c.pinned << " causal " << causal << " n " << n);
        int64_t counted = 0;
        for (int64_t h = 0; h < 3; ++h)
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < n; ++j) counted += allowed(c, causal, h, i, j) ? 1 : 0;
        const Cost cost = make(c, causal).module->cost({1, 3, n, n, 1});
        CHECK(cost.flops_pattern == 4.0 * static_cast<double>(counted));
        CHECK(cost.flops_pattern <= cost.flops_executed);
      }
  const auto pattern = [](const Case& c, bool causal) {
    return make(c, causal).module->cost({1, 3, 60, 60, 1}).flops_pattern / 12;
  };
  constexpr int64_t n = 60, l = 5, c = 2, t = n / l;
  CHECK(pattern({"sparse-fixed", l, c}, false) == n * (l + c * (t - 1)));
  CHECK(2 * pattern({"sparse-fixed", l, c}, true) == n * (l + 1) + c * n * (t - 1));
  CHECK(pattern({"sparse-strided", l}, false) == n * (2 * l - 1) - l * (l - 1) + n * (t - 1));
  CHECK(2 * pattern({"sparse-strided", l}, true) == 2 * n * l - l * (l - 1) + n * (t - 1));
}

TEST_CASE("sparse's FLOPs with split heads and pinned tokens are counted ones") {
  for (const Case& c : kCases)
    for (const bool causal : {false, true})
      for (const int64_t n : {47, 3}) {
        INFO(c.name << " " << c.options().dump() << " pinned " << c.pinned << " causal " << causal << " n " << n);
        const BuiltCore core = make(c, causal);
        const Inputs in = random_inputs(2, 3, n, 5);
        const OpCounter counter;
        core(in.q, in.k, in.v, {{}, causal});
        CHECK(static_cast<double>(counter.counts().flops) == core.module->cost({2, 3, n, n, 5}).flops_executed);
      }
}

TEST_CASE("sparse passes the gradient of both parts of its softmax") {
  for (const Case& c : {Case{"sparse-strided", 3}, Case{"sparse-fixed", 3, 1, true, true, 1}})
    for (const bool causal : {false, true}) {
      const BuiltCore core = make(c, causal);
      const Inputs in = random_inputs(2, 3, 14, 4);
      const SequenceMask mask = length_mask({14, 9}, 14, causal);
      const at::Tensor weights = random_tensor("weights", {2, 3, 14, 4});
      for (const at::Tensor& x : {in.q, in.k, in.v}) {
        const auto gradient = [&](const std::function<at::Tensor()>& out) {
          x.mutable_grad() = at::Tensor();
          x.requires_grad_(true);
          (valid_rows(out(), mask) * weights).sum().backward();
          x.requires_grad_(false);
          return x.grad().clone();
        };
        const at::Tensor scale = at::full({}, 1 / std::sqrt(4.0), at::kDouble);
        at::Tensor closed = at::ones({2, 3, 14, 14}, at::kBool);
        for (int64_t b = 0; b < 2; ++b)
          for (int64_t h = 0; h < 3; ++h)
            for (int64_t i = 0; i < 14; ++i)
              for (int64_t j = 0; j < (b == 0 ? 14 : 9); ++j) closed[b][h][i][j] = !allowed(c, causal, h, i, j);
        const at::Tensor dense = gradient([&] {
          const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) * scale;
          return at::matmul(at::softmax(scores.masked_fill(closed, -1e300), -1).masked_fill(closed, 0), in.v);
        });
        CHECK(max_difference(gradient([&] { return core(in.q, in.k, in.v, mask); }), dense) < 1e-10);
      }
    }
}

TEST_CASE("sparse's defaults, parameters and refusals") {
  CHECK(full_options(resolve("sparse-fixed"))["stride"] == 50);
  CHECK(full_options(resolve("sparse-fixed"))["summary"] == 10);
  CHECK(full_options(resolve("sparse-strided"))["stride"] == 50);
  for (const std::string name : {"sparse-fixed", "sparse-strided"}) {
    int64_t count = 0;
    for (const auto& [key, tensor] : make_mixer(name, {}, {.head_dim = 32, .max_len = 2048}).parameters())
      count += tensor.numel();
    CHECK(count == 16640);
    CHECK_THROWS_AS(make_core(name, {{"head_split", true}}, {.heads = 1}), UserError);
  }
  CHECK_THROWS_AS(make_core("sparse-fixed", {{"stride", 4}, {"summary", 5}}), UserError);
}

}  // namespace xformer::attention::sparse_test
