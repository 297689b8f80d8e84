// image-local-1d and image-local-2d (attention-more 8).
#include <cmath>

#include "attention/support.h"
#include "tensor/op_counter.h"

namespace xformer::attention::image_local_test {

using namespace support;

// Whether place i may read place j, by distances from i's block.
using Rule = std::function<bool(int64_t i, int64_t j)>;

Rule line_rule(int64_t block, int64_t memory) {
  return [=](int64_t i, int64_t j) {
    const int64_t first = i / block * block;
    return j >= first - memory && j < first + block + memory;
  };
}

Rule grid_rule(int64_t m, int64_t hq, int64_t wq, int64_t hm, int64_t wm) {
  return [=](int64_t i, int64_t j) {
    const int64_t top = i / m / hq * hq, left = i % m / wq * wq;
    return j / m >= top - hm && j / m < top + hq + hm && j % m >= left - wm && j % m < left + wq + wm;
  };
}

struct Case {
  std::string name;
  Json options;
  Rule rule;
};

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const auto& [block, memory] : {std::pair{4, 4}, {4, 8}, {5, 3}, {3, 0}, {50, 0}, {1, 1}, {7, 50}})
    result.push_back({"image-local-1d", {{"block", block}, {"memory_length", memory}}, line_rule(block, memory)});
  for (const auto& [m, hq, wq, hm, wm] : {std::tuple{6, 2, 2, 1, 1},
                                          {6, 2, 3, 2, 0},
                                          {7, 3, 2, 1, 3},
                                          {5, 2, 9, 0, 0},
                                          {8, 1, 4, 3, 2},
                                          {4, 50, 50, 0, 0}})
    result.push_back(
        {"image-local-2d",
         {{"columns", m}, {"block_height", hq}, {"block_width", wq}, {"memory_height", hm}, {"memory_width", wm}},
         grid_rule(m, hq, wq, hm, wm)});
  return result;
}

bool allowed(const Rule& rule, bool causal, int64_t pinned, int64_t i, int64_t j) {
  if (causal && j > i) return false;
  return i < pinned || j < pinned || rule(i - pinned, j - pinned);
}

at::Tensor reference(const Inputs& in, const SequenceMask& mask, const Rule& rule, int64_t pinned = 0) {
  const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(static_cast<double>(in.q.size(-1)));
  const auto s = scores.accessor<double, 4>();
  return dense_attention(in.v, mask, in.q.size(2), [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    return allowed(rule, mask.causal, pinned, i, j) ? std::exp(s[b][h][i][j]) : 0;
  });
}

BuiltCore make(const Case& c, bool causal, int64_t pinned = 0) {
  return make_core(c.name, c.options, {.max_len = 60, .pinned = pinned, .causal = causal});
}

TEST_CASE("image-local equals the dense softmax over blocks and memory, ragged, of any length, with pinned tokens") {
  for (const Case& c : cases())
    for (const bool causal : {false, true})
      for (const int64_t pinned : {0, 2})
        for (const int64_t n : {48, 47, 17, 3, 2, 1}) {
          INFO(c.name << " " << c.options.dump() << " causal " << causal << " pinned " << pinned << " n " << n);
          const Inputs in = random_inputs(2, 2, n, 5);
          const BuiltCore core = make(c, causal, pinned);
          for (const SequenceMask& mask :
               {SequenceMask{{}, causal}, length_mask({n, (2 * n + 2) / 3}, n, causal), length_mask({1, n}, n, causal)})
            CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask),
                                 valid_rows(reference(in, mask, c.rule, pinned), mask)) < 1e-10);
        }
}

