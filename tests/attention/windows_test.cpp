// Windows and blocks in products of blocks, and extra keys, against masks in loops.
#include "attention/shared/windows.h"

#include "attention/support.h"
#include "tensor/op_counter.h"

namespace xformer::attention::windows_test {

using namespace support;

// Pairs as the definition says them, one by one.
using Pattern = std::function<bool(int64_t i, int64_t j)>;

struct Case {
  std::string name;
  Windows windows;
  Pattern sees;
};

int64_t block_of(int64_t i, int64_t block) { return i / block; }

std::vector<Case> cases(int64_t n) {
  std::vector<Case> result;
  for (const bool causal : {false, true}) {
    const auto sees = [causal](const Pattern& pattern) {
      return [causal, pattern](int64_t i, int64_t j) { return (!causal || j <= i) && pattern(i, j); };
    };
    for (const int64_t w : {0, 1, 4, 17, 40, 1000})
      for (const int64_t r : {1, 3}) {
        const auto near = [w, r](int64_t i, int64_t j) { return std::abs(i - j) <= w * r && (i - j) % r == 0; };
        result.push_back({fmt::format("sliding {} by {}, causal {}", w, r, causal),
                          Windows::sliding(n, w, causal ? 0 : w, r), sees(near)});
      }
    for (const int64_t b : {1, 6, 50, 1000}) {
      const auto same = [b](int64_t i, int64_t j) { return block_of(i, b) == block_of(j, b); };
      result.push_back({fmt::format("block {}, causal {}", b, causal), Windows::own_block(n, b, causal), sees(same)});
      const auto beside = [b](int64_t i, int64_t j) { return std::abs(block_of(i, b) - block_of(j, b)) <= 1; };
      result.push_back({fmt::format("neighbour blocks of {}, causal {}", b, causal),
                        Windows::neighbour_blocks(n, b, causal), sees(beside)});
      const auto strided = [b](int64_t i, int64_t j) {
        return (i - j) % 3 == 0 && block_of(i / 3, b) == block_of(j / 3, b);
      };
      result.push_back(
          {fmt::format("strided block {}, causal {}", b, causal), Windows::own_block(n, b, causal, 3), sees(strided)});
    }
  }
  const auto lopsided = [](int64_t i, int64_t j) { return i - 9 <= j && j <= i + 3; };
  result.push_back({"sliding 9 back 3 ahead", Windows::sliding(n, 9, 3), lopsided});
  return result;
}

// softmax over the pairs that `sees` allows among valid keys.
at::Tensor reference(const Inputs& in, const SequenceMask& mask, const Pattern& sees) {
  const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(static_cast<double>(in.q.size(-1)));
  const auto s = scores.accessor<double, 4>();
  return dense_attention(in.v, mask, in.q.size(2), [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    return sees(i, j) ? std::exp(s[b][h][i][j]) : 0;
  });
}

TEST_CASE("windows equal their masks in loops at any length and validity, and cost what is said") {
  int count = 0;
  for (const int64_t n : {1, 2, 7, 48, 61, 150}) {
    const Inputs in = random_inputs(2, 2, n, 3);
    SequenceMask holes = length_mask({n, (n + 1) / 2}, n);
    holes.key_valid[0].slice(0, 1, n, 4).fill_(false);  // validity need not be a prefix
    for (const Case& item : cases(n))
      for (const SequenceMask& mask : {SequenceMask{}, holes}) {
        INFO(item.name << " n " << n);
        const OpCounter counter;
        const at::Tensor out = window_attention(in.q, in.k, in.v, mask.key_valid, item.windows, {}, false);
        const double products = 4 * 2 * 2 * 3 * item.windows.executed_pairs();
        if (mask.all_valid()) CHECK(static_cast<double>(counter.counts().flops) == products);
        else CHECK(static_cast<double>(counter.counts().flops) <= products);
        CHECK(max_difference(out, valid_rows(reference(in, mask, item.sees), mask)) < 1e-10);
        int64_t pairs = 0;
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < n; ++j) pairs += item.sees(i, j);
        CHECK(item.windows.pattern_pairs() == static_cast<double>(pairs));
        CHECK(item.windows.executed_pairs() >= static_cast<double>(pairs));
        ++count;
      }
  }
  CHECK(count == 588);
}

TEST_CASE("gradients through windows equal those through the masked [n, n] weights") {
  const int64_t n = 61;
  const SequenceMask mask = length_mask({n, 20}, n);
  for (const Case& item : cases(n)) {
    INFO(item.name);
    Inputs in = random_inputs(2, 2, n, 3);
    for (at::Tensor* x : {&in.q, &in.k, &in.v}) x->requires_grad_(true);
    const at::Tensor weights = valid_rows(random_tensor("weights", {2, 2, n, 3}), mask);  // rows of padding are zero
    at::Tensor forbidden = at::ones({2, 1, n, n}, at::kBool);
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j)
          if (item.sees(i, j) && mask.key_valid[b][j].item<bool>()) forbidden[b][0][i][j] = false;
    const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(3.0);
    const at::Tensor dense = at::softmax(scores.masked_fill(forbidden, -1e300), -1).masked_fill(forbidden, 0);
    (at::matmul(dense, in.v) * weights).sum().backward();
    std::vector<at::Tensor> expected;
    for (at::Tensor* x : {&in.q, &in.k, &in.v}) {
      expected.push_back(x->grad().clone());
      x->mutable_grad() = at::Tensor();
    }
    (window_attention(in.q, in.k, in.v, mask.key_valid, item.windows, {}, false) * weights).sum().backward();
    CHECK(max_difference(in.q.grad(), expected[0]) < 1e-10);
    CHECK(max_difference(in.k.grad(), expected[1]) < 1e-10);
    CHECK(max_difference(in.v.grad(), expected[2]) < 1e-10);
  }
}

