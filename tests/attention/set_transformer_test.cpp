// set-induced and set-isab (attention-more 3).
#include <cmath>

#include "attention/support.h"
#include "tensor/op_counter.h"

namespace xformer::attention::set_transformer_test {

using namespace support;

template <class Built>
std::map<std::string, at::Tensor> tensors_of(const Built& built) {
  std::map<std::string, at::Tensor> result;
  for (const auto& [key, value] : built.state()) result[key] = value.detach();
  return result;
}

// The valid rows of sample b [.., n, w].
at::Tensor own_rows(const at::Tensor& x, const SequenceMask& mask, int64_t b) {
  return mask.all_valid() ? x[b] : x[b].index_select(-2, mask.key_valid[b].nonzero().flatten());
}

at::Tensor weights(const at::Tensor& q, const at::Tensor& k, double width) {
  return at::softmax(at::matmul(q, k.transpose(-1, -2)) / std::sqrt(width), -1);
}

// A sample and a head at a time, over its valid tokens alone.
at::Tensor induced_reference(const BuiltCore& core, const Inputs& in, const SequenceMask& mask) {
  const at::Tensor points = tensors_of(core).at("inducing");
  at::Tensor out = at::zeros_like(in.q);
  for (int64_t b = 0; b < in.q.size(0); ++b)
    for (int64_t h = 0; h < in.q.size(1); ++h) {
      const at::Tensor k = own_rows(in.k, mask, b)[h], v = own_rows(in.v, mask, b)[h];
      const at::Tensor gather = weights(points[h], k, 5);
      out[b][h] = at::matmul(weights(in.q[b][h], at::matmul(gather, k), 5), at::matmul(gather, v));
    }
  return out;
}

TEST_CASE("set-induced equals its equations, ragged, of any length") {
  for (const int64_t m : {1, 3, 32})
    for (const int64_t n : {48, 7, 2, 1}) {
      const Inputs in = random_inputs(2, 2, n, 5);
      const BuiltCore core = make_core("set-induced", {{"inducing", m}});
      for (const SequenceMask& mask : {SequenceMask{}, length_mask({n, (2 * n + 2) / 3}, n), length_mask({1, n}, n)})
        CHECK(max_difference(core(in.q, in.k, in.v, mask), valid_rows(induced_reference(core, in, mask), mask)) <
              1e-10);
    }
}

TEST_CASE("set-induced golden numbers") {
  const Setup one{.heads = 1, .head_dim = 1};
  const BuiltCore core = make_core("set-induced", {{"inducing", 2}}, one);
  // Points 0 and ln 3 over keys 0 and 1: shares 1/2, 1/2 and 1/4, 3/4; keys 1/2 and 3/4, values 6 and 7.
  tensors_of(core).at("inducing").copy_(at::tensor({0.0, std::log(3.0)}, at::kDouble).view({1, 2, 1}));
  // A query of 4 ln 2 sees these keys as 4 and 8: (6 + 2 * 7) / 3.
  CHECK(core(column({4 * std::log(2.0), 0}), column({0, 1}), column({4, 8}))[0][0][0][0].item<double>() ==
        Approx(20.0 / 3));
}

TEST_CASE("set-induced whose points each pick one key is softmax") {
  constexpr int64_t n = 8;
  // Keys of a Hadamard pattern are orthogonal; a point that is one of them, and large, sees it alone.
  at::Tensor keys = at::ones({1, 1}, at::kDouble);
  for (int64_t size = 1; size < n; size *= 2) keys = at::cat({at::cat({keys, keys}, 1), at::cat({keys, -keys}, 1)}, 0);
  const Inputs in{random_tensor("q", {2, 2, n, n}), keys.expand({2, 2, n, n}), random_tensor("v", {2, 2, n, n})};
  const BuiltCore core = make_core("set-induced", {{"inducing", n}}, {.head_dim = n});
  tensors_of(core).at("inducing").copy_((keys * 1e3).expand({2, n, n}));
  CHECK(max_difference(core(in.q, in.k, in.v), dense_softmax(in)) < 1e-10);
}

// MAB over the valid rows of y, in plain operations. x [q,m], y [k,m].
at::Tensor mab(const std::map<std::string, at::Tensor>& t, const std::string& stage, const std::string& form,
               const at::Tensor& x, const at::Tensor& y, int64_t heads) {
  const auto get = [&](const std::string& name) { return t.at(stage + "." + name); };
  const auto map = [&](const std::string& name, const at::Tensor& rows) {
    return at::matmul(rows, get(name + ".weight").t()) + get(name + ".bias");
  };
  const auto norm = [&](const std::string& name, const at::Tensor& rows) {
    if (form == "code") return rows;
    const at::Tensor mean = rows.mean(-1, true), spread = (rows - mean).square().mean(-1, true);
    return (rows - mean) / at::sqrt(spread + 1e-5) * get(name + "_weight") + get(name + "_bias");
  };
  const int64_t width = x.size(-1), d = width / heads;
  const at::Tensor q = map("query", x), k = map("key", y), v = map("value", y);
  std::vector<at::Tensor> mixed;
  for (int64_t h = 0; h < heads; ++h) {
    const auto head = [&](const at::Tensor& rows) { return rows.narrow(-1, h * d, d); };
    const auto scale = static_cast<double>(form == "paper" ? d : width);
    mixed.push_back(at::matmul(weights(head(q), head(k), scale), head(v)));
  }
  const at::Tensor all = at::cat(mixed, -1);
  const at::Tensor half = norm("norm", form == "paper" ? x + map("out", all) : q + all);
  return norm("ff_norm", half + at::relu(map(form == "paper" ? "ff" : "out", half)));
}

TEST_CASE("set-isab equals MAB of MAB in every form, ragged, of any length") {
  for (const std::string form : {"code", "code-norm", "paper"})
    for (const int64_t m : {1, 4})
      for (const int64_t n : {20, 3, 1}) {
        INFO(form << " m " << m << " n " << n);
        const BuiltMixer block = make_mixer("set-isab", {{"mab", form}, {"inducing", m}});
        for (const auto& [key, value] : block.parameters())  // gains and biases that begin as 1 and 0 would hide errors
          value.data().add_(random_tensor(key, value.sizes()), 0.3);
        const auto t = tensors_of(block);
        const at::Tensor x = random_tensor("x", {2, n, 10});
        for (const SequenceMask& mask :
             {SequenceMask{}, length_mask({n, (2 * n + 2) / 3}, n), length_mask({1, n}, n)}) {
          at::Tensor expected = at::zeros_like(x);
          for (int64_t b = 0; b < 2; ++b)
            expected[b] =
                mab(t, "spread", form, x[b], mab(t, "gather", form, t.at("inducing")[0], own_rows(x, mask, b), 2), 2);
          CHECK(max_difference(block(x, mask), valid_rows(expected, mask)) < 1e-10);
        }
      }
}

TEST_CASE("set-isab whose points became the sequence is a set attention block; one point is all a token reads") {
  // SAB(X) = MAB(X, X): the second block alone, with X in place of what was gathered.
  const BuiltMixer block = make_mixer("set-isab", {{"inducing", 6}});
  auto t = tensors_of(block);
  const at::Tensor x = random_tensor("x", {1, 6, 10});
  for (const char* name : {"gather.query.weight", "gather.value.weight", "gather.out.weight"}) t.at(name).zero_();
  for (const char* name : {"gather.query.bias", "gather.value.bias", "gather.out.bias"}) t.at(name).zero_();
  // Points that are X through an identity, with nothing gathered: H = X.
  t.at("gather.query.weight").copy_(at::eye(10));
  t.at("inducing").copy_(x);
  CHECK(max_difference(block(x)[0], mab(t, "spread", "code", x[0], x[0], 2)) < 1e-12);

  // m = 1: the weights of the second stage are all 1, whatever the queries' logits.
  const BuiltMixer single = make_mixer("set-isab", {{"inducing", 1}});
  const at::Tensor before = single(x);
  tensors_of(single).at("spread.key.weight").mul_(-7);
  CHECK(max_difference(single(x), before) < 1e-12);
}

TEST_CASE("set-isab's FLOPs are counted ones and of the closed form, with the points' own map made once") {
  for (const std::string form : {"code", "paper"})
    for (const int64_t n : {48, 1}) {
      const BuiltMixer block = make_mixer("set-isab", {{"mab", form}, {"inducing", 7}});
      const OpCounter counter;
      (void)block(random_tensor("x", {3, n, 10}));
      CHECK(static_cast<double>(counter.counts().flops) == block.module->cost(3, n).flops_executed);
    }
  constexpr double n = 48, m = 7, w = 10;
  CHECK(make_mixer("set-isab", {{"inducing", 7}}).module->cost(1, 48).flops_executed ==
        8 * n * w * w + 8 * m * w * w + 8 * m * n * w);
}

TEST_CASE("the Set Transformer's initial points, parameters and refusals") {
  CHECK(full_options(resolve("set-isab"))["inducing"] == 32);
  CHECK(full_options(resolve("isab"))["mab"] == "code");
  const auto count = [](const std::string& name, const Json& options) {
    int64_t result = 0;
    for (const auto& [key, tensor] : make_mixer(name, options, {.head_dim = 32, .max_len = 2048}).parameters())
      result += tensor.numel();
    return result;
  };
  CHECK(count("set-isab", {}) == 33280 + 2048);
  CHECK(count("set-isab", {{"mab", "code-norm"}}) == 33280 + 2048 + 8 * 64);
  CHECK(count("set-isab", {{"mab", "paper"}}) == 2 * (5 * 64 * 65 + 4 * 64) + 2048);
  CHECK(count("set-induced", {}) == 16640 + 2048);
  const at::Tensor points = tensors_of(make_mixer("set-isab", {}, {.head_dim = 32})).at("inducing");
  CHECK(points.abs().max().item<double>() <= std::sqrt(6.0 / (33 * 64)));
  CHECK(points.abs().max().item<double>() > 0.05);

  BuildContext context = make_context({});
  context.model_dim = 12;  // ten of the heads
  const Resolved attention = resolve("set-isab");
  CHECK_THROWS_AS(attention.base->build_block(full_options(attention), context), UserError);
  for (const std::string name : {"set-isab", "set-induced"})
    CHECK_THROWS_AS(make_mixer(name, {}, {.causal = true}), UserError);
  CHECK_THROWS_AS(resolve("mrs-set-isab"), UserError);
}

}  // namespace xformer::attention::set_transformer_test
