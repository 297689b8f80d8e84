// routing (attention-more 10).
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "attention/support.h"
#include "tensor/op_counter.h"

namespace xformer::attention::routing_test {

using namespace support;

at::Tensor tensor_of(const BuiltCore& core, const std::string& name) {
  for (const auto& [key, value] : core.state())
    if (key == name) return value.detach();
  FAIL("no tensor " << name);
  return {};
}

at::Tensor normed(const at::Tensor& x) {
  const at::Tensor mean = x.mean(-1, true), variance = (x - mean).square().mean(-1, true);
  return (x - mean) / at::sqrt(variance + 1e-6);
}

bool valid(const SequenceMask& mask, int64_t b, int64_t i) {
  return mask.all_valid() || mask.key_valid[b][i].item<bool>();
}

// Of valid tokens those w whose vectors score highest.
std::vector<int64_t> best(const at::Tensor& vectors, const at::Tensor& centre, const SequenceMask& mask, int64_t b,
                          int64_t w) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < vectors.size(0); ++i)
    if (valid(mask, b, i)) tokens.push_back(i);
  const at::Tensor scores = at::matmul(vectors, centre);
  std::stable_sort(tokens.begin(), tokens.end(),
                   [&](int64_t i, int64_t j) { return scores[i].item<double>() > scores[j].item<double>(); });
  tokens.resize(std::min<size_t>(tokens.size(), static_cast<size_t>(w)));
  return tokens;
}

// softmax of x_i y_j / sqrt(d) over these keys.
at::Tensor attend(const at::Tensor& x, const at::Tensor& y, const at::Tensor& v, const std::vector<int64_t>& keys) {
  const at::Tensor rows = at::tensor(keys, at::kLong);
  const at::Tensor scores = at::matmul(y.index_select(0, rows), x) / std::sqrt(static_cast<double>(x.size(0)));
  return at::matmul(at::softmax(scores, 0), v.index_select(0, rows));
}

// The equations of the routed heads, the last ones, a token at a time. Centroids are s, as n is 1 at the start.
at::Tensor reference(const BuiltCore& core, const Inputs& in, const SequenceMask& mask, int64_t w) {
  const at::Tensor centres = tensor_of(core, "centroid_sum");
  const int64_t heads = in.q.size(1), local = heads / 2, n = in.q.size(2), count = centres.size(1);
  at::Tensor out = at::zeros({in.q.size(0), heads - local, n, in.q.size(3)}, at::kDouble);
  for (int64_t b = 0; b < in.q.size(0); ++b)
    for (int64_t h = 0; h < heads - local; ++h) {
      const at::Tensor x = normed(in.q[b][local + h]), y = mask.causal ? x : normed(in.k[b][local + h]);
      const at::Tensor v = in.v[b][local + h];
      std::vector<int64_t> found(static_cast<size_t>(n), 0), nearest;
      if (mask.causal) {
        for (int64_t i = 0; i < n; ++i)
          nearest.push_back((centres[h] - x[i]).square().sum(-1).argmin().item<int64_t>());
        for (int64_t i = 0; i < n; ++i) {
          if (!valid(mask, b, i)) continue;
          std::vector<int64_t> keys;
          for (int64_t j = i; j >= 0 && static_cast<int64_t>(keys.size()) < w; --j)
            if (valid(mask, b, j) && nearest[static_cast<size_t>(j)] == nearest[static_cast<size_t>(i)])
              keys.push_back(j);
          out[b][h][i] = attend(x[i], x, v, keys);
        }
        continue;
      }
      for (int64_t c = 0; c < count; ++c) {
        const std::vector<int64_t> keys = best(y, centres[h][c], mask, b, w);
        for (const int64_t i : best(x, centres[h][c], mask, b, w)) {
          out[b][h][i] += attend(x[i], y, v, keys);
          ++found[static_cast<size_t>(i)];
        }
      }
      for (int64_t i = 0; i < n; ++i)
        out[b][h][i] /= static_cast<double>(std::max<int64_t>(1, found[static_cast<size_t>(i)]));
    }
  return out;
}

at::Tensor routed(const at::Tensor& x) { return x.narrow(1, x.size(1) / 2, x.size(1) - x.size(1) / 2); }

