// mra2 and mra2-s (attention-core 3.16).
#include <set>
#include <tuple>

#include "attention/support.h"
#include "tensor/op_counter.h"
#include "tensor/probe.h"

namespace xformer::attention::mra_test {

using namespace support;

const std::vector<std::string> kNames = {"mra2", "mra2-s"};

bool is_valid(const SequenceMask& mask, int64_t s, int64_t j) {
  return mask.all_valid() || mask.key_valid[s][j].item<bool>();
}

struct Settings {
  int64_t block = 4, chosen = 1, first = 0, diag = 0;
};

// The equations for one sample and head, in loops: which pairs of blocks are fine, and the scores of all.
struct Plan {
  std::vector<std::vector<double>> coarse;
  std::set<std::pair<int64_t, int64_t>> fine;
};

Plan plan_of(const at::Tensor& q, const at::Tensor& k, const std::vector<bool>& valid, const Settings& with) {
  const int64_t n = q.size(0), d = q.size(1), blocks = (n + with.block - 1) / with.block;
  std::vector<int64_t> count(static_cast<size_t>(blocks), 0);
  at::Tensor q_mean = at::zeros({blocks, d}, at::kDouble), k_mean = at::zeros({blocks, d}, at::kDouble);
  for (int64_t j = 0; j < n; ++j)
    if (valid[static_cast<size_t>(j)]) {
      ++count[static_cast<size_t>(j / with.block)];
      q_mean[j / with.block] += q[j];
      k_mean[j / with.block] += k[j];
    }
  for (int64_t x = 0; x < blocks; ++x) {
    const auto tokens = static_cast<double>(std::max<int64_t>(count[static_cast<size_t>(x)], 1));
    q_mean[x] /= tokens, k_mean[x] /= tokens;
  }
  Plan plan;
  std::vector<std::tuple<int, float, int64_t, int64_t>>
      order;  // class, distance from the row's largest, place, position
  for (int64_t x = 0; x < blocks; ++x) {
    std::vector<double> row;
    for (int64_t y = 0; y < blocks; ++y)
      row.push_back((q_mean[x] * k_mean[y]).sum().item<double>() / std::sqrt(static_cast<double>(d)));
    const double largest = *std::max_element(row.begin(), row.end());
    for (int64_t y = 0; y < blocks; ++y) {
      const int priors = (x < with.first ? 1 : 0) + (y < with.first ? 1 : 0) +
                         (with.diag > 0 && std::abs(x - y) <= with.diag / 2 ? 1 : 0);
      const bool empty = count[static_cast<size_t>(x)] == 0 || count[static_cast<size_t>(y)] == 0;
      // Equals in steps of the golden ratio over the grid.
      const int64_t position = x * blocks + y, place = position * 331804471 % (1 << 29);
      order.emplace_back(empty ? 4 : 3 - priors, static_cast<float>(largest - row[static_cast<size_t>(y)]), place,
                         position);
    }
    plan.coarse.push_back(row);
  }
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < with.chosen; ++i) {
    const int64_t position = std::get<3>(order[static_cast<size_t>(i)]);
    plan.fine.emplace(position / blocks, position % blocks);
  }
  return plan;
}

at::Tensor reference(const Inputs& in, const SequenceMask& mask, const Settings& with, bool sparse) {
  const int64_t b = in.q.size(0), h = in.q.size(1), n = in.q.size(2), d = in.q.size(3);
  std::vector<Plan> plans;
  for (int64_t s = 0; s < b; ++s)
    for (int64_t g = 0; g < h; ++g) {
      std::vector<bool> valid;
      for (int64_t j = 0; j < n; ++j) valid.push_back(is_valid(mask, s, j));
      plans.push_back(plan_of(in.q[s][g], in.k[s][g], valid, with));
    }
  const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(static_cast<double>(d));
  const auto fine = scores.accessor<double, 4>();
  return dense_attention(in.v, mask, n, [&](int64_t s, int64_t g, int64_t i, int64_t j) {
    const Plan& plan = plans[static_cast<size_t>(s * h + g)];
    const int64_t x = i / with.block, y = j / with.block;
    if (plan.fine.count({x, y}) == 1) return std::exp(fine[s][g][i][j]);
    return sparse ? 0 : std::exp(plan.coarse[static_cast<size_t>(x)][static_cast<size_t>(y)]);
  });
}

