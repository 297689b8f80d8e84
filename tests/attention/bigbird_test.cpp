// bigbird-itc and bigbird-etc (attention-core 3.5).
#include <algorithm>
#include <set>

#include "attention/support.h"

namespace xformer::attention::bigbird_test {

using namespace support;

struct Case {
  std::string name, edge;
  int64_t block, random, global = 2;  // global: of bigbird-etc

  [[nodiscard]] Json options() const {
    return {{"block", block}, {"random_blocks", random}, {"edge", edge}, {"global_tokens", global}};
  }
  [[nodiscard]] bool etc() const { return name == "bigbird-etc"; }
};

const std::vector<Case> kCases = {{"bigbird-itc", "clip", 3, 2}, {"bigbird-itc", "clip", 4, 0},
                                  {"bigbird-itc", "wrap", 3, 1}, {"bigbird-itc", "wrap", 4, 0},
                                  {"bigbird-etc", "clip", 3, 2}, {"bigbird-etc", "clip", 4, 0},
                                  {"bigbird-etc", "wrap", 3, 2}, {"bigbird-etc", "clip", 5, 0, 0}};

using Blocks = std::vector<std::set<int64_t>>;  // seen by each block

// R_x of one head, for blocks 0 to t - 1 that are not global: the r unlinked ones of highest rank.
std::set<int64_t> random_blocks(const BuiltCore& core, int64_t head, int64_t x, const std::set<int64_t>& linked,
                                int64_t t, int64_t r) {
  std::vector<std::pair<int64_t, int64_t>> order;
  std::set<int64_t> result;
  if (r == 0) return result;
  const at::Tensor ranks = core.module->named_buffers()["ranks"][head][x];
  for (int64_t y = 0; y < t; ++y)
    if (linked.count(y) == 0) order.emplace_back(-ranks[y].item<int64_t>(), y);
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < r; ++i) result.insert(order[static_cast<size_t>(i)].second);
  return result;
}

// The block graph as the definition lists it, case by case.
Blocks itc_graph(const BuiltCore& core, int64_t head, int64_t nb, const Case& c) {
  Blocks result(static_cast<size_t>(nb));
  const bool clip = c.edge == "clip";
  if (nb < (clip ? 5 : 4) + c.random) {  // no such graph: softmax
    for (auto& row : result)
      for (int64_t y = 0; y < nb; ++y) row.insert(y);
    return result;
  }
  for (int64_t x = 0; x < nb; ++x) {
    std::set<int64_t>& row = result[static_cast<size_t>(x)];
    if (x == 0 || (clip && x == nb - 1)) {
      for (int64_t y = 0; y < nb; ++y) row.insert(y);
      continue;
    }
    if (clip && x == 1) row = {0, 1, 2, nb - 1};
    else if (clip && x == nb - 2) row = {0, nb - 3, nb - 2, nb - 1};
    else if (clip) row = {0, x - 1, x, x + 1, nb - 1};
    else row = {0, x == 1 ? nb - 1 : x - 1, x, x == nb - 1 ? 1 : x + 1};
    std::set<int64_t> linked;  // counted from the first block that is not global
    for (const int64_t y : row) linked.insert(y - 1);
    for (const int64_t y : random_blocks(core, head, x - 1, linked, clip ? nb - 2 : nb - 1, c.random))
      row.insert(y + 1);
  }
  return result;
}

Blocks etc_graph(const BuiltCore& core, int64_t head, int64_t t, const Case& c) {
  Blocks result(static_cast<size_t>(t));
  for (int64_t x = 0; x < t; ++x) {
    std::set<int64_t>& row = result[static_cast<size_t>(x)];
    for (int64_t y = 0; y < t; ++y)
      if (t < 3 + c.random || std::abs(x - y) <= 1 || (c.edge == "wrap" && std::abs(x - y) == t - 1)) row.insert(y);
    if (t < 3 + c.random) continue;
    for (const int64_t y : random_blocks(core, head, x, row, t, c.random)) row.insert(y);
  }
  return result;
}

// allowed[h][i][j]
std::vector<std::vector<std::vector<bool>>> allowed_pairs(const BuiltCore& core, int64_t heads, int64_t n,
                                                          const Case& c) {
  const int64_t g = c.etc() ? std::min(c.global, n) : 0;
  std::vector<std::vector<std::vector<bool>>> result;
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t count = (n - g + c.block - 1) / c.block;
    const Blocks graph = c.etc() ? etc_graph(core, h, count, c) : itc_graph(core, h, count, c);
    result.emplace_back(n, std::vector<bool>(n));
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        result.back()[i][j] = i < g || j < g || graph[(i - g) / c.block].count((j - g) / c.block) > 0;
    if (!c.etc())  // what is global is also seen by all: the links of block 0 (and of the last) go both ways
      for (int64_t i = 0; i < n; ++i) CHECK(result.back()[i][0]);
  }
  return result;
}