TEST_CASE("routing equals its clusters in loops, ragged, of any length, causal or not") {
  for (const auto& [k, w] : {std::pair{3, 7}, {4, 0}, {1, 100}, {5, 1}})
    for (const bool causal : {false, true})
      for (const int64_t n : {29, 12, 2, 1}) {
        INFO("k " << k << " w " << w << " causal " << causal << " n " << n);
        const Inputs in = random_inputs(2, 3, n, 5);
        const BuiltCore core =
            make_core("routing", {{"centroids", k}, {"members", w}}, {.heads = 3, .max_len = 40, .causal = causal});
        const int64_t members = w > 0 ? w : (n + k - 1) / k;
        for (const SequenceMask& mask :
             {SequenceMask{{}, causal}, length_mask({n, (2 * n + 2) / 3}, n, causal), length_mask({1, n}, n, causal)})
          CHECK(max_difference(valid_rows(routed(core(in.q, in.k, in.v, mask)), mask),
                               valid_rows(reference(core, in, mask, members), mask)) < 1e-10);
      }
}

TEST_CASE("routing's first heads are blocks of w tokens with their neighbours") {
  const Inputs in = random_inputs(2, 4, 29, 5);
  for (const bool causal : {false, true}) {
    const SequenceMask mask = length_mask({29, 13}, 29, causal);
    const at::Tensor out =
        make_core("routing", {{"members", 6}}, {.heads = 4, .causal = causal})(in.q, in.k, in.v, mask);
    const at::Tensor local = make_core("image-local-1d", {{"block", 6}, {"memory_length", 6}},
                                       {.heads = 4, .causal = causal})(in.q, in.k, in.v, mask);
    CHECK(max_difference(out.narrow(1, 0, 2), local.narrow(1, 0, 2)) < 1e-12);
    CHECK(max_difference(out.narrow(1, 2, 2), local.narrow(1, 2, 2)) > 1e-3);
  }
}

TEST_CASE("one cluster of all tokens is softmax over normalised queries and keys; causal, over queries alone") {
  const int64_t n = 30;
  const Inputs in = random_inputs(2, 2, n, 5);
  for (const bool causal : {false, true}) {
    const SequenceMask mask = length_mask({n, 19}, n, causal);
    const BuiltCore core = make_core("routing", {{"centroids", 1}, {"members", n}}, {.causal = causal});
    const Inputs scaled{normed(in.q), causal ? normed(in.q) : normed(in.k), in.v};
    CHECK(max_difference(valid_rows(routed(core(in.q, in.k, in.v, mask)), mask),
                         valid_rows(routed(dense_softmax(scaled, mask)), mask)) < 1e-10);
  }
}

TEST_CASE("every cluster has the w best tokens, valid ones first, and a token in none gives zero") {
  const int64_t n = 24, w = 5;
  const Inputs in = random_inputs(1, 1, n, 8);
  const BuiltCore core = make_core("routing", {{"centroids", 3}, {"members", w}}, {.heads = 1, .head_dim = 8});
  const at::Tensor ones = at::ones_like(in.v);
  for (const int64_t tokens : {24, 4}) {
    const SequenceMask mask = length_mask({tokens}, n);
    std::set<int64_t> chosen;
    for (int64_t c = 0; c < 3; ++c) {
      const auto members = best(normed(in.q[0][0]), tensor_of(core, "centroid_sum")[0][c], mask, 0, w);
      CHECK(static_cast<int64_t>(members.size()) == std::min(w, tokens));
      chosen.insert(members.begin(), members.end());
    }
    const at::Tensor out = core(in.q, in.k, ones, mask)[0][0];
    for (int64_t i = 0; i < n; ++i)
      CHECK(max_difference(out[i], at::full({8}, chosen.count(i) == 1 ? 1.0 : 0.0, at::kDouble)) < 1e-12);
  }
}

