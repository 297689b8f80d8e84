// blockwise (attention-more 13).
#include <cmath>

#include "attention/support.h"
#include "tensor/op_counter.h"

namespace xformer::attention::blockwise_test {

using namespace support;

// The shift of each head, from the published splits: 10 and 2 of 12 heads, 8, 2 and 2.
int64_t shift_of(int64_t head, const std::vector<int64_t>& heads_of_shifts) {
  int64_t shift = 0;
  for (int64_t last = heads_of_shifts[0]; head >= last;) last += heads_of_shifts[static_cast<size_t>(++shift)];
  return shift;
}

bool allowed(int64_t blocks, int64_t shift, bool causal, int64_t n, int64_t pinned, int64_t i, int64_t j) {
  if (causal && j > i) return false;
  if (i < pinned || j < pinned) return true;
  const int64_t places = n - pinned, c = (places + blocks - 1) / blocks, t = (places + c - 1) / c;
  const int64_t a = (i - pinned) / c, read = causal ? a - shift : (a + shift) % t;
  return (j - pinned) / c == read;
}

at::Tensor reference(const Inputs& in, const SequenceMask& mask, int64_t blocks, const std::vector<int64_t>& split,
                     int64_t pinned = 0) {
  const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(static_cast<double>(in.q.size(-1)));
  const auto s = scores.accessor<double, 4>();
  const int64_t n = in.q.size(2);
  return dense_attention(in.v, mask, n, [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    return allowed(blocks, shift_of(h, split), mask.causal, n, pinned, i, j) ? std::exp(s[b][h][i][j]) : 0;
  });
}

struct Case {
  int64_t blocks, heads;
  std::vector<int64_t> split;
};

const std::vector<Case> kCases = {{2, 2, {1, 1}}, {3, 4, {2, 1, 1}}, {2, 3, {2, 1}}, {5, 3, {1, 1, 1}}, {1, 2, {2}}};

BuiltCore make(const Case& c, bool causal, int64_t pinned = 0, double dropout = 0) {
  return make_core("blockwise", {{"blocks", c.blocks}},
                   {.heads = c.heads, .pinned = pinned, .causal = causal, .dropout = dropout});
}

TEST_CASE("blockwise equals the dense softmax over its blocks, ragged, of any length, with pinned tokens") {
  for (const Case& c : kCases)
    for (const bool causal : {false, true})
      for (const int64_t pinned : {0, 2})
        for (const int64_t n : {48, 47, 17, 4, 3, 1}) {
          INFO("blocks " << c.blocks << " heads " << c.heads << " causal " << causal << " pinned " << pinned << " n "
                         << n);
          const Inputs in = random_inputs(2, c.heads, n, 5);
          const BuiltCore core = make(c, causal, pinned);
          for (const SequenceMask& mask :
               {SequenceMask{{}, causal}, length_mask({n, (2 * n + 2) / 3}, n, causal), length_mask({1, n}, n, causal)})
            CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask),
                                 valid_rows(reference(in, mask, c.blocks, c.split, pinned), mask)) < 1e-10);
        }
}

TEST_CASE("blockwise golden numbers") {
  // Two blocks of two. Head 0 reads its own block, weights 1 and 3 of 4 and 8; head 1 the other one, 2 and 2 of 1
  // and 5.
  const at::Tensor q = at::ones({1, 2, 4, 1}, at::kDouble);
  const at::Tensor k = column({0, std::log(3.0), std::log(2.0), std::log(2.0)}).expand({1, 2, 4, 1});
  const at::Tensor v = column({4, 8, 1, 5}).expand({1, 2, 4, 1});
  const at::Tensor out = make_core("blockwise", {}, {.heads = 2, .head_dim = 1})(q, k, v);
  CHECK(max_difference(out[0][0].flatten(), at::tensor({7.0, 7.0, 3.0, 3.0}, at::kDouble)) < 1e-12);
  CHECK(max_difference(out[0][1].flatten(), at::tensor({3.0, 3.0, 7.0, 7.0}, at::kDouble)) < 1e-12);
  // Causal: the other head of block 0 has no block before it.
  const at::Tensor past =
      make_core("blockwise", {}, {.heads = 2, .head_dim = 1, .causal = true})(q, k, v, {{}, true})[0][1].flatten();
  CHECK(max_difference(past, at::tensor({0.0, 0.0, 7.0, 7.0}, at::kDouble)) < 1e-12);
}

TEST_CASE("blockwise deals heads to shifts as published, and some to each shift as far as heads go") {
  const at::Tensor x = random_tensor("x", {1, 12, 12, 12}), eye = at::eye(12, at::kDouble).expand({1, 12, 12, 12});
  for (const auto& [blocks, split] :
       std::vector<std::pair<int64_t, std::vector<int64_t>>>{{2, {10, 2}},
                                                             {3, {8, 2, 2}},
                                                             {4, {6, 2, 2, 2}},
                                                             {6, {2, 2, 2, 2, 2, 2}},
                                                             {12, std::vector<int64_t>(12, 1)}}) {
    INFO(blocks);
    // Where values are the identity the output is the weights: 1 for each pair that is read.
    const at::Tensor read =
        make_core("blockwise", {{"blocks", blocks}}, {.heads = 12, .head_dim = 12})(x, x, eye).ne(0);
    for (int64_t h = 0; h < 12; ++h) {
      CHECK(read[0][h].sum().item<int64_t>() == 144 / blocks);  // n^2 / t pairs in every head
      for (int64_t i = 0; i < 12; ++i)
        for (int64_t j = 0; j < 12; ++j)
          CHECK(read[0][h][i][j].item<bool>() == allowed(blocks, shift_of(h, split), false, 12, 0, i, j));
    }
    // One head of each shift together read every pair.
    CHECK(read[0].any(0).all().item<bool>());
  }
}

