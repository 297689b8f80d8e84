// Additive attention against its definition: outputs and gradients, over shapes, masks, causality and dropout.
#include "kernels/additive_attention/additive_attention.h"

#include "fused_support.h"
#include "kernels/row_tiles.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::additive_attention_test {

struct AdditiveCase {
  int64_t n = 21, keys = 33, b = 2, h = 2, d = 5, e = 4;
  bool masked = false, causal = false;
  double dropout = 0;
};

AdditiveAttentionOptions build(const AdditiveCase& one) {
  AdditiveAttentionOptions options;
  options.mask.causal = one.causal;
  if (one.masked) {
    options.mask.key_valid = at::rand({one.b, one.keys}).gt(0.3);
    options.mask.key_valid[0].narrow(0, one.keys / 2, one.keys - one.keys / 2).fill_(false);
    if (one.b > 1) options.mask.key_valid[one.b - 1].fill_(false);  // a sample without a key
    options.query_valid = at::rand({one.b, one.n}).gt(0.3);
  }
  if (one.dropout > 0) {
    DropoutStream stream(5);
    stream.set_step(3, 2);
    options.dropout = {one.dropout, stream.state, 4};
  }
  return options;
}

Tensors inputs(const AdditiveCase& one, at::ScalarType type) {
  return {random_tensor("q", {one.b, one.h, one.n, one.d}, type),
          random_tensor("k", {one.b, one.h, one.keys, one.d}, type),
          random_tensor("v", {one.b, one.h, one.keys, one.e}, type), random_tensor("w", {one.h, one.d}, type)};
}

TEST_CASE("additive attention fused equals its definition, with gradients of all four") {
  const std::vector<AdditiveCase> cases{{},
                                        {.n = 1, .keys = 1},
                                        {.n = 40, .keys = 7, .b = 3, .masked = true},
                                        {.n = 50, .keys = 50, .causal = true},
                                        {.n = 50, .keys = 50, .masked = true, .causal = true, .dropout = 0.4},
                                        {.n = 18, .keys = 1100, .d = 32, .e = 32, .masked = true, .dropout = 0.2}};
  for (const AdditiveCase& one : cases) {
    INFO("n " << one.n << " keys " << one.keys << " masked " << one.masked << " causal " << one.causal);
    const AdditiveAttentionOptions options = build(one);
    const double rounding = one.keys > 1 ? 1e-4 : 1e-3;  // what is left of gradients that are zero
    for (const at::ScalarType type : {at::kDouble, at::kFloat})
      CHECK(
          worst_difference(
              [&](const Tensors& x) { return Tensors{additive_attention(x[0], x[1], x[2], x[3], options)}; },
              [&](const Tensors& x) { return Tensors{additive_attention_reference(x[0], x[1], x[2], x[3], options)}; },
              inputs(one, type)) < (type == at::kDouble ? 1e-11 : rounding));
  }
}

TEST_CASE("additive attention of numbers whose powers are not finite, or not one by one, equals its definition") {
  const AdditiveCase one{.n = 40, .keys = 90, .d = 8, .e = 8, .masked = true, .dropout = 0.2};
  const AdditiveAttentionOptions options = build(one);
  for (const double size : {1e-3, 10.0, 25.0, 200.0})
    for (const bool opposite : {false, true})
      for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
        CAPTURE(size, opposite, type);
        Tensors given = inputs(one, at::kDouble);
        for (at::Tensor& tensor : given) tensor = tensor.to(at::kFloat).to(type);
        // Sums of large numbers that are small: a power of one is far from 1, and of both together near it.
        given[0] = given[0] + size, given[1] = opposite ? given[1] - size : given[1] + size;
        Tensors wide = given;
        for (at::Tensor& tensor : wide) tensor = tensor.to(at::kDouble);
        const Tensors got = run_with_gradients(
                          [&](const Tensors&x) { return Tensors{additive_attention(x[0], x[1], x[2], x[3], options)}; },
                          given),
                      meant = run_with_gradients(
                          [&](const Tensors&x) {
                            return Tensors{additive_attention_reference(x[0], x[1], x[2], x[3], options)};
                          },
                          wide);
        const double rounding = opposite ? 2e-4 : 1e-3;  // what is left of gradients that are zero
        for (size_t i = 0; i < got.size(); ++i)
          CHECK(difference(got[i].to(at::kDouble), meant[i]) < (type == at::kDouble ? 1e-9 : rounding));
      }
}

TEST_CASE("additive attention: what keys hold that are not valid changes no bit") {
  const AdditiveCase one{.n = 40, .keys = 90, .d = 8, .e = 8, .masked = true};
  const AdditiveAttentionOptions options = build(one);
  Tensors given = inputs(one, at::kFloat);
  const auto run = [&](const Tensors& x) {
    return run_with_gradients(
        [&](const Tensors& in) { return Tensors{additive_attention(in[0], in[1], in[2], in[3], options)}; }, x);
  };
  const Tensors meant = run(given);
  const at::Tensor padded = options.mask.key_valid.logical_not().view({one.b, 1, one.keys, 1});
  given[1] = given[1].masked_fill(padded, 1e6);
  const Tensors got = run(given);
  for (size_t i = 0; i < got.size(); ++i) CHECK(at::equal(got[i], meant[i]));
}

TEST_CASE("additive attention counts 2 (d + e) for each pair of its tiles") {
  for (const bool causal : {false, true}) {
    const AdditiveCase one{.n = 50, .keys = 50, .causal = causal};
    const Tensors x = inputs(one, at::kFloat);
    const OpCounter counter;
    (void)additive_attention(x[0], x[1], x[2], x[3], build(one));
    CHECK(counter.counts().flops == 2 * one.b * one.h * (one.d + one.e) * additive_attention_pairs(50, 50, causal));
  }
  CHECK(additive_attention_pairs(50, 50, false) == 2500);
  CHECK(additive_attention_pairs(20, 20, true) == 16 * 16 + 4 * 20);
}

TEST_CASE("tiles of rows are joined to the whole, with gradients of what is cut and of what all read") {
  const Tensors given{random_tensor("a", {2, 1, 23, 4}), random_tensor("b", {2, 1, 23, 3}), random_tensor("c", {4, 3})};
  const at::Tensor numbers = at::arange(2 * 23, at::kLong).view({2, 1, 23});
  const RowTileWork work = [](const Tensors& rows, const Tensors& whole) {
    return at::tanh(at::matmul(rows[0], whole[0])) * rows[1] + rows[2].unsqueeze(-1);
  };
  const auto by = [&](int64_t tile) {
    return [&, tile](const Tensors& x) { return Tensors{in_row_tiles({x[0], x[1], numbers}, {x[2]}, tile, work)}; };
  };
  for (const int64_t tile : {1, 5, 22, 23}) {
    INFO(tile);
    CHECK(worst_difference(by(tile), by(100), given) < 1e-13);
  }
}

}  // namespace xformer::kernels::additive_attention_test
