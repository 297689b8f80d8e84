// bpt (attention-more 12).
#include <algorithm>
#include <cmath>

#include "attention/support.h"
#include "tensor/op_counter.h"

namespace xformer::attention::bpt_test {

using namespace support;

struct Node {
  int64_t level, index, type;
};

// What leaf i reads, from the authors' walk outwards; `half`: a node of the level below comes first.
std::vector<Node> reads(int64_t i, int64_t n, int64_t k, int64_t clip, bool causal) {
  std::vector<int64_t> sizes{n};
  while (sizes.back() > 1) sizes.push_back((sizes.back() + 1) / 2);
  std::vector<Node> result{{0, i, 0}};
  int64_t l = i - 1, r = i + 1;
  bool left_half = false, right_half = false;
  for (int64_t level = 0; level < static_cast<int64_t>(sizes.size()); ++level) {
    const int64_t base = (2 * k + 1) * std::min(level, clip), size = sizes[static_cast<size_t>(level)];
    for (int64_t a = 1; a <= k; ++a) {
      if (!causal && r < size) {
        const int64_t child = 2 * r + 1;
        if (right_half && child < sizes[static_cast<size_t>(level) - 1])
          result.push_back({level - 1, child, base + 2 * a}), right_half = false;
        else if (!right_half) result.push_back({level, r, base + 2 * a});
      }
      ++r;
      if (l >= 0)
        result.push_back(left_half ? Node{level - 1, 2 * l, base + 2 * a - 1} : Node{level, l, base + 2 * a - 1});
      if (l >= 0) left_half = false;
      --l;
    }
    if (l % 2 == 0) left_half = true;
    if (r % 2 == 1) right_half = true;
    l = l >= 0 ? l / 2 : (l - 1) / 2;
    r /= 2;
  }
  return result;
}

int64_t first_leaf(const Node& node) { return node.index << node.level; }
int64_t end_leaf(const Node& node, int64_t n) { return std::min(n, (node.index + 1) << node.level); }

int64_t levels_of(int64_t n) {
  int64_t result = 1;
  for (; n > 1; n = (n + 1) / 2) ++result;
  return result;
}

TEST_CASE("bpt's graph has the published edges, and every leaf's nodes hold each token once") {
  const auto edges = [](int64_t n, int64_t k, bool causal) {
    int64_t result = n * (levels_of(n) - 1);  // of spans to their leaves
    for (int64_t i = 0; i < n; ++i) result += static_cast<int64_t>(reads(i, n, k, 5, causal).size());
    return result;
  };
  for (const auto& [n, k, both, causal] : {std::tuple{8, 2, 76, 54},
                                           {16, 1, 178, 129},
                                           {64, 4, 1938, 1193},
                                           {1024, 1, 29698, 20481},
                                           {1024, 4, 65778, 38521},
                                           {1024, 8, 103382, 57323},
                                           {1024, 1024, 1058816, 535040}}) {
    CHECK(edges(n, k, false) == both);
    CHECK(edges(n, k, true) == causal);
  }
  for (const int64_t n : {1, 2, 3, 7, 12, 33, 64})
    for (const int64_t k : {1, 2, 4, 100})
      for (const bool causal : {false, true})
        for (int64_t i = 0; i < n; ++i) {
          std::vector<int64_t> times(static_cast<size_t>(n), 0);
          for (const Node& node : reads(i, n, k, 5, causal))
            for (int64_t j = first_leaf(node); j < end_leaf(node, n); ++j) ++times[static_cast<size_t>(j)];
          for (int64_t j = 0; j < n; ++j) REQUIRE(times[static_cast<size_t>(j)] == (!causal || j <= i ? 1 : 0));
        }
}

using Tensors = std::map<std::string, at::Tensor>;

at::Tensor norm(const Tensors& t, const std::string& name, const at::Tensor& x) {
  const at::Tensor mean = x.mean(-1, true), variance = (x - mean).square().mean(-1, true);
  return (x - mean) / at::sqrt(variance + 1e-5) * t.at(name + "_weight") + t.at(name + "_bias");
}

// A layer of one sample, a node and a head at a time. states: of all nodes by level [nodes of it, m].
std::vector<at::Tensor> layer(const Tensors& t, const std::vector<at::Tensor>& states, const std::vector<bool>& valid,
                              int64_t k, int64_t clip, bool causal) {
  const int64_t n = states[0].size(0), heads = 2, d = 5;
  const auto map = [&](const std::string& name, const at::Tensor& x) {
    const at::Tensor rows = at::matmul(x, t.at(name + ".weight").t());
    return t.count(name + ".bias") == 1 ? rows + t.at(name + ".bias") : rows;
  };
  const auto counts = [&](const Node& node) {
    for (int64_t j = first_leaf(node); j < end_leaf(node, n); ++j)
      if (valid[static_cast<size_t>(j)]) return true;
    return false;
  };
  std::vector<at::Tensor> result;
  for (size_t level = 0; level < states.size(); ++level) {
    std::vector<at::Tensor> rows;
    for (int64_t y = 0; y < states[level].size(0); ++y) {
      const Node own{static_cast<int64_t>(level), y, 0};
      std::vector<Node> seen = level == 0 ? reads(y, n, k, clip, causal) : std::vector<Node>{};
      if (level > 0)
        for (int64_t j = first_leaf(own); j < end_leaf(own, n); ++j) seen.push_back({0, j, 0});
      std::erase_if(seen, [&](const Node& node) { return !counts(node); });
      at::Tensor mixed = at::zeros({heads * d}, at::kDouble);
      for (int64_t h = 0; h < heads && !seen.empty(); ++h) {
        const auto head = [&](const at::Tensor& x) { return x.narrow(-1, h * d, d); };
        const at::Tensor q = head(map("query", states[level][y]));
        std::vector<at::Tensor> scores, values;
        for (const Node& node : seen) {
          const at::Tensor x = states[static_cast<size_t>(node.level)][node.index];
          scores.push_back((q * (head(map("key", x)) + t.at("relative")[node.type])).sum() / std::sqrt(5.0));
          values.push_back(head(map("value", x)));
        }
        head(mixed).copy_(at::matmul(at::softmax(at::stack(scores), 0), at::stack(values)));
      }
      const at::Tensor half = norm(t, "norm", states[level][y] + map("out", mixed));
      rows.push_back(norm(t, "ff_norm", half + map("ff_out", at::relu(map("ff_in", half)))));
    }
    result.push_back(at::stack(rows));
  }
  return result;
}

Tensors tensors_of(const BuiltMixer& block) {
  Tensors result;
  for (const auto& [key, value] : block.state()) result[key] = value.detach();
  return result;
}

BuiltMixer make(int64_t layer, int64_t k, int64_t clip, bool causal) {
  const BuiltMixer block =
      make_mixer("bpt", {{"neighbours", k}, {"level_clip", clip}, {"ff_dim", 7}}, {.layer = layer, .causal = causal});
  for (const auto& [key, value] : block.parameters())  // gains and biases that begin as 1 and 0 would hide errors
    value.data().add_(random_tensor(key + std::to_string(layer), value.sizes()), 0.3);
  return block;
}

TEST_CASE("two layers of bpt equal the graph a node at a time, ragged, of any length, causal or not") {
  for (const auto& [k, clip] : {std::pair{1, 5}, {2, 1}, {4, 0}, {40, 5}})
    for (const bool causal : {false, true})
      for (const int64_t n : {13, 8, 3, 2, 1}) {
        INFO("k " << k << " clip " << clip << " causal " << causal << " n " << n);
        const BuiltMixer first = make(0, k, clip, causal), second = make(1, k, clip, causal);
        const at::Tensor x = random_tensor("x", {2, n, 10});
        for (const SequenceMask& mask :
             {SequenceMask{{}, causal}, length_mask({n, (2 * n + 2) / 3}, n, causal), length_mask({1, n}, n, causal)}) {
          at::Tensor expected = at::zeros_like(x);
          for (int64_t b = 0; b < 2; ++b) {
            std::vector<bool> valid;
            for (int64_t i = 0; i < n; ++i) valid.push_back(mask.all_valid() || mask.key_valid[b][i].item<bool>());
            std::vector<at::Tensor> states{norm(tensors_of(first), "entry_norm", x[b])};
            for (int64_t nodes = n; nodes > 1;) {
              nodes = (nodes + 1) / 2;
              states.push_back(at::zeros({nodes, 10}, at::kDouble));
            }
            states = layer(tensors_of(first), states, valid, k, clip, causal);
            expected[b] = layer(tensors_of(second), states, valid, k, clip, causal)[0];
          }
          Carry carry;
          const at::Tensor between = first.module->forward(x, mask, carry);
          CHECK(carry.at("bpt/spans").size(1) == (n == 1 ? 0 : n == 2 ? 1 : n == 3 ? 3 : n == 8 ? 7 : 14));
          CHECK(max_difference(second.module->forward(between, mask, carry), valid_rows(expected, mask)) < 1e-10);
        }
      }
}

TEST_CASE("with as many neighbours as tokens a leaf attends to all leaves, by their distance") {
  const int64_t n = 11;
  for (const bool causal : {false, true}) {
    const BuiltMixer block = make(1, n, 0, causal);
    const Tensors t = tensors_of(block);
    const at::Tensor x = random_tensor("x", {1, n, 10});
    const auto heads = [&](const char* name) {
      return at::matmul(x, t.at(name).t()).view({1, n, 2, 5}).transpose(1, 2).contiguous();
    };
    const at::Tensor q = heads("query.weight"), k = heads("key.weight"), v = heads("value.weight");
    const SequenceMask mask{{}, causal};
    const at::Tensor mixed = dense_attention(v, mask, n, [&](int64_t, int64_t h, int64_t i, int64_t j) {
      const int64_t type = j == i ? 0 : j > i ? 2 * (j - i) : 2 * (i - j) - 1;
      return std::exp((q[0][h][i] * (k[0][h][j] + t.at("relative")[type])).sum().item<double>() / std::sqrt(5.0));
    });
    const at::Tensor rows = mixed.transpose(1, 2).reshape({1, n, 10});
    const at::Tensor half = norm(t, "norm", x + at::matmul(rows, t.at("out.weight").t()));
    const at::Tensor hidden = at::relu(at::matmul(half, t.at("ff_in.weight").t()) + t.at("ff_in.bias"));
    const at::Tensor fed = at::matmul(hidden, t.at("ff_out.weight").t()) + t.at("ff_out.bias");
    CHECK(max_difference(block(x, mask), norm(t, "ff_norm", half + fed)) < 1e-10);
  }
}

TEST_CASE("the program's graph has the published edges") {
  // What its products leave beside those of 8 m c + 4 m f for each node and of 2 c for each leaf and vector.
  const auto edges = [](int64_t n, int64_t k, bool causal) {
    const double c = 10, f = 7, nodes = static_cast<double>(2 * n - 1), types = static_cast<double>((2 * k + 1) * 6);
    const double all = make(1, k, 5, causal).module->cost(1, n).flops_pattern;
    return (all - nodes * (8 * c * c + 4 * c * f) - 2 * static_cast<double>(n) * c * types) / (4 * c);
  };
  CHECK((edges(8, 2, false) == 76 && edges(8, 2, true) == 54));
  CHECK((edges(16, 1, false) == 178 && edges(16, 1, true) == 129));
  CHECK((edges(64, 4, false) == 1938 && edges(64, 4, true) == 1193));
  CHECK((edges(1024, 1, false) == 29698 && edges(1024, 1, true) == 20481));
  CHECK((edges(1024, 8, false) == 103382 && edges(1024, 8, true) == 57323));
  CHECK((edges(1024, 1024, false) == 1058816 && edges(1024, 1024, true) == 535040));
}

TEST_CASE("spans leave the first layer with the mean of their tokens' values, as they begin without a query") {
  const int64_t n = 13;
  for (const bool causal : {false, true}) {
    const BuiltMixer block = make(0, 2, 5, causal);
    const Tensors t = tensors_of(block);
    const at::Tensor x = random_tensor("x", {1, n, 10});
    Carry carry;
    (void)block.module->forward(x, {{}, causal}, carry);
    const at::Tensor values = at::matmul(norm(t, "entry_norm", x[0]), t.at("value.weight").t());
    std::vector<at::Tensor> means;
    for (int64_t level = 1; level < levels_of(n); ++level)
      for (int64_t first = 0; first < n; first += int64_t{1} << level)
        means.push_back(values.narrow(0, first, std::min(int64_t{1} << level, n - first)).mean(0));
    const at::Tensor half = norm(t, "norm", at::matmul(at::stack(means), t.at("out.weight").t()));
    const at::Tensor hidden = at::relu(at::matmul(half, t.at("ff_in.weight").t()) + t.at("ff_in.bias"));
    const at::Tensor fed = at::matmul(hidden, t.at("ff_out.weight").t()) + t.at("ff_out.bias");
    CHECK(max_difference(carry.at("bpt/spans")[0], norm(t, "ff_norm", half + fed)) < 1e-10);
  }
}

TEST_CASE("no later token changes a row of causal bpt in any bit, through two layers") {
  const int64_t n = 37;
  const BuiltMixer first = make(0, 2, 5, true), second = make(1, 2, 5, true);
  const at::Tensor x = random_tensor("x", {1, n, 10}), later = random_tensor("later", {1, n, 10});
  const auto run = [&](const at::Tensor& in) {
    Carry carry;
    const at::Tensor between = first.module->forward(in, {{}, true}, carry);
    return second.module->forward(between, {{}, true}, carry);
  };
  const at::Tensor out = run(x);
  for (const int64_t seen : {1, 2, 16, 17, 36})
    CHECK(run(at::cat({x.narrow(1, 0, seen), later.narrow(1, seen, n - seen)}, 1))
              .narrow(1, 0, seen)
              .equal(out.narrow(1, 0, seen)));
}

TEST_CASE("bpt's FLOPs are counted ones, and its pattern has an edge's products for each edge") {
  for (const bool causal : {false, true})
    for (const int64_t n : {48, 13, 1}) {
      const BuiltMixer block = make(1, 2, 5, causal);
      const OpCounter counter;
      (void)block(random_tensor("x", {3, n, 10}), {{}, causal});
      CHECK(static_cast<double>(counter.counts().flops) == block.module->cost(3, n).flops_executed);
      double edges = static_cast<double>(n * (levels_of(n) - 1)), nodes = 0;
      for (int64_t i = 0; i < n; ++i) edges += static_cast<double>(reads(i, n, 2, 5, causal).size());
      for (int64_t size = n;; size = (size + 1) / 2) {
        nodes += static_cast<double>(size);
        if (size == 1) break;
      }
      CHECK(block.module->cost(1, n).flops_pattern ==
            nodes * (8 * 100 + 4 * 10 * 7) + 2 * 10 * static_cast<double>(n) * 30 + 4 * 10 * edges);
    }
}

TEST_CASE("bpt's defaults, parameters and refusals") {
  const auto count = [](int64_t layer) {
    int64_t result = 0;
    for (const auto& [key, tensor] :
         make_mixer("bpt", {{"ff_dim", 128}}, {.head_dim = 32, .max_len = 2048, .layer = layer}).parameters())
      result += tensor.numel();
    return result;
  };
  CHECK(count(1) == 34944);
  CHECK(count(0) == 34944 + 2 * 64);  // a norm in front
  CHECK(full_options(resolve("bp-transformer"))["neighbours"] == 4);
  CHECK_THROWS_AS(make_mixer("bpt", {{"neighbours", 0}}), UserError);
  CHECK_THROWS_AS(resolve("mrs-bpt"), UserError);
}

}  // namespace xformer::attention::bpt_test