// Which pairs of blocks were computed exactly [b,h,g,g].
at::Tensor refined(const BuiltCore& core, const Inputs& in, const SequenceMask& mask = {}) {
  const ProbeRecorder recorder([](const std::string& name) { return name == "refined"; });
  (void)core(in.q, in.k, in.v, mask);
  REQUIRE(recorder.kept().size() == 1);
  return recorder.kept()[0].second.to(at::kDouble);
}

Json budget(int64_t block, double share, int64_t first = 0, int64_t diag = 0) {
  return {{"block", block}, {"budget", share}, {"first", first}, {"diag", diag}};
}

TEST_CASE("mra2 equals its equations in loops, with and without priors, for ragged lengths and length 1") {
  struct Case {
    int64_t n, block;
    double share;
    int64_t chosen, first, diag;
    std::vector<int64_t> lengths;
  };
  for (const std::string& name : kNames)
    for (const Case& c : std::vector<Case>{{48, 4, 0.25, 36, 0, 0, {48, 31}},
                                           {48, 8, 0.2, 7, 1, 0, {48, 31}},
                                           {45, 8, 0.3, 11, 0, 1, {45, 1}},   // a ragged last block
                                           {29, 4, 0.4, 26, 1, 3, {20, 29}},  // a band of three
                                           {29, 4, 0.2, 13, 0, 2, {20, 0}},   // an even width is widened to odd
                                           {5, 8, 1, 1, 0, 0, {5, 3}},        // shorter than a block
                                           {7, 3, 0.01, 1, 0, 0, {7, 3}},
                                           {1, 8, 0.2, 1, 1, 1, {1, 1}}}) {
      INFO(name << " n " << c.n << " block " << c.block << " first " << c.first << " diag " << c.diag);
      const Inputs in = random_inputs(2, 2, c.n, 5);
      const BuiltCore core = make_core(name, budget(c.block, c.share, c.first, c.diag));
      const Settings with{std::min(c.block, c.n), c.chosen, c.first, c.diag};
      for (const SequenceMask& mask : {SequenceMask{}, length_mask(c.lengths, c.n)})
        CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask),
                             valid_rows(reference(in, mask, with, name == "mra2-s"), mask)) < 1e-10);
    }
}

TEST_CASE("mra2 equals its equations where tokens are missing in the middle") {
  const Inputs in = random_inputs(1, 2, 20, 5);
  SequenceMask mask{at::ones({1, 20}, at::kBool)};
  for (const int64_t gone : {0, 5, 8, 9, 10, 11}) mask.key_valid[0][gone] = false;  // block 2 is empty
  for (const std::string& name : kNames)
    CHECK(max_difference(valid_rows(make_core(name, budget(4, 0.3))(in.q, in.k, in.v, mask), mask),
                         valid_rows(reference(in, mask, {4, 8}, name == "mra2-s"), mask)) < 1e-10);
}

TEST_CASE("mra2 golden numbers") {
  // Blocks of two, queries 1; keys 0 0 | 0 ln 9 with mean ln 3; one fine pair: the rows tie, and of their pairs (0, 1)
  // and (1, 1) the first has the earlier place (1 and 3 times 0.618 mod 1).
  const at::Tensor q = column({1, 1, 1, 1}), k = column({0, 0, 0, std::log(9.0)}), v = column({0, 0, 12, 0});
  const auto run = [&](const std::string& name) {
    return make_core(name, budget(2, 0.25), {.heads = 1, .head_dim = 1})(q, k, v).flatten();
  };
  // Rows 0 and 1: 1 * 12 + 9 * 0 over 1 + 9 + 2 coarse. Rows 2 and 3: 2 * 3 * mean 6 over 2 * 1 + 2 * 3.
  CHECK(max_difference(run("mra2"), at::tensor({1., 1., 4.5, 4.5}, at::kDouble)) < 1e-12);
  CHECK(max_difference(run("mra2-s"), at::tensor({1.2, 1.2, 0., 0.}, at::kDouble)) < 1e-12);
}

TEST_CASE("mra2 with every pair fine equals softmax, by budget and by blocks per row") {
  for (const std::string& name : kNames)
    for (const int64_t n : {48, 45, 3}) {
      const Inputs in = random_inputs(2, 2, n, 5);
      const SequenceMask mask = length_mask({n, (n + 1) / 2}, n);
      for (const Json& options : {budget(8, 1), Json{{"block", 8}, {"blocks_per_row", 6}}}) {
        const at::Tensor out = make_core(name, options)(in.q, in.k, in.v, mask);
        CHECK(max_difference(valid_rows(out, mask), valid_rows(dense_softmax(in, mask), mask)) < 1e-10);
      }
    }
}