TEST_CASE("image-local golden numbers") {
  const Setup one{.heads = 1, .head_dim = 1};
  const at::Tensor q = at::ones({1, 1, 6, 1}, at::kDouble), v = column({6, 1, 4, 2, 8, 3});
  const at::Tensor k = column({0, std::log(2.0), 0, 0, std::log(3.0), 0});
  // Blocks of two and one place of memory on each side: row 2 sees 1 to 4, weights 2, 1, 1, 3 on 1, 4, 2, 8.
  const at::Tensor line = make_core("image-local-1d", {{"block", 2}, {"memory_length", 1}}, one)(q, k, v).flatten();
  CHECK(line[2].item<double>() == Approx((2 * 1 + 4 + 2 + 3 * 8) / 7.0));
  // A grid of two rows of three cells, blocks of one cell and one column of memory: cell 4 sees 3, 4 and 5 of its row.
  const Json cells{{"columns", 3}, {"block_height", 1}, {"block_width", 1}, {"memory_height", 0}, {"memory_width", 1}};
  CHECK(make_core("image-local-2d", cells, one)(q, k, v).flatten()[4].item<double>() == Approx((2 + 3 * 8 + 3) / 5.0));
}

TEST_CASE("image-local-2d reads exactly the cells of its rule on six by six, both ways") {
  const int64_t n = 36;
  const at::Tensor x = random_tensor("x", {1, 2, n, n}), eye = at::eye(n, at::kDouble).expand({1, 2, n, n});
  const Json options{
      {"columns", 6}, {"block_height", 2}, {"block_width", 3}, {"memory_height", 1}, {"memory_width", 2}};
  for (const bool causal : {false, true}) {
    const at::Tensor read =
        make_core("image-local-2d", options, {.head_dim = n, .max_len = n, .causal = causal})(x, x, eye, {{}, causal});
    at::Tensor expected = at::zeros({n, n}, at::kBool);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) expected[i][j] = allowed(grid_rule(6, 2, 3, 1, 2), causal, 0, i, j);
    CHECK(read[0][1].ne(0).equal(expected));
  }
}

TEST_CASE("one block of image-local is softmax, one line of it is the other, and memory fills up behind block one") {
  const int64_t n = 30;
  const Inputs in = random_inputs(2, 2, n, 5);
  for (const bool causal : {false, true}) {
    const SequenceMask mask = length_mask({n, 19}, n, causal);
    const at::Tensor exact = valid_rows(dense_softmax(in, mask), mask);
    const auto difference = [&](const std::string& name, const Json& options, const at::Tensor& meant) {
      return max_difference(valid_rows(make_core(name, options, {.causal = causal})(in.q, in.k, in.v, mask), mask),
                            meant);
    };
    CHECK(difference("image-local-1d", {{"block", n}, {"memory_length", 0}}, exact) < 1e-10);
    CHECK(difference("image-local-2d", {{"columns", 6}, {"block_height", 5}, {"block_width", 6}}, exact) < 1e-10);
    const at::Tensor line =
        make_core("image-local-1d", {{"block", 4}, {"memory_length", 8}}, {.causal = causal})(in.q, in.k, in.v, mask);
    CHECK(
        difference("image-local-2d",
                   {{"columns", n}, {"block_height", 1}, {"block_width", 4}, {"memory_height", 0}, {"memory_width", 8}},
                   line) < 1e-10);
  }
  for (int64_t i = 0; i < n; ++i) {  // causal, l_m = l_q
    int64_t seen = 0;
    for (int64_t j = 0; j < n; ++j) seen += allowed(line_rule(5, 5), true, 0, i, j);
    if (i >= 5) CHECK((seen >= 6 && seen <= 10));
  }
}

TEST_CASE("causal image-local gives rows that no later token changes, in any bit") {
  const int64_t n = 47;
  const Inputs in = random_inputs(1, 2, n, 5), other = random_inputs(1, 2, n, 5, "later");
  for (const Case& c : cases())
    for (const int64_t pinned : {0, 1}) {
      INFO(c.name << " " << c.options.dump() << " pinned " << pinned);
      const BuiltCore core = make(c, true, pinned);
      const at::Tensor out = core(in.q, in.k, in.v, {{}, true});
      for (const int64_t seen : {1, 6, 7, 31, 46}) {
        const auto mixed = [&](const at::Tensor& a, const at::Tensor& b) {
          return at::cat({a.narrow(2, 0, seen), b.narrow(2, seen, n - seen)}, 2);
        };
        const at::Tensor changed = core(mixed(in.q, other.q), mixed(in.k, other.k), mixed(in.v, other.v), {{}, true});
        CHECK(changed.narrow(2, 0, seen).equal(out.narrow(2, 0, seen)));
      }
    }
}

