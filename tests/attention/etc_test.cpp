// etc (attention-core 3.4).
#include "attention/support.h"
#include "tensor/op_counter.h"

namespace xformer::attention::etc_test {

using namespace support;

// The first g rows see all; row i sees the first g and |i - j| <= w. Rows of padding are zero.
at::Tensor reference(const Inputs& in, const SequenceMask& mask, int64_t g, int64_t w) {
  const at::Tensor scores = at::matmul(in.q, in.k.transpose(-1, -2)) / std::sqrt(static_cast<double>(in.q.size(-1)));
  const auto s = scores.accessor<double, 4>();
  const auto weight = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    return i < g || j < g || std::abs(i - j) <= w ? std::exp(s[b][h][i][j]) : 0;
  };
  return valid_rows(dense_attention(in.v, mask, in.q.size(2), weight), mask);
}

Json sizes(int64_t g, int64_t w) { return {{"global_tokens", g}, {"window", {w}}}; }

TEST_CASE("etc equals its definition in loops, for ragged lengths and lengths down to its global tokens and below") {
  for (const int64_t n : {1, 3, 4, 5, 48, 93})
    for (const int64_t g : {0, 1, 4})
      for (const int64_t w : {0, 3, 32}) {
        INFO("n " << n << " g " << g << " w " << w);
        const Inputs in = random_inputs(2, 2, n, 5);
        for (const SequenceMask& mask : {SequenceMask{}, length_mask({n, (2 * n + 1) / 3}, n)})
          CHECK(max_difference(make_core("etc", sizes(g, w))(in.q, in.k, in.v, mask), reference(in, mask, g, w)) <
                1e-10);
      }
}

TEST_CASE("etc golden numbers") {
  const double ln3 = std::log(3.0);
  const at::Tensor q = column({1, 1, 1, 1}), k = column({ln3, 0, ln3, 0}), v = column({0, 4, 8, 12});
  // Token 0 is global: all weights 3, 1, 3, 1; the others see it and themselves.
  const at::Tensor out = make_core("etc", sizes(1, 0), {.heads = 1, .head_dim = 1})(q, k, v).flatten();
  CHECK(max_difference(out, at::tensor({5.0, 1.0, 4.0, 3.0}, at::kDouble)) < 1e-12);
}

TEST_CASE("etc is longformer with tied maps on the sequence with its global tokens in front") {
  const Inputs in = random_inputs(2, 2, 61, 5);
  const SequenceMask mask = length_mask({61, 31}, 61);
  for (const int64_t g : {0, 1, 6})
    CHECK(at::equal(make_core("etc", sizes(g, 5))(in.q, in.k, in.v, mask),
                    make_core("longformer", sizes(g, 5))(in.q, in.k, in.v, mask)));
}

TEST_CASE("etc whose window covers the long part equals softmax over everything, and one token less does not") {
  const int64_t n = 48, g = 4;
  const Inputs in = random_inputs(2, 2, n, 5);
  const SequenceMask mask = length_mask({n, 31}, n);
  const at::Tensor all = valid_rows(dense_softmax(in, mask), mask);
  CHECK(max_difference(make_core("etc", sizes(g, n - g - 1))(in.q, in.k, in.v, mask), all) < 1e-10);
  CHECK(max_difference(make_core("etc", sizes(g, n - g - 2))(in.q, in.k, in.v, mask), all) > 1e-4);
}

TEST_CASE("permuting etc's global tokens leaves the long outputs as they are and permutes the global ones") {
  const int64_t n = 40, g = 5;
  const Inputs in = random_inputs(2, 2, n, 5);
  const at::Tensor order = at::cat({at::tensor({3, 0, 4, 2, 1}, at::kLong), at::arange(g, n, at::kLong)});
  const auto mixed = [&](const at::Tensor& x) { return x.index_select(2, order); };
  const BuiltCore core = make_core("etc", sizes(g, 3));
  const at::Tensor out = core(in.q, in.k, in.v);
  CHECK(max_difference(core(mixed(in.q), mixed(in.k), mixed(in.v)), mixed(out)) < 1e-12);
  // A long token is bound to its place.
  const at::Tensor rolled = at::cat({at::arange(g, at::kLong), at::arange(g, n, at::kLong).roll(1)});
  CHECK(max_difference(core(in.q.index_select(2, rolled), in.k.index_select(2, rolled), in.v.index_select(2, rolled)),
                       out.index_select(2, rolled)) > 1e-3);
}