TEST_CASE("mra2 equals softmax on what is constant within blocks, whatever is refined") {
  const Inputs few = random_inputs(2, 2, 6, 5);
  const auto repeat = [](const at::Tensor& x) { return x.repeat_interleave(8, 2).narrow(2, 0, 45); };
  const Inputs in{repeat(few.q), repeat(few.k), repeat(few.v)};
  const SequenceMask mask = length_mask({45, 29}, 45);
  for (const double share : {0.01, 0.3, 0.6})
    CHECK(max_difference(valid_rows(make_core("mra2", budget(8, share))(in.q, in.k, in.v, mask), mask),
                         valid_rows(dense_softmax(in, mask), mask)) < 1e-10);
}

TEST_CASE("mra2-s with the diagonal alone is softmax within each block, and its defaults keep the diagonal") {
  const Inputs in = random_inputs(2, 2, 29, 5);
  const at::Tensor out = make_core("mra2-s", {{"block", 8}, {"blocks_per_row", 1}, {"first", 0}})(in.q, in.k, in.v);
  for (int64_t from = 0; from < 29; from += 8) {
    const auto part = [&](const at::Tensor& x) { return x.narrow(2, from, std::min<int64_t>(8, 29 - from)); };
    CHECK(max_difference(part(out), dense_softmax({part(in.q), part(in.k), part(in.v)})) < 1e-10);
  }
  const at::Tensor picked = refined(make_core("mra2-s", {{"block", 2}, {"blocks_per_row", 3}}), in);
  CHECK(picked.diagonal(0, -2, -1).min().item<double>() == 1);
}

TEST_CASE("mra2 refines as many pairs as its options say, also when all priorities are equal") {
  const Inputs in = random_inputs(2, 2, 48, 5), flat{at::zeros_like(in.q), at::zeros_like(in.k), in.v};
  for (const std::string& name : kNames) {
    const auto count = [&](const Json& options, const Inputs& inputs) {
      const at::Tensor pairs = refined(make_core(name, options), inputs).sum({-2, -1});
      CHECK(pairs.min().item<double>() == pairs.max().item<double>());
      return pairs.max().item<double>();
    };
    for (const Inputs& inputs : {in, flat}) {
      CHECK(count({{"block", 4}, {"blocks_per_row", 2}}, inputs) == 24);
      CHECK(count({{"block", 4}, {"blocks_per_row", 99}}, inputs) == 144);
      CHECK(count(budget(4, 0.25), inputs) == 36);
      CHECK(count(budget(8, 0.001), inputs) == 1);
      CHECK(count({}, inputs) == 4);  // 2 blocks of 32 tokens
    }
    // Ties are spread: 9 of 36 pairs are one or two of each of the six rows, and of each column at most two.
    const at::Tensor picked = refined(make_core(name, budget(8, 0.25)), flat);
    CHECK(picked.sum(-1).min().item<double>() == 1);
    CHECK(picked.sum(-1).max().item<double>() == 2);
    CHECK(picked.sum(-2).max().item<double>() <= 2);
    CHECK(max_difference(make_core(name, budget(8, 0.25))(flat.q, flat.k, flat.v),
                         reference(flat, {}, {8, 9}, name == "mra2-s")) < 1e-10);
  }
}

TEST_CASE("mra2 puts priors before every priority and empty blocks behind") {
  Inputs in = random_inputs(1, 2, 24, 5);
  in.q *= 100, in.k *= 100;  // priorities far beyond the published 5000 and 10000
  const at::Tensor first = refined(make_core("mra2", budget(4, 11.0 / 36, 1)), in);
  CHECK(first.select(-1, 0).min().item<double>() == 1);
  CHECK(first.select(-2, 0).min().item<double>() == 1);
  const at::Tensor band = refined(make_core("mra2", budget(4, 16.0 / 36, 0, 3)), in);
  for (const int64_t offset : {-1, 0, 1}) CHECK(band.diagonal(offset, -2, -1).min().item<double>() == 1);
  // Too few for all priors: pairs that have two or three of them come first, whatever the scores.
  const at::Tensor few = refined(make_core("mra2", budget(4, 3.0 / 36, 1, 3)), in);
  CHECK(few.narrow(-2, 0, 2).narrow(-1, 0, 2).sum({-2, -1}).min().item<double>() == 3);
  CHECK(few.select(-2, 1).select(-1, 1).max().item<double>() == 0);  // the band alone
  // Three of six blocks hold tokens: nine pairs at most are worth refining.
  const at::Tensor picked = refined(make_core("mra2", budget(4, 9.0 / 36)), in, length_mask({12}, 24));
  CHECK(picked.narrow(-1, 0, 3).narrow(-2, 0, 3).min().item<double>() == 1);
}