TEST_CASE("image-local's pairs are those counted in the mask, and its FLOPs counted ones") {
  for (const Case& c : cases())
    for (const bool causal : {false, true})
      for (const int64_t pinned : {0, 2})
        for (const int64_t n : {48, 47, 3, 2}) {
          INFO(c.name << " " << c.options.dump() << " causal " << causal << " pinned " << pinned << " n " << n);
          int64_t counted = 0;
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < n; ++j) counted += allowed(c.rule, causal, pinned, i, j) ? 1 : 0;
          const BuiltCore core = make(c, causal, pinned);
          const Cost cost = core.module->cost({1, 1, n, n, 1});
          CHECK(cost.flops_pattern == 4.0 * static_cast<double>(counted));
          CHECK(cost.flops_pattern <= cost.flops_executed);
          const Inputs in = random_inputs(2, 2, n, 5);
          const OpCounter counter;
          core(in.q, in.k, in.v, {{}, causal});
          CHECK(static_cast<double>(counter.counts().flops) == core.module->cost({2, 2, n, n, 5}).flops_executed);
        }
  // Causal, whole blocks: 4 n (l_q + l_m) d, of which the first block's memory is not there.
  const auto pairs = [](int64_t n) {
    return make_core("image-local-1d", {{"block", 8}, {"memory_length", 16}}, {.causal = true})
               .module->cost({1, 1, n, n, 1})
               .flops_executed /
           4;
  };
  CHECK(pairs(48) == 48 * (8 + 16));
}

TEST_CASE("image-local passes the gradient of blocks and memory") {
  for (const Case& c : {cases()[2], cases()[8]}) {
    const BuiltCore core = make(c, false);
    const Inputs in = random_inputs(2, 2, 20, 4);
    const SequenceMask mask = length_mask({20, 13}, 20);
    const at::Tensor weights = random_tensor("weights", {2, 2, 20, 4});
    at::Tensor closed = at::ones({2, 1, 20, 20}, at::kBool);
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = 0; i < 20; ++i)
        for (int64_t j = 0; j < (b == 0 ? 20 : 13); ++j) closed[b][0][i][j] = !c.rule(i, j);
    for (const at::Tensor& x : {in.q, in.k, in.v}) {
      const auto gradient = [&](const std::function<at::Tensor()>& out) {
        x.mutable_grad() = at::Tensor();
        x.requires_grad_(true);
        (valid_rows(out(), mask) * weights).sum().backward();
        x.requires_grad_(false);
        return x.grad().clone();
      };
      const at::Tensor dense = gradient([&] {
        const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / 2;
        return at::matmul(at::softmax(scores.masked_fill(closed, -1e300), -1).masked_fill(closed, 0), in.v);
      });
      CHECK(max_difference(gradient([&] { return core(in.q, in.k, in.v, mask); }), dense) < 1e-10);
    }
  }
}

TEST_CASE("image-local has no parameters of its own, the published sizes, and refuses what is no block") {
  const Json line = full_options(resolve("image-local-1d")), grid = full_options(resolve("image-local-2d"));
  CHECK(line["block"] == 256);
  CHECK(line["memory_length"] == 256);
  for (const char* key : {"block_height", "block_width", "memory_height", "memory_width"}) CHECK(grid[key] == 8);
  for (const std::string name : {"image-local-1d", "image-local-2d"}) {
    int64_t count = 0;
    for (const auto& [key, value] : make_mixer(name, {}, {.head_dim = 32, .max_len = 2048}).state())
      count += value.numel();
    CHECK(count == 16640);
  }
  CHECK_THROWS_AS(make_core("image-local-1d", {{"block", 0}}), UserError);
  CHECK_THROWS_AS(make_core("image-local-2d", {{"block_width", 0}}), UserError);
}

}  // namespace xformer::attention::image_local_test
