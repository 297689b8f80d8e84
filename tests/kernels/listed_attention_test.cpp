// Attention over listed keys against its definition: outputs and gradients, over shapes, lists, masks and dropout.
#include "kernels/listed_attention/listed_attention.h"

#include "core/random.h"
#include "fused_support.h"
#include "kernels/attention/attention.h"
#include "tensor/op_counter.h"

namespace xformer::kernels::listed_attention_test {

struct ListedCase {
  int64_t n = 70, keys = 50, lists = 0, length = 6;  // lists 0: one for each row
  bool per_head = false, per_sample = false, masked = false, biased = false, by_key = false;
  double dropout = 0;
  int64_t b = 2, h = 2, d = 5, e = 7;
};

ListedAttentionOptions build(const ListedCase& one) {
  Stream numbers(static_cast<uint64_t>(one.n * 31 + one.length));
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(bound)));
  };
  ListedAttentionOptions options;
  const int64_t lists = one.lists > 0 ? one.lists : one.n;
  options.places = at::empty({one.per_sample ? one.b : 1, one.per_head ? one.h : 1, lists, one.length}, at::kLong);
  int64_t* const places = options.places.data_ptr<int64_t>();
  for (int64_t i = 0; i < options.places.numel(); i += one.length) {
    const at::Tensor order = at::randperm(one.keys, at::kLong);
    for (int64_t l = 0; l < one.length; ++l) places[i + l] = below(4) == 0 ? -1 : order[l].item<int64_t>();
  }
  if (one.lists > 0) {
    options.lists = at::empty({one.b, one.h, one.n}, at::kLong);
    for (int64_t i = 0; i < options.lists.numel(); ++i) options.lists.data_ptr<int64_t>()[i] = below(one.lists);
  }
  if (one.masked) {
    options.key_valid = at::rand({one.b, one.keys}).gt(0.3);
    options.row_valid = at::rand({one.b, one.n}).gt(0.3);
    options.key_valid[one.b - 1].fill_(false);  // a sample without a key
  }
  if (one.dropout > 0) {
    DropoutStream stream(5);
    stream.set_step(3, 2);
    options.dropout = {one.dropout, stream.state, 4};
  }
  options.drops_by_key = one.by_key;
  return options;
}

Tensors inputs(const ListedCase& one, at::ScalarType type) {
  Tensors result{random_tensor("q", {one.b, one.h, one.n, one.d}, type),
                 random_tensor("k", {one.b, one.h, one.keys, one.d}, type),
                 random_tensor("v", {one.b, one.h, one.keys, one.e}, type)};
  if (one.biased) result.push_back(random_tensor("bias", {one.b, one.h, one.n, one.length}, type));
  return result;
}

at::Tensor bias_of(const Tensors& x) { return x.size() > 3 ? x[3] : at::Tensor(); }

std::vector<ListedCase> cases() {
  return {{},
          {.n = 1, .keys = 1, .length = 1},
          {.n = 131, .per_head = true, .masked = true},
          {.n = 131, .masked = true, .biased = true},
          {.lists = 4, .length = 20, .biased = true, .dropout = 0.3, .d = 16, .e = 16},
          {.lists = 4, .per_head = true, .per_sample = true, .masked = true, .dropout = 0.3},
          {.keys = 200, .length = 40, .dropout = 0.5, .d = 32, .e = 32},
          {.keys = 90, .length = 40, .masked = true, .by_key = true, .dropout = 0.5, .d = 32, .e = 32},
          {.lists = 4, .length = 3, .per_head = true, .biased = true, .by_key = true, .dropout = 0.3},
          {.keys = 400, .length = 7, .per_head = true, .masked = true, .by_key = true, .dropout = 0.4},
          {.length = 30, .masked = true, .d = 85, .e = 67},
          {.n = 9, .length = 3, .per_sample = true, .masked = true, .d = 19, .e = 1}};
}