TEST_CASE("mra2 refines the pair where a constant query block meets ten times its own vector") {
  int found = 0;
  for (int seed = 0; seed < 20; ++seed) {
    Inputs in = random_inputs(1, 1, 48, 5, "peak" + std::to_string(seed));
    const at::Tensor u = random_tensor("u" + std::to_string(seed), {5});
    in.q[0][0].narrow(0, 16, 8).copy_(u.expand({8, 5}));
    in.k[0][0].narrow(0, 32, 8).copy_(10 * u.expand({8, 5}));
    found += refined(make_core("mra2", budget(8, 6.0 / 36), {.heads = 1}), in)[0][0][2][4].item<double>() == 1;
  }
  CHECK(found == 20);
}

TEST_CASE("mra2's coarse weight of a block is at most the exact one where the query block is constant (Jensen)") {
  Inputs in = random_inputs(1, 1, 32, 4);
  in.q = random_tensor("u", {1, 1, 1, 4}).expand({1, 1, 32, 4}).contiguous();
  in.v = at::eye(4, at::kDouble).repeat_interleave(8, 0).view({1, 1, 32, 4});  // the output is the weight of each block
  const BuiltCore core = make_core("mra2", budget(8, 1.0 / 16), {.heads = 1, .head_dim = 4});
  const at::Tensor picked = refined(core, in)[0][0];
  const int64_t position = picked.flatten().argmax().item<int64_t>(), row = position / 4, fine = position % 4;
  const at::Tensor got = core(in.q, in.k, in.v)[0][0][row * 8], exact = dense_softmax(in)[0][0][row * 8];
  const at::Tensor ratio = got / got[fine], wanted = exact / exact[fine];
  for (int64_t y = 0; y < 4; ++y) {
    if (y == fine) continue;
    CHECK(ratio[y].item<double>() < wanted[y].item<double>());
    CHECK(ratio[y].item<double>() > 0.1 * wanted[y].item<double>());
  }
}

TEST_CASE("mra2 works on patches of 4 x 8 pixels where the image has whole ones") {
  const auto build = [](const std::string& name, int64_t grid, int64_t pinned) {
    const Resolved attention = resolve(name);
    BuildContext context = make_context({.pinned = pinned});
    context.grid = grid;
    BuiltCore core{{build_core(attention, full_options(attention, budget(32, 0.3, 0, 1)), context), context.shared}};
    core.module->eval();
    return core;
  };
  for (const std::string& name : kNames)
    for (const int64_t pinned : {0, 3}) {
      const int64_t n = 128 + pinned;  // 8 rows of 16 pixels
      const Inputs in = random_inputs(2, 2, n, 5);
      const SequenceMask mask = length_mask({n, 77}, n);
      std::vector<int64_t> order;
      for (int64_t i = 0; i < pinned; ++i) order.push_back(i);
      for (int64_t down = 0; down < 2; ++down)
        for (int64_t across = 0; across < 2; ++across)
          for (int64_t y = 0; y < 4; ++y)
            for (int64_t x = 0; x < 8; ++x) order.push_back(pinned + (down * 4 + y) * 16 + across * 8 + x);
      const at::Tensor index = at::tensor(order, at::kLong);
      const auto moved = [&](const at::Tensor& x) { return x.index_select(2, index); };
      const Inputs patches{moved(in.q), moved(in.k), moved(in.v)};
      const SequenceMask patch_mask{mask.key_valid.index_select(1, index)};
      const BuiltCore image = build(name, 16, pinned), raster = build(name, 0, pinned);
      const at::Tensor out = image(in.q, in.k, in.v, mask);
      CHECK(max_difference(moved(out), raster(patches.q, patches.k, patches.v, patch_mask)) < 1e-12);
      CHECK(max_difference(image(in.q, in.k, in.v), raster(in.q, in.k, in.v)) > 1e-3);
      for (const int64_t grid : {12, 64})  // no whole patches
        CHECK(at::equal(build(name, grid, pinned)(in.q, in.k, in.v, mask), raster(in.q, in.k, in.v, mask)));
    }
}