TEST_CASE("extra keys join the softmax of every row, for all blocks alike or of each block's own, under their mask") {
  const int64_t n = 61, g = 4;
  const Inputs in = random_inputs(2, 2, n, 3), more = random_inputs(2, 2, g, 3, "more");
  const Windows windows = Windows::sliding(n, 5, 5);
  REQUIRE(windows.blocks > 1);
  const SequenceMask mask = length_mask({n, 20}, n);
  SequenceMask both{at::cat({length_mask({3, 1}, g).key_valid, mask.key_valid}, 1)};
  const Inputs joined{in.q, at::cat({more.k, in.k}, 2), at::cat({more.v, in.v}, 2)};
  const auto sees = [&](int64_t i, int64_t j) { return j < g || std::abs(i - (j - g)) <= 5; };
  const at::Tensor allowed = both.key_valid.narrow(1, 0, g).unsqueeze(1);
  const auto run = [&](const ExtraKeys& extra, const at::Tensor& valid) {
    return window_attention(in.q, in.k, in.v, valid, windows, {}, false, extra);
  };
  const auto numbers = at::TensorOptions().dtype(at::kLong);
  const at::Tensor places = at::arange(g, numbers).expand({1, windows.blocks, g});
  CHECK(max_difference(run({more.k, more.v, allowed}, mask.key_valid),
                       valid_rows(reference(joined, both, sees), mask)) < 1e-10);
  CHECK(max_difference(run({more.k, more.v, allowed, places}, mask.key_valid),
                       valid_rows(reference(joined, both, sees), mask)) < 1e-10);
  CHECK(max_difference(run({more.k, more.v, {}}, {}), reference(joined, {}, sees)) < 1e-10);
  // Block 0 sees no extra key.
  at::Tensor by_block = places.clone();
  by_block.select(1, 0).fill_(-1);
  const auto not_first = [&](int64_t i, int64_t j) { return j < g ? i >= windows.block : std::abs(i - (j - g)) <= 5; };
  CHECK(max_difference(run({more.k, more.v, {}, by_block}, {}), reference(joined, {}, not_first)) < 1e-10);
}

TEST_CASE("two partial softmaxes combine by their log sums to the softmax over both") {
  const int64_t n = 61;
  const Inputs in = random_inputs(2, 2, n, 3);
  const SequenceMask mask = length_mask({n, 20}, n);
  at::Tensor first_sum, second_sum;
  const at::Tensor first =
      window_attention(in.q, in.k, in.v, mask.key_valid, Windows::own_block(n, 6, false), {}, false, {}, &first_sum);
  const at::Tensor second = window_attention(in.q, in.k, in.v, mask.key_valid, Windows::own_block(n, 6, false, 6), {},
                                             false, {}, &second_sum);
  const at::Tensor share = at::sigmoid(first_sum - second_sum);  // pairs in both count twice
  const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(3.0);
  const auto s = scores.accessor<double, 4>();
  const at::Tensor expected = dense_attention(in.v, mask, n, [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    const int times = (i / 6 == j / 6) + ((i - j) % 6 == 0 && i / 36 == j / 36);
    return times * std::exp(s[b][h][i][j]);
  });
  CHECK(max_difference(first * share + second * (1 - share), valid_rows(expected, mask)) < 1e-10);
}

TEST_CASE("rows, columns and join cut and restore a sequence") {
  const at::Tensor x = at::arange(11, at::kDouble).view({1, 1, 11, 1});
  const Windows windows = Windows::neighbour_blocks(11, 4, false);
  CHECK(at::equal(windows.rows(x).flatten(), at::constant_pad_nd(x.flatten(), {0, 1})));
  CHECK(at::equal(windows.columns(x).select(3, 1).flatten(), at::constant_pad_nd(x.flatten(), {0, 1})));
  CHECK(at::equal(windows.columns(x).select(3, 0).flatten(),
                  at::tensor({0., 0., 0., 0., 0., 1., 2., 3., 4., 5., 6., 7.})));
  const Windows dilated = Windows::sliding(11, 1, 1, 3);
  CHECK(at::equal(dilated.rows(x).select(2, 1).flatten(), at::tensor({1., 4., 7., 10.})));
  for (const Windows& each : {windows, dilated}) CHECK(at::equal(each.join(each.rows(x)), x));
}

}  // namespace xformer::attention::windows_test
