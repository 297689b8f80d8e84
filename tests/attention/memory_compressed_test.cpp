// memory-compressed (attention-more 4).
#include <cmath>

#include "attention/support.h"
#include "tensor/op_counter.h"

namespace xformer::attention::memory_compressed_test {

using namespace support;

at::Tensor tensor_of(const BuiltCore& core, const std::string& name) {
  for (const auto& [key, value] : core.state())
    if (key == name) return value.detach();
  FAIL("no tensor " << name);
  return {};
}

bool valid(const SequenceMask& mask, int64_t b, int64_t i) {
  return mask.all_valid() || mask.key_valid[b][i].item<bool>();
}

// W over the valid members of group t, and b: row t of head h [d].
at::Tensor slot(const BuiltCore& core, const at::Tensor& x, const SequenceMask& mask, int64_t c, int64_t b, int64_t h,
                int64_t t) {
  at::Tensor sum = tensor_of(core, "compress_bias")[h][0].clone();
  for (int64_t r = 0; r < c && t * c + r < x.size(2); ++r)
    if (valid(mask, b, t * c + r)) sum = sum + at::matmul(x[b][h][t * c + r], tensor_of(core, "compress")[h][r]);
  return sum;
}

// The equations, a query at a time. Rows of padded queries are left out.
at::Tensor reference(const BuiltCore& core, const Inputs& in, const SequenceMask& mask, int64_t c) {
  const int64_t batch = in.q.size(0), heads = in.q.size(1), n = in.q.size(2), d = in.q.size(3);
  at::Tensor out = at::zeros_like(in.q);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < n; ++i) {
        if (!valid(mask, b, i)) continue;
        std::vector<at::Tensor> keys, values;
        if (mask.causal) {
          const at::Tensor null = tensor_of(core, "null")[h][0];
          keys.push_back(null.narrow(0, 0, d)), values.push_back(null.narrow(0, d, d));
        }
        for (int64_t t = 0; t * c < n; ++t) {
          bool any = false;
          for (int64_t r = 0; r < c && t * c + r < n; ++r) any = any || valid(mask, b, t * c + r);
          if (!any || (mask.causal && (t + 1) * c - 1 > i)) continue;
          keys.push_back(slot(core, in.k, mask, c, b, h, t)), values.push_back(slot(core, in.v, mask, c, b, h, t));
        }
        const at::Tensor weights =
            at::softmax(at::matmul(at::stack(keys), in.q[b][h][i]) / std::sqrt(static_cast<double>(d)), 0);
        out[b][h][i] = at::matmul(weights, at::stack(values));
      }
  return out;
}

BuiltCore make(int64_t c, bool causal) {
  BuiltCore core = make_core("memory-compressed", {{"compression", c}}, {.causal = causal});
  if (causal) tensor_of(core, "null").copy_(random_tensor("null", {2, 1, 10}));  // it starts at zero
  return core;
}

// W the identity at every place of the kernel, times `scale`; b zero.
void set_identity(const BuiltCore& core, double scale) {
  tensor_of(core, "compress").copy_(scale * at::eye(5, at::kDouble).expand_as(tensor_of(core, "compress")));
  tensor_of(core, "compress_bias").zero_();
}

TEST_CASE("memory-compressed equals its equations, ragged, of any length, causal or not") {
  for (const bool causal : {false, true})
    for (const int64_t c : {1, 3, 4})
      for (const int64_t n : {25, 24, 7, 3, 2, 1}) {
        INFO("causal " << causal << " c " << c << " n " << n);
        const Inputs in = random_inputs(2, 2, n, 5);
        const BuiltCore core = make(c, causal);
        SequenceMask holes = length_mask({n, n}, n, causal);  // padding in the middle, too
        for (int64_t i = 0; i + 1 < n; ++i) holes.key_valid[1][i] = i % 7 < 2;
        for (const SequenceMask& mask : {SequenceMask{{}, causal}, length_mask({n, (2 * n + 2) / 3}, n, causal), holes})
          CHECK(max_difference(valid_rows(core(in.q, in.k, in.v, mask), mask), reference(core, in, mask, c)) < 1e-10);
      }
}

TEST_CASE("memory-compressed golden numbers") {
  const Setup one{.heads = 1, .head_dim = 1};
  const double ln3 = std::log(3.0);
  const at::Tensor q = column({1, 1, 1, 1}), k = column({0, 0, ln3, 0}), v = column({1, 3, 2, 6});
  const auto made = [&](bool causal) {
    Setup setup = one;
    setup.causal = causal;
    const BuiltCore core = make_core("memory-compressed", {{"compression", 2}}, setup);
    tensor_of(core, "compress").fill_(1);  // sums of two
    tensor_of(core, "compress_bias").zero_();
    return core;
  };
  // Keys 0 and ln 3, values 4 and 8: (4 + 3 * 8) / 4.
  CHECK(max_difference(made(false)(q, k, v).flatten(), at::full({4}, 7, at::kDouble)) < 1e-12);
  // Causal, with a null slot of zeros: nothing else; then half of 4; then (0 + 4 + 3 * 8) / 5.
  CHECK(max_difference(made(true)(q, k, v, {{}, true}).flatten(), at::tensor({0.0, 2.0, 2.0, 5.6}, at::kDouble)) <
        1e-12);
}