TEST_CASE("centroids follow the vectors nearest to them, after a step and over its micro-batches; padding has no say") {
  const int64_t n = 12;
  const Json options{{"centroids", 2}, {"centroid_decay", 0.75}};
  const Inputs in = random_inputs(2, 1, n, 4);
  const SequenceMask mask = length_mask({n, 7}, n);
  const auto after = [&](const std::vector<std::pair<int64_t, int64_t>>& parts, const at::Tensor& q) {
    const BuiltCore core = make_core("routing", options, {.heads = 1, .head_dim = 4});
    core.module->train();
    for (const auto& rows : parts) {
      const auto part = [&](const at::Tensor& x) { return x.narrow(0, rows.first, rows.second); };
      (void)core(part(q), part(in.k), part(in.v), {part(mask.key_valid)});
    }
    after_step(*core.module, 1);
    CHECK(tensor_of(core, "step_sum").abs().max().item<double>() == 0);
    return std::pair{tensor_of(core, "centroid_sum"), tensor_of(core, "centroid_count")};
  };
  const at::Tensor start = tensor_of(make_core("routing", options, {.heads = 1, .head_dim = 4}), "centroid_sum");
  CHECK(max_difference(start, normed(start)) < 1e-5);  // of unit variance
  at::Tensor sum = start[0] * 0.75, count = at::full({2}, 0.75, at::kDouble);
  for (const at::Tensor& x : {normed(in.q), normed(in.k)})
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = 0; i < (b == 0 ? n : 7); ++i) {
        const at::Tensor own = x[b][0][i];
        const int64_t c = (start[0] - own).square().sum(-1).argmin().item<int64_t>();
        sum[c] += 0.25 * own;
        count[c] += 0.25;
      }
  const auto [got_sum, got_count] = after({{0, 2}}, in.q);
  CHECK(max_difference(got_sum[0], sum) < 1e-12);
  CHECK(max_difference(got_count[0], count) < 1e-12);
  CHECK(max_difference(after({{0, 1}, {1, 1}}, in.q).first, got_sum) < 1e-12);
  const at::Tensor padded = mask.key_valid.logical_not().unsqueeze(1).unsqueeze(-1);
  CHECK(after({{0, 2}}, in.q.masked_fill(padded, 100)).first.equal(got_sum));

  // Outside of training, and where layers are run a first time without gradients, nothing is taken up.
  const BuiltCore core = make_core("routing", options, {.heads = 1, .head_dim = 4});
  (void)core(in.q, in.k, in.v, mask);
  core.module->train();
  {
    const at::NoGradGuard no_grad;
    (void)core(in.q, in.k, in.v, mask);
  }
  CHECK(tensor_of(core, "step_count").abs().max().item<double>() == 0);
  CHECK_FALSE(extra_loss(*core.module).defined());
}

TEST_CASE("routing's centroids are s over a smoothed n, and its loss the distance to the nearest") {
  const int64_t n = 9;
  Inputs in = random_inputs(1, 1, n, 4);
  const BuiltCore core = make_core("routing", {{"centroids", 2}, {"commitment", 0.5}}, {.heads = 1, .head_dim = 4});
  tensor_of(core, "centroid_count").copy_(at::tensor({3.0, 0.5}, at::kDouble).view({1, 2}));
  const at::Tensor smooth = (at::tensor({3.0, 0.5}, at::kDouble) + 1e-5) / (3.5 + 2e-5) * 3.5;
  const at::Tensor centres = tensor_of(core, "centroid_sum")[0] / smooth.unsqueeze(-1);
  core.module->train();
  in.q.requires_grad_(true);
  (void)core(in.q, in.k, in.v);
  double expected = 0;
  for (const at::Tensor& x : {normed(in.q.detach()), normed(in.k)})
    for (int64_t i = 0; i < n; ++i) expected += (centres - x[0][0][i]).square().sum(-1).min().item<double>();
  const at::Tensor loss = extra_loss(*core.module);
  CHECK(loss.item<double>() == Approx(0.5 * expected / (2 * n)));
  loss.backward();
  CHECK(in.q.grad().abs().max().item<double>() > 1e-4);
  CHECK_FALSE(extra_loss(*core.module).defined());  // it is of one pass
}