TEST_CASE("etc's pairs have the closed form of attention-core 3.4") {
  const auto pairs = [](int64_t g, int64_t w, int64_t n) {
    return make_core("etc", sizes(g, w)).module->cost({3, 2, g + n, g + n, 5}).flops_pattern / (4 * 3 * 2 * 5);
  };
  for (const int64_t n : {33, 48, 2048})
    for (const int64_t g : {0, 1, 64})
      for (const int64_t w : {0, 5, 32})
        CHECK(pairs(g, w, n) == static_cast<double>(g * (g + n) + g * n + n * (2 * w + 1) - w * (w + 1)));
}

TEST_CASE("etc asks the model for its global tokens and has no parameters of its own") {
  const Resolved attention = resolve("etc");
  CHECK(attention.base->prefix_tokens(full_options(attention)) == 64);
  CHECK(attention.base->prefix_tokens(full_options(attention, {{"global_tokens", 8}})) == 8);
  int64_t count = 0;
  for (const auto& [key, value] : make_mixer("etc", Json::object(), {.head_dim = 32, .max_len = 2048}).state())
    count += value.numel();
  CHECK(count == 16640);
  CHECK_THROWS_AS(make_core("etc", Json::object(), {.causal = true}), UserError);
  CHECK_THROWS_AS(make_core("etc", {{"global_tokens", -1}}), UserError);
}

TEST_CASE("what the model pins behind etc's global tokens is global too") {
  const Inputs in = random_inputs(2, 2, 40, 5);
  const BuiltCore core = make_core("etc", sizes(4, 3), {.pinned = 5});
  CHECK(max_difference(core(in.q, in.k, in.v), reference(in, {}, 5, 3)) < 1e-10);
  CHECK(core.module->cost({1, 2, 40, 40, 5}).flops_pattern ==
        make_core("etc", sizes(5, 3)).module->cost({1, 2, 40, 40, 5}).flops_pattern);
}

TEST_CASE("mrs-etc pools the long tokens only: the pinned ones stay global") {
  const int64_t n = 4 + 21;
  const Inputs in = random_inputs(2, 2, n, 5);
  const SequenceMask mask = length_mask({n, 15}, n);
  const auto pooled = [&](const at::Tensor& x) { return pool_tokens(x, mask, 2, 4); };
  const Inputs short_in{pooled(in.q), pooled(in.k), pooled(in.v)};
  const at::Tensor expected = repeat_tokens(reference(short_in, mask.pooled(2, 4), 4, 3), n, 2, 4);
  const BuiltCore core = make_core("mrs-etc", {{"global_tokens", 4}, {"window", {3}}, {"scales", {2}}}, {.pinned = 4});
  CHECK(max_difference(core(in.q, in.k, in.v, mask), expected) < 1e-10);
}

TEST_CASE("etc runs at every length of the benchmarks and reads nothing back to the host") {
  for (const int64_t n : {1, 2, 7, 29, 93, 144, 315, 405, 1024, 1751}) {
    Inputs in = random_inputs(2, 2, n + 64, 4);
    in.q.requires_grad_(true);
    const BuiltCore core = make_core("etc");
    const SequenceMask mask = length_mask({n + 64, 65}, n + 64);
    const OpCounter counter;
    const at::Tensor out = core(in.q, in.k, in.v, mask);
    out.sum().backward();
    CHECK(counter.counts().reads == 0);
    CHECK(out.isfinite().all().item<bool>());
  }
}

}  // namespace xformer::attention::etc_test