TEST_CASE("one block is softmax, and heads of the identity are local blocks") {
  const Inputs in = random_inputs(2, 12, 48, 5);
  for (const bool causal : {false, true}) {
    const SequenceMask mask = length_mask({48, 31}, 48, causal);
    CHECK(max_difference(valid_rows(make({1, 12, {12}}, causal)(in.q, in.k, in.v, mask), mask),
                         valid_rows(dense_softmax(in, mask), mask)) < 1e-10);
    const at::Tensor local =
        make_core("local-block", {{"block", 16}}, {.heads = 12, .causal = causal})(in.q, in.k, in.v, mask);
    const at::Tensor own = make({3, 12, {8, 2, 2}}, causal)(in.q, in.k, in.v, mask);
    CHECK(max_difference(own.narrow(1, 0, 8), local.narrow(1, 0, 8)) < 1e-12);
    CHECK(max_difference(own.narrow(1, 8, 4), local.narrow(1, 8, 4)) > 1e-3);
  }
}

TEST_CASE("causal blockwise gives rows that no later token changes, in any bit") {
  const int64_t n = 53;
  for (const Case& c : kCases)
    for (const int64_t pinned : {0, 1}) {
      const Inputs in = random_inputs(1, c.heads, n, 5), other = random_inputs(1, c.heads, n, 5, "later");
      const BuiltCore core = make(c, true, pinned);
      const at::Tensor out = core(in.q, in.k, in.v, {{}, true});
      for (const int64_t seen : {1, 10, 11, 27, 52}) {
        const auto mixed = [&](const at::Tensor& a, const at::Tensor& b) {
          return at::cat({a.narrow(2, 0, seen), b.narrow(2, seen, n - seen)}, 2);
        };
        const at::Tensor changed = core(mixed(in.q, other.q), mixed(in.k, other.k), mixed(in.v, other.v), {{}, true});
        CHECK(changed.narrow(2, 0, seen).equal(out.narrow(2, 0, seen)));
      }
    }
}

TEST_CASE("blockwise's pairs are those counted in the mask, its FLOPs counted ones, and n^2 / t of whole blocks") {
  for (const Case& c : kCases)
    for (const bool causal : {false, true})
      for (const int64_t pinned : {0, 2})
        for (const int64_t n : {48, 47, 4, 1}) {
          INFO("blocks " << c.blocks << " heads " << c.heads << " causal " << causal << " pinned " << pinned << " n "
                         << n);
          int64_t counted = 0;
          for (int64_t h = 0; h < c.heads; ++h)
            for (int64_t i = 0; i < n; ++i)
              for (int64_t j = 0; j < n; ++j)
                counted += allowed(c.blocks, shift_of(h, c.split), causal, n, pinned, i, j) ? 1 : 0;
          const BuiltCore core = make(c, causal, pinned);
          CHECK(core.module->cost({1, c.heads, n, n, 1}).flops_pattern == 4.0 * static_cast<double>(counted));
          const Inputs in = random_inputs(2, c.heads, n, 5);
          const OpCounter counter;
          core(in.q, in.k, in.v, {{}, causal});
          CHECK(static_cast<double>(counter.counts().flops) == core.module->cost({2, c.heads, n, n, 5}).flops_executed);
        }
  CHECK(make({3, 4, {2, 1, 1}}, false).module->cost({1, 4, 48, 48, 5}).flops_executed == 4 * 4 * 5 * 48 * 16);
}

TEST_CASE("blockwise drops the same elements in micro-batches as in the whole batch") {
  const Case c{2, 2, {1, 1}};
  const Resolved attention = resolve("blockwise");
  BuildContext context = make_context({.dropout = 0.5});
  const auto core = build_core(attention, full_options(attention), context);
  const Inputs in = random_inputs(4, 2, 20, 5);
  const auto rows = [&](int64_t first, int64_t count) {
    context.dropout_stream->set_step(1, first);
    Carry carry;
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, first, count); };
    return core->forward(part(in.q), part(in.k), part(in.v), {}, carry);
  };
  const at::Tensor whole = rows(0, 4);
  CHECK_FALSE(whole.equal(make(c, false)(in.q, in.k, in.v)));
  CHECK(max_difference(at::cat({rows(0, 1), rows(1, 3)}), whole) < 1e-12);
}

TEST_CASE("blockwise has no parameters of its own, two blocks by default, and refuses what is no block") {
  CHECK(full_options(resolve("blockbert"))["blocks"] == 2);
  int64_t count = 0;
  for (const auto& [key, value] : make_mixer("blockwise", {}, {.head_dim = 32, .max_len = 2048}).state())
    count += value.numel();
  CHECK(count == 16640);
  CHECK_THROWS_AS(make_core("blockwise", {{"blocks", 0}}), UserError);
}

}  // namespace xformer::attention::blockwise_test