at::Tensor reference(const BuiltCore& core, const Inputs& in, const SequenceMask& mask, const Case& c) {
  const auto allowed = allowed_pairs(core, in.q.size(1), in.q.size(2), c);
  const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(static_cast<double>(in.q.size(-1)));
  const auto s = scores.accessor<double, 4>();
  return dense_attention(in.v, mask, in.q.size(2), [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    return allowed[h][i][j] ? std::exp(s[b][h][i][j]) : 0;
  });
}

TEST_CASE("bigbird equals the dense softmax over its block graph, for ragged lengths and any n") {
  for (const Case& c : kCases)
    for (const int64_t n : {48, 47, 29, 20, 7, 2, 1}) {
      INFO(c.name << " " << c.options().dump() << " n " << n);
      const BuiltCore core = make_core(c.name, c.options());
      const Inputs in = random_inputs(2, 2, n, 5);
      for (const SequenceMask& mask : {SequenceMask{}, length_mask({n, (2 * n + 2) / 3}, n), length_mask({1, n}, n)})
        CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask),
                             valid_rows(reference(core, in, mask, c), mask)) < 1e-10);
    }
}

TEST_CASE("bigbird's edges are those of the slides and of the authors' code") {
  // Blocks of one token; with the identity as values the output is the weights, so zero means not linked.
  const auto seen = [](const BuiltCore& core, int64_t row) {
    const at::Tensor x = random_tensor("x", {1, 1, 6, 6});
    const at::Tensor weights = core(x, x, at::eye(6, at::kDouble).view({1, 1, 6, 6}))[0][0][row - 1];
    std::set<int64_t> result;
    for (int64_t j = 0; j < 6; ++j)
      if (weights[j].item<double>() != 0) result.insert(j + 1);
    return result;
  };
  const auto build = [](const char* edge, int64_t random) {
    return make_core("bigbird", {{"block", 1}, {"random_blocks", random}, {"edge", edge}},
                     {.heads = 1, .head_dim = 6, .max_len = 6});
  };
  using Set = std::set<int64_t>;
  const BuiltCore wrap = build("wrap", 0), clip = build("clip", 0);
  CHECK(seen(wrap, 1) == Set{1, 2, 3, 4, 5, 6});
  CHECK(seen(wrap, 2) == Set{1, 6, 2, 3});
  CHECK(seen(wrap, 3) == Set{1, 2, 3, 4});
  CHECK(seen(wrap, 6) == Set{1, 5, 6, 2});
  CHECK(seen(clip, 1) == Set{1, 2, 3, 4, 5, 6});
  CHECK(seen(clip, 2) == Set{1, 2, 3, 6});
  CHECK(seen(clip, 3) == Set{1, 2, 3, 4, 6});
  CHECK(seen(clip, 5) == Set{1, 4, 5, 6});
  CHECK(seen(clip, 6) == Set{1, 2, 3, 4, 5, 6});
  // {1, 6, 2, 3, random}, and random is 4 or 5.
  CHECK((seen(build("wrap", 1), 2) == Set{1, 2, 3, 4, 6} || seen(build("wrap", 1), 2) == Set{1, 2, 3, 5, 6}));
}

// At r = nb - 5 the middle blocks see all; the two beside an end that does not wrap have a neighbour less and miss one.
TEST_CASE("bigbird equals softmax when all other blocks are random ones, and when there are too few blocks") {
  const Inputs in = random_inputs(2, 2, 30, 5);
  const SequenceMask mask = length_mask({30, 19}, 30);
  const at::Tensor dense = valid_rows(dense_softmax(in, mask), mask);
  for (const Case& c : {Case{"bigbird-itc", "clip", 3, 5}, Case{"bigbird-itc", "wrap", 3, 6},
                        Case{"bigbird-etc", "clip", 4, 4}, Case{"bigbird-etc", "wrap", 4, 4}}) {
    INFO(c.name << c.edge);
    for (const bool enough : {true, false}) {
      Case now = c;
      if (!enough) now.block += 1;
      const BuiltCore core = make_core(c.name, now.options(), {.max_len = 30});
      const at::Tensor out = core(in.q, in.k, in.v, mask);
      CHECK((core.module->backend() == "explicit") == enough);
      if (!enough || c.edge == "wrap") CHECK(max_difference(out, dense) < 1e-10);
      else CHECK(max_difference(out.narrow(2, 8, 14), dense.narrow(2, 8, 14)) < 1e-10);
    }
  }
}