TEST_CASE("kernels of length one that change nothing leave softmax; means leave attention to pooled keys") {
  const int64_t n = 31;
  const Inputs in = random_inputs(2, 2, n, 5);
  const SequenceMask mask = length_mask({n, 18}, n);
  const BuiltCore same = make(1, false);
  set_identity(same, 1);
  CHECK(max_difference(same(in.q, in.k, in.v, mask), valid_rows(dense_softmax(in, mask), mask)) < 1e-10);

  // Causal, without the null slot: its key is far below all others.
  const BuiltCore back = make(1, true);
  set_identity(back, 1);
  const Inputs ones{at::ones_like(in.q), in.k, in.v};
  tensor_of(back, "null").fill_(-1e4);
  const SequenceMask past = length_mask({n, 18}, n, true);
  CHECK(max_difference(valid_rows(back(ones.q, in.k, in.v, past), past), valid_rows(dense_softmax(ones, past), past)) <
        1e-10);

  const BuiltCore mean = make(3, false);
  set_identity(mean, 1.0 / 3);
  const int64_t whole = 30;
  const auto pooled = [&](const at::Tensor& x) { return x.narrow(2, 0, whole).unflatten(2, {whole / 3, 3}).mean(3); };
  const at::Tensor scores = at::matmul(in.q.narrow(2, 0, whole), pooled(in.k).transpose(-1, -2)) / std::sqrt(5.0);
  const auto cut = [&](const at::Tensor& x) { return x.narrow(2, 0, whole); };
  CHECK(max_difference(mean(cut(in.q), cut(in.k), cut(in.v)), at::matmul(at::softmax(scores, -1), pooled(in.v))) <
        1e-10);
}

TEST_CASE("causal memory-compressed: the first queries see the null value, and no later token changes a row's bits") {
  const int64_t n = 50;
  const Inputs in = random_inputs(1, 2, n, 5), other = random_inputs(1, 2, n, 5, "later");
  for (const int64_t c : {1, 3, 7}) {
    const BuiltCore core = make(c, true);
    const at::Tensor out = core(in.q, in.k, in.v, {{}, true}), null = tensor_of(core, "null").narrow(-1, 5, 5);
    for (int64_t i = 0; i + 1 < c; ++i) CHECK(max_difference(out[0].select(1, i), null.select(1, 0)) < 1e-12);
    for (const int64_t seen : {1, 2, 6, 7, 31, 49}) {
      const auto mixed = [&](const at::Tensor& a, const at::Tensor& b) {
        return at::cat({a.narrow(2, 0, seen), b.narrow(2, seen, n - seen)}, 2);
      };
      const at::Tensor changed = core(mixed(in.q, other.q), mixed(in.k, other.k), mixed(in.v, other.v), {{}, true});
      CHECK(changed.narrow(2, 0, seen).equal(out.narrow(2, 0, seen)));
    }
    // The last key that a row has a gradient from is the last one of a whole group.
    const at::Tensor k = in.k.clone().requires_grad_(true);
    core(in.q, k, in.v, {{}, true}).select(2, 40).square().sum().backward();
    const at::Tensor read = k.grad().abs().sum(at::IntArrayRef({0, 1, 3})).gt(0);
    for (int64_t j = 0; j < n; ++j) CHECK(read[j].item<bool>() == (j < 41 / c * c));
  }
}

TEST_CASE("memory-compressed's even layers are local where it alternates") {
  const Inputs in = random_inputs(2, 2, 30, 5);
  const Json options{{"alternate", true}, {"block", 7}};
  for (const bool causal : {false, true}) {
    const SequenceMask mask = length_mask({30, 11}, 30, causal);
    const BuiltCore even = make_core("memory-compressed", options, {.layer = 2, .causal = causal});
    CHECK(even.parameters().empty());
    CHECK(even(in.q, in.k, in.v, mask)
              .equal(make_core("local-block", {{"block", 7}}, {.causal = causal})(in.q, in.k, in.v, mask)));
    const BuiltCore odd = make_core("memory-compressed", options, {.layer = 3, .causal = causal});
    CHECK(max_difference(valid_rows(odd(in.q, in.k, in.v, mask), mask), reference(odd, in, mask, 3)) < 1e-10);
  }
}

TEST_CASE("memory-compressed's FLOPs are counted ones and its pairs of the closed form") {
  for (const bool causal : {false, true})
    for (const int64_t c : {1, 3, 4})
      for (const int64_t n : {48, 47, 2, 1}) {
        INFO("causal " << causal << " c " << c << " n " << n);
        const BuiltCore core = make(c, causal);
        const Inputs in = random_inputs(2, 2, n, 5);
        const OpCounter counter;
        core(in.q, in.k, in.v, {{}, causal});
        CHECK(static_cast<double>(counter.counts().flops) == core.module->cost({2, 2, n, n, 5}).flops_executed);
      }
  // 4 n d^2 for both convolutions and 4 n (n / c) d of one head; causal row i: the null slot and (i + 1) / c others.
  CHECK(make(3, false).module->cost({1, 1, 48, 48, 5}).flops_pattern == 4 * 48 * 25 + 4 * 48 * 16 * 5);
  CHECK(make(48, true).module->cost({1, 1, 48, 48, 5}).flops_pattern == 4 * 48 * 25 + 4 * (48 + 1) * 5);
}

TEST_CASE("memory-compressed's defaults, parameters and refusals") {
  CHECK(full_options(resolve("memory-compressed"))["compression"] == 3);
  CHECK(full_options(resolve("memory-compressed"))["block"] == 256);
  const auto count = [](bool causal) {
    int64_t result = 0;
    for (const auto& [key, tensor] :
         make_mixer("memory-compressed", {}, {.head_dim = 32, .max_len = 2048, .causal = causal}).parameters())
      result += tensor.numel();
    return result;
  };
  CHECK(count(false) == 16640 + 2 * 32 * 32 * 3 + 64);
  CHECK(count(true) == 22848 + 2 * 64);
  CHECK_THROWS_AS(make_core("memory-compressed", {{"compression", 0}}), UserError);
}

}  // namespace xformer::attention::memory_compressed_test