TEST_CASE("mra2 takes any length of the published tasks with its defaults, forward and backward") {
  for (const std::string& name : kNames)
    for (const int64_t n : {1, 2, 7, 29, 93, 144, 315, 405, 1024, 1751}) {
      INFO(name << " n " << n);
      Inputs in = random_inputs(1, 2, n, 5);
      for (at::Tensor* x : {&in.q, &in.k, &in.v}) *x = x->to(at::kFloat).requires_grad_(true);
      const OpCounter counter;
      const at::Tensor out = make_core(name, {}, {.type = at::kFloat})(in.q, in.k, in.v, length_mask({(n + 1) / 2}, n));
      out.sum().backward();
      CHECK(counter.counts().reads == 0);
      CHECK(out.isfinite().all().item<bool>());
      for (const at::Tensor& x : {in.q, in.k, in.v}) CHECK(x.grad().isfinite().all().item<bool>());
    }
}

TEST_CASE("mra2's gradient reaches what is only coarse, and that of mra2-s does not") {
  for (const std::string& name : kNames) {
    Inputs in = random_inputs(1, 1, 16, 5);
    for (at::Tensor* x : {&in.q, &in.k, &in.v}) x->requires_grad_(true);
    const BuiltCore core = make_core(name, budget(4, 1.0 / 16), {.heads = 1});
    const int64_t position = refined(core, in).flatten().argmax().item<int64_t>();
    core(in.q, in.k, in.v).square().sum().backward();
    for (int64_t block = 0; block < 4; ++block) {
      const auto largest = [&](const at::Tensor& x) {
        return x.grad().narrow(2, block * 4, 4).abs().max().item<double>();
      };
      CHECK((largest(in.q) > 1e-6) == (name == "mra2" || block == position / 4));
      CHECK((largest(in.k) > 1e-6) == (name == "mra2" || block == position % 4));
      CHECK((largest(in.v) > 1e-6) == (name == "mra2" || block == position % 4));
    }
  }
}

TEST_CASE("mra2 drops normalised weights, fine and coarse") {
  const Inputs in = random_inputs(1, 2, 64, 5);
  const at::Tensor ones = at::ones_like(in.v);
  for (const double share : {0.01, 1.0}) {
    BuiltCore core = make_core("mra2", budget(4, share), {.dropout = 0.25});
    core.module->train();
    const at::Tensor out = core(in.q, in.k, ones);
    CHECK((out - 1).abs().max().item<double>() > 0.05);
    CHECK(out.mean().item<double>() == Approx(1).epsilon(0.05));
    CHECK((out[0][0].select(1, 0) - out[0][0].select(1, 1)).abs().max().item<double>() <
          1e-12);  // of all columns alike
  }
}

TEST_CASE("mra2 adds no parameters, and its FLOPs are those of pairs and of the grid of blocks") {
  for (const std::string& name : kNames) {
    int64_t count = 0;
    const BuiltMixer mixer = make_mixer(name, {}, {.heads = 2, .head_dim = 32, .max_len = 2048});
    for (const auto& [key, value] : mixer.parameters()) count += value.numel();
    CHECK(count == 16640);
    // 8 of 64 blocks per row: 4 * 512 * 32^2 * 32 and 4 (or 2) * 64^2 * 32, for each of 3 * 2 heads.
    const BuiltCore core = make_core(name, {}, {.head_dim = 32, .max_len = 2048});
    const double grid = (name == "mra2" ? 4 : 2) * 4096 * 32.0;
    CHECK(core.module->cost({3, 2, 2048, 2048, 32}).flops_executed == 6 * (4 * 512 * 1024 * 32.0 + grid));
    // Twice the length doubles what is fine.
    CHECK(core.module->cost({3, 2, 4096, 4096, 32}).flops_executed == 6 * (4 * 1024 * 1024 * 32.0 + 4 * grid));
    CHECK(core.module->cost({1, 1, 2048, 2048, 32}).peak_elements == 2 * 512 * 1024 + 3 * 512 * 32 * 32 + 3 * 4096);
  }
}

}  // namespace xformer::attention::mra_test