TEST_CASE("no later token changes a row of causal routing, or has a gradient from it; chosen members would") {
  const int64_t n = 90;
  const at::Tensor x = random_tensor("x", {1, 2, n, 5}), later = random_tensor("later", {1, 2, n, 5});
  const auto changed = [&](const at::Tensor& a, int64_t seen) {
    return at::cat({a.narrow(2, 0, seen), later.narrow(2, seen, n - seen)}, 2);
  };
  for (const int64_t w : {0, 4, 90}) {
    const BuiltCore core = make_core("routing", {{"members", w}}, {.max_len = n, .causal = true});
    const at::Tensor out = core(x, x, x, {{}, true});
    for (const int64_t seen : {1, 30, 61, 89}) {
      const at::Tensor other = changed(x, seen);
      // Tokens stand at other places of the sorted list, whose sums round otherwise.
      CHECK(max_difference(core(other, other, other, {{}, true}).narrow(2, 0, seen), out.narrow(2, 0, seen)) < 1e-13);
    }
    const at::Tensor leaf = x.clone().requires_grad_(true);
    core(leaf, leaf, leaf, {{}, true}).narrow(2, 0, 40).square().sum().backward();
    CHECK(leaf.grad().narrow(2, 40, n - 40).abs().max().item<double>() == 0);
  }
  // The published choice: how many of the first half's places in clusters are lost to later tokens.
  const BuiltCore core = make_core("routing", {}, {.max_len = n});
  const at::Tensor centres = tensor_of(core, "centroid_sum")[0], other = changed(x, 45);
  int64_t lost = 0;
  for (int64_t c = 0; c < centres.size(0); ++c) {
    const auto before = best(normed(x[0][1]), centres[c], {}, 0, 10),
               after = best(normed(other[0][1]), centres[c], {}, 0, 10);
    for (const int64_t i : before) lost += i < 45 && std::find(after.begin(), after.end(), i) == after.end() ? 1 : 0;
  }
  CHECK(lost > 0);
}

TEST_CASE(
    "routing's FLOPs are counted ones and of the closed form; padding behind the end changes nothing with w given") {
  for (const bool causal : {false, true})
    for (const int64_t n : {60, 47, 1}) {
      const BuiltCore core = make_core("routing", {}, {.heads = 3, .max_len = 60, .causal = causal});
      const Inputs in = random_inputs(2, 3, n, 5);
      const OpCounter counter;
      core(in.q, in.k, in.v, {{}, causal});
      CHECK(static_cast<double>(counter.counts().flops) == core.module->cost({2, 3, n, n, 5}).flops_executed);
    }
  // One head routed, scores of queries and keys, and k w^2 pairs.
  CHECK(make_core("routing", {{"centroids", 4}}, {.heads = 1}).module->cost({1, 1, 48, 48, 5}).flops_executed ==
        4 * 48 * 4 * 5 + 4 * 4 * 12 * 12 * 5);

  const Inputs in = random_inputs(1, 2, 40, 5);
  const auto cut = [&](const at::Tensor& x) { return x.narrow(2, 0, 25); };
  for (const bool causal : {false, true}) {
    const BuiltCore core = make_core("routing", {{"members", 6}}, {.causal = causal});
    CHECK(max_difference(core(cut(in.q), cut(in.k), cut(in.v), {{}, causal}),
                         cut(core(in.q, in.k, in.v, length_mask({25}, 40, causal)))) < 1e-10);
  }
}

TEST_CASE("routing drops the same elements in micro-batches as in the whole batch") {
  const Resolved attention = resolve("routing");
  const BuildContext context = make_context({.dropout = 0.5});
  const auto core = build_core(attention, full_options(attention), context);
  const Inputs in = random_inputs(4, 2, 20, 5);
  const auto rows = [&](int64_t first, int64_t count) {
    context.dropout_stream->set_step(1, first);
    Carry carry;
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, first, count).to(at::kFloat); };
    return core->forward(part(in.q), part(in.k), part(in.v), {}, carry);
  };
  const at::Tensor whole = rows(0, 4);
  CHECK(max_difference(at::cat({rows(0, 1), rows(1, 3)}), whole) < 1e-5);
}

TEST_CASE("routing's defaults, parameters and refusals") {
  const Json options = full_options(resolve("routing"));
  CHECK(options["centroid_decay"] == 0.999);
  CHECK(options["commitment"] == 1e-4);
  const BuiltMixer mixer = make_mixer("routing", {}, {.head_dim = 32, .max_len = 2048});
  int64_t parameters = 0, state = 0;
  for (const auto& [key, tensor] : mixer.parameters()) parameters += tensor.numel();
  for (const auto& [key, tensor] : mixer.state()) state += tensor.numel();
  CHECK(parameters == 16640);
  CHECK(state == 16640 + 2 * 45 * 33);  // k = 45, sums and counts of all steps and of one
  CHECK_THROWS_AS(make_core("routing", {{"centroid_decay", 1.5}}), UserError);
  CHECK_THROWS_AS(make_core("routing", {{"members", -1}}), UserError);
}

}  // namespace xformer::attention::routing_test