TEST_CASE("bigbird's random blocks are distinct, unlinked, even, of their head and layer, and kept") {
  const int64_t heads = 700, n = 12;  // blocks of one token; 10 of them between the global ones
  const Json options = {{"block", 1}, {"random_blocks", 1}};
  const Setup setup{.heads = heads, .head_dim = 1, .max_len = n};
  const BuiltCore core = make_core("bigbird-itc", options, setup);
  std::vector<int64_t> counts(10);
  for (int64_t h = 0; h < heads; ++h)
    for (const int64_t y : random_blocks(core, h, 5, {4, 5, 6}, 10, 1)) ++counts[static_cast<size_t>(y)];
  for (const int64_t y : {0, 1, 2, 3, 7, 8, 9})  // 100 each, deviation 9.3
    CHECK(std::abs(static_cast<double>(counts[static_cast<size_t>(y)]) - 100) < 40);
  const auto ranks = [&](int64_t layer, uint64_t seed) {
    return make_core("bigbird-itc", options, {.heads = 2, .head_dim = 1, .max_len = n, .layer = layer, .seed = seed})
        .module->named_buffers()["ranks"];
  };
  CHECK(ranks(0, 1).equal(ranks(0, 1)));
  CHECK_FALSE(ranks(0, 1).equal(ranks(1, 1)));
  CHECK_FALSE(ranks(0, 1).equal(ranks(0, 2)));
  CHECK_FALSE(ranks(0, 1)[0].equal(ranks(0, 1)[1]));
  // The same in training and in evaluation.
  const Inputs in = random_inputs(1, 2, 40, 5);
  const BuiltCore kept = make_core("bigbird-itc", {{"block", 3}});
  const at::Tensor evaluated = kept(in.q, in.k, in.v);
  kept.module->train();
  CHECK(kept(in.q, in.k, in.v).equal(evaluated));
  // Other ranks, loaded behind a forward pass, are those that count.
  {
    const at::NoGradGuard no_grad;
    const at::Tensor kept_ranks = kept.module->named_buffers()["ranks"];
    kept_ranks.data().copy_(kept_ranks.flip(-1).clone());
  }
  const at::Tensor other = kept(in.q, in.k, in.v);
  CHECK_FALSE(other.equal(evaluated));
  const Case c{"bigbird-itc", "clip", 3, 2};
  CHECK(max_difference(other, reference(kept, in, {}, c)) < 1e-10);
}

TEST_CASE("bigbird's pairs are those of the formula, and of its graph") {
  const auto pairs = [](const BuiltCore& core, int64_t n) {
    return core.module->cost({1, 1, n, n, 1}).flops_pattern / 4;
  };
  for (const Case& c : kCases) {
    INFO(c.name << " " << c.options().dump());
    const int64_t nb = 11, n = nb * c.block + (c.etc() ? c.global : 0);
    const BuiltCore core = make_core(c.name, c.options(), {.max_len = n});
    const auto allowed = allowed_pairs(core, 1, n, c);
    int64_t counted = 0;
    for (const auto& row : allowed[0]) counted += std::count(row.begin(), row.end(), true);
    CHECK(pairs(core, n) == static_cast<double>(counted));
    if (c.etc() || c.edge == "wrap") continue;
    const int64_t r = c.random;
    CHECK(counted == c.block * c.block * (2 * nb + 2 * (4 + r) + (nb - 4) * (5 + r)));
  }
}

TEST_CASE("bigbird-etc puts its global tokens in front, counts pinned ones among them and is blind to their order") {
  const Resolved etc = resolve("bigbird-etc");
  CHECK(etc.base->prefix_tokens(full_options(etc, {{"global_tokens", 7}})) == 7);
  CHECK(resolve("bigbird").base->prefix_tokens(full_options(resolve("bigbird"))) == 0);
  const Inputs in = random_inputs(1, 2, 40, 5);
  const Json options = {{"block", 3}, {"global_tokens", 4}, {"random_blocks", 1}};
  const BuiltCore core = make_core("bigbird-etc", options);
  const at::Tensor out = core(in.q, in.k, in.v);
  const at::Tensor order = at::cat({at::tensor({2, 0, 3, 1}, at::kLong), at::arange(4, 40, at::kLong)});
  const auto mixed = [&](const at::Tensor& x) { return x.index_select(2, order); };
  CHECK(max_difference(core(mixed(in.q), mixed(in.k), mixed(in.v)).narrow(2, 4, 36), out.narrow(2, 4, 36)) < 1e-12);
  const BuiltCore pinned = make_core("bigbird-etc", options, {.pinned = 5});
  const Case five{"bigbird-etc", "clip", 3, 1, 5};
  CHECK(max_difference(pinned(in.q, in.k, in.v), reference(pinned, in, {}, five)) < 1e-10);
}

TEST_CASE("bigbird's defaults, parameters and refusals") {
  for (const std::string name : {"bigbird-itc", "bigbird-etc"}) {
    const Json options = full_options(resolve(name));
    CHECK(options["block"] == 32);
    CHECK(options["random_blocks"] == (name == "bigbird-itc" ? 2 : 0));
    CHECK(options["edge"] == "clip");
    int64_t count = 0;
    for (const auto& [key, tensor] : make_mixer(name, {}, {.head_dim = 32, .max_len = 2048}).parameters())
      count += tensor.numel();
    CHECK(count == 16640);
    CHECK_THROWS_AS(make_core(name, {}, {.causal = true}), UserError);
    const Inputs in = random_inputs(1, 2, 20, 5);
    CHECK_THROWS_AS(make_core(name, {{"random_blocks", 1}}, {.max_len = 19})(in.q, in.k, in.v), UserError);
  }
  CHECK(resolve("bigbird").name == "bigbird-itc");
}

}  // namespace xformer::attention::bigbird_test