TEST_CASE("listed keys fused equal their definition, with gradients") {
  for (const ListedCase& one : cases()) {
    INFO("n " << one.n << " keys " << one.keys << " lists " << one.lists << " length " << one.length);
    const ListedAttentionOptions options = build(one);
    const double rounding = one.keys > 1 ? 1e-5 : 1e-3;  // what is left of gradients that are zero
    for (const at::ScalarType type : {at::kDouble, at::kFloat})
      CHECK(worst_difference(
                [&](const Tensors& x) { return Tensors{listed_attention(x[0], x[1], x[2], options, bias_of(x))}; },
                [&](const Tensors& x) {
                  return Tensors{listed_attention_reference(x[0], x[1], x[2], options, bias_of(x))};
                },
                inputs(one, type)) < (type == at::kDouble ? 1e-12 : rounding));
  }
}

TEST_CASE("lists of all keys that drop by key drop what attention over all pairs does, in any order") {
  const ListedCase one{.n = 40, .keys = 50, .dropout = 0.4};
  ListedAttentionOptions options = build(one);
  options.places = at::cat({at::full({10}, -1, at::kLong), at::arange(50, at::kLong).flip(0)}).expand({1, 1, 40, 60});
  options.drops_by_key = true;
  const Tensors x = inputs(one, at::kDouble);
  const AttentionOptions all{1 / std::sqrt(5.0), {}, {}, options.dropout};
  CHECK(difference(listed_attention(x[0], x[1], x[2], options), attention_reference(x[0], x[1], x[2], all)) < 1e-12);
}

TEST_CASE("the definition is softmax over the listed keys, row by row") {
  const ListedCase one{.lists = 4, .per_sample = true, .masked = true, .biased = true};
  const ListedAttentionOptions options = build(one);
  const Tensors x = inputs(one, at::kDouble);
  const at::Tensor out = listed_attention_reference(x[0], x[1], x[2], options, x[3]);
  for (int64_t b = 0; b < one.b; ++b)
    for (int64_t h = 0; h < one.h; ++h)
      for (int64_t i = 0; i < one.n; ++i) {
        at::Tensor sum = at::zeros({one.e}, at::kDouble);
        double total = 0;
        const int64_t list = options.lists[b][h][i].item<int64_t>();
        for (int64_t l = 0; l < one.length; ++l) {
          const int64_t place = options.places[b][0][list][l].item<int64_t>();
          if (place < 0 || !options.key_valid[b][place].item<bool>() || !options.row_valid[b][i].item<bool>()) continue;
          const double weight = std::exp(at::dot(x[0][b][h][i], x[1][b][h][place]).item<double>() / std::sqrt(5.0) +
                                         x[3][b][h][i][l].item<double>());
          total += weight;
          sum = sum + x[2][b][h][place] * weight;
        }
        CHECK(difference(out[b][h][i], total > 0 ? sum / total : sum) < 1e-12);
      }
}

TEST_CASE("the tiles of the definition are one and the same function, with gradients, and hold less") {
  // 2 x 2 x 3000 rows of 64 keys and width 48 are nine tiles.
  const ListedCase one{.n = 3000, .keys = 100, .length = 64, .masked = true, .d = 48, .e = 48};
  const ListedAttentionOptions options = build(one);
  CHECK(
      worst_difference([&](const Tensors& x) { return Tensors{listed_attention(x[0], x[1], x[2], options)}; },
                       [&](const Tensors& x) { return Tensors{listed_attention_reference(x[0], x[1], x[2], options)}; },
                       inputs(one, at::kFloat)) < 1e-4);
}

TEST_CASE("listed keys count 2 (d + e) for each place that is there") {
  const ListedCase one{.masked = false};
  const ListedAttentionOptions options = build(one);
  const Tensors x = inputs(one, at::kFloat);
  const OpCounter counter;
  (void)listed_attention(x[0], x[1], x[2], options);
  const int64_t there = options.places.ge(0).sum().item<int64_t>() * one.b * one.h;
  CHECK(counter.counts().flops == 2 * there * (one.d + one.e));
}

}  // namespace xformer::kernels::listed_attention_test
