// Operators under autocast to bf16 on a CPU, against their definitions in double of the same numbers: outputs,
// gradients, what dropout drops, what is said to have run, and --kernels=check.
#include <ATen/OpMathType.h>

#include "bf16_support.h"
#include "kernels/attention/attention.h"
#include "kernels/batched_product/batched_product.h"
#include "kernels/embedding/embedding.h"
#include "kernels/feature_attention/feature_attention.h"
#include "kernels/feed_forward/feed_forward.h"
#include "kernels/fused.h"
#include "kernels/gelu_dropout/gelu_dropout.h"
#include "kernels/hashed_attention/hashed_attention.h"
#include "kernels/landmark_weights/landmark_weights.h"
#include "kernels/linear/linear.h"
#include "kernels/pooling/pooling.h"
#include "kernels/pseudo_inverse/pseudo_inverse.h"
#include "kernels/residual_norm/residual_norm.h"
#include "kernels/token_convolution/token_convolution.h"
#include "kernels/token_mean/token_mean.h"
#include "kernels/token_projection/token_projection.h"
#include "place_support.h"
#include "policy_scope.h"
#include "tensor/autocast.h"

namespace xformer::kernels::bf16_test::operators {

void add_attention(std::vector<Case>& cases) {
  for (const auto& [n, m] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {37, 37}, {300, 290}, {90, 16}, {90, 17}, {50, 335}, {64, 560}})
    for (const bool causal : {false, true}) {
      if (causal && n != m) continue;
      AttentionOptions options;
      options.scale = 0.3;
      options.mask = {valid(m, true), causal};
      options.query_valid = valid(n, true);
      options.dropout = place_of(causal ? 0 : 0.25);
      cases.push_back({"attention",
                       [options](const Tensors& x) { return Tensors{attention(x[0], x[1], x[2], options)}; },
                       [options](const Tensors& x) { return Tensors{attention_reference(x[0], x[1], x[2], options)}; },
                       {activation("q", {3, 2, n, 8}), activation("k", {3, 2, m, 8}), activation("v", {3, 2, m, 6})},
                       2});
    }
}

void add_feature_attention(std::vector<Case>& cases) {
  struct Size {
    int64_t n, features;
    bool causal;
    int64_t e = 6;
  };
  for (const FeatureMap map : {FeatureMap::kElu, FeatureMap::kRelu, FeatureMap::kSoftmax})
    for (const auto& [n, features, causal, e] : {Size{1, 24, false},
                                                 {50, 24, false},
                                                 {1500, 24, false},
                                                 {51, 150, false, 37},
                                                 {50, 24, true},
                                                 {500, 24, true}}) {
      FeatureAttentionOptions options;
      options.map = map;
      options.mask.causal = causal;
      options.epsilon = map == FeatureMap::kElu ? 1e-6 : 0;
      options.floor = map == FeatureMap::kElu ? 0 : 1e-3;
      options.scale = 0.5;
      options.mask.key_valid = options.query_valid = valid(n, true);
      // Whole numbers are omega in every type; so the largest feature is the same one.
      const at::Tensor omega = map == FeatureMap::kElu ? at::Tensor() : parameter("omega", {features, 8}).round();
      const auto with = [options, omega](auto* run) {
        return [=](const Tensors& x) {
          FeatureAttentionOptions own = options;
          if (omega.defined()) own.omega = omega.to(at::toOpMathType(x[0].scalar_type()));
          return Tensors{run(x[0], x[1], x[2], own)};
        };
      };
      cases.push_back({"feature_attention",
                       with(&feature_attention),
                       with(&feature_attention_reference),
                       {activation("q", {3, 2, n, 8}), activation("k", {3, 2, n, 8}), activation("v", {3, 2, n, e})},
                       3});
    }
}

void add_hashed_attention(std::vector<Case>& cases) {
  for (const auto& [n, d, e] : {std::tuple<int64_t, int64_t, int64_t>{1, 8, 6}, {40, 8, 6}, {40, 40, 37}}) {
    HashedAttentionOptions options{8, false, valid(n, false), place_of(0.2)};
    const at::Tensor buckets = n < 8 ? at::Tensor() : (at::arange(3 * 2 * 2 * n).view({3, 2, 2, n}) * 7).remainder(5);
    cases.push_back(
        {"hashed_attention",
         [=](const Tensors& x) { return Tensors{hashed_attention(x[0], x[1], buckets, options)}; },
         [=](const Tensors& x) { return Tensors{hashed_attention_reference(x[0], x[1], buckets, options)}; },
         {activation("q", {3, 2, n, d}), activation("v", {3, 2, n, e})},
         3});
  }
}

void add_token_operators(std::vector<Case>& cases) {
  for (const int64_t n : {1, 29, 600}) {
    const SequenceMask mask{valid(n, true), false};
    const auto project = [mask](auto* run) {
      return [=](const Tensors& x) {
        const TokenMixtures mixtures = run(x[0], x[1], x[2], mask);
        return Tensors{mixtures.x, mixtures.y};
      };
    };
    cases.push_back(
        {"project_tokens",
         project(&project_tokens),
         project(&project_tokens_reference),
         {parameter("table", {2, 7, n + 3}), activation("x", {3, 2, n, 5}), activation("y", {3, 2, n, 5})}});
    const std::vector<HeadGroup> groups{{1, {0}}, {4, {1}}};
    const auto pool = [=](auto* run) { return [=](const Tensors& x) { return run(x[0], mask, groups, 0); }; };
    const auto beside = [mask](const auto& run) {
      return TensorFunction([mask, run](const Tensors& x) -> Tensors {
        const auto [pooled, same] = run(x[0], mask);
        return {pooled, same * 2};
      });
    };
    if (n < 600)  // as a landmark's number
      cases.push_back({"landmark_weights",
                       [mask](const Tensors& x) { return Tensors{landmark_weights(x[0], x[1], 0.4, mask)}; },
                       [mask](const Tensors& x) {
                         const at::Tensor scores = at::matmul(x[0] * 0.4, x[1].transpose(2, 3));
                         return Tensors{mask.zero_padding(masked_softmax(scores, mask))};
                       },
                       {activation("q", {3, 2, n, 5}), activation("k", {3, 2, n, 5})},
                       1,
                       "fused-cpu-bf16",
                       {0}});
    cases.push_back({"pool_beside",
                     beside([](const at::Tensor& x, const SequenceMask& own) {
                       const PooledBeside made = pool_beside(x, own, 3);
                       return std::pair(made.pooled, made.x);
                     }),
                     beside([](const at::Tensor& x, const SequenceMask& own) {
                       return std::pair(pool_heads_reference(x, own, {{3, {0, 1}}}).front(), x);
                     }),
                     {activation("x", {3, 2, n, 5})}});
    cases.push_back({"pool_heads", pool(&pool_heads), pool(&pool_heads_reference), {activation("x", {3, 2, n, 5})}});
    const auto repeat = [=](auto* run) { return [=](const Tensors& x) { return Tensors{run(x, n, groups, 0)}; }; };
    cases.push_back({"repeat_heads",
                     repeat(&repeat_heads),
                     repeat(&repeat_heads_reference),
                     {activation("x", {3, 1, n, 5}), activation("y", {3, 1, pooled_len(n, 4), 5})}});
    const auto convolve = [mask](auto* run) {
      return [=](const Tensors& x) { return Tensors{run(x[0], x[1], x[2], mask)}; };
    };
    cases.push_back({"convolve_tokens",
                     convolve(&convolve_tokens),
                     convolve(&convolve_tokens_reference),
                     {activation("x", {3, 2, n, 5}), activation("y", {3, 2, n, 5}), parameter("w", {2, 3})}});
    const TokenMeanOptions counted{mask.key_valid, n > 9 ? 3 : 0, n > 100};
    const auto mean = [counted](auto* run) { return [=](const Tensors& x) { return Tensors{run(x[0], counted)}; }; };
    cases.push_back({"token_mean", mean(&token_mean), mean(&token_mean_reference), {activation("x", {3, n, 5})}});
  }
  // No kernel in bf16: the inverse of landmarks stays in float, between conversions.
  const auto invert = [](auto* run) { return [=](const Tensors& x) { return Tensors{run(x[0], SequenceMask(), 6)}; }; };
  cases.push_back({"pseudo_inverse",
                   invert(&pseudo_inverse),
                   invert(&pseudo_inverse_reference),
                   {at::softmax(2 * activation("a", {3, 2, 6, 6}), -1).to(at::kBFloat16).to(at::kFloat)},
                   1,
                   "fused-cpu"});
}

void add_maps(std::vector<Case>& cases) {
  for (const int64_t rows : {1, 700}) {
    const DropoutPlace drop = place_of(0.3);
    const auto maps = [](const Tensors& x) { return std::vector<LinearMap>{{x[1], x[3]}, {x[2], x[4]}}; };
    cases.push_back({"linear",
                     [=](const Tensors& x) { return linear(x[0], maps(x)); },
                     [=](const Tensors& x) {
                       return Tensors{at::linear(x[0], x[1], x[3]), at::linear(x[0], x[2], x[4])};
                     },
                     {activation("x", {3, rows, 40}), parameter("w", {24, 40}), parameter("u", {5, 40}),
                      parameter("b", {24}), parameter("c", {5})}});
    for (const bool tanh : {false, true}) {
      const auto feed = [=](auto* run) {
        return [=](const Tensors& x) { return Tensors{run(x[0], {x[1], x[2]}, {x[3], x[4]}, tanh, drop, {})}; };
      };
      cases.push_back({"feed_forward",
                       feed(&feed_forward),
                       feed(&feed_forward_reference),
                       {activation("x", {3, rows, 16}), parameter("w", {32, 16}), parameter("b", {32}),
                        parameter("u", {8, 32}), parameter("c", {8})},
                       1.5});
      const auto gelu = [=](auto* run) { return [=](const Tensors& x) { return Tensors{run(x[0], tanh, drop)}; }; };
      cases.push_back(
          {"gelu_dropout", gelu(&gelu_dropout), gelu(&gelu_dropout_reference), {activation("x", {3, rows, 9})}});
    }
    const auto norm = [=](auto* run) {
      return [=](const Tensors& x) {
        const ResidualNorm got = run(x[0], x[1], drop, NormWeights{x[2], x[3], 1e-5}, {});
        return Tensors{got.sum, got.normed};
      };
    };
    for (const int64_t width : {5, 33, 64, 150})
      for (const bool branch : {true, false})
        cases.push_back(
            {"residual_norm",
             norm(&residual_norm),
             norm(&residual_norm_reference),
             {activation("x", {3, rows, width}), branch ? activation("branch", {3, rows, width}) : at::Tensor(),
              parameter("weight", {width}), parameter("bias", {width})}});
    cases.push_back({"residual",
                     [=](const Tensors& x) { return Tensors{residual(x[0], x[1], drop)}; },
                     [=](const Tensors& x) { return Tensors{x[0] + drop(x[1])}; },
                     {activation("x", {3, rows, 9}), activation("branch", {3, rows, 9})}});
    const at::Tensor ids = (at::arange(3 * rows).view({3, rows}) * 5).remainder(11);
    const auto embed = [=](auto* run) {
      return [=](const Tensors& x) { return Tensors{run(x[0], ids, x[1], drop, {})}; };
    };
    cases.push_back({"embedding",
                     embed(&embedding),
                     embed(&embedding_reference),
                     {parameter("tokens", {11, 12}), parameter("positions", {rows + 2, 12})}});
  }
}

void add_batched_products(std::vector<Case>& cases) {
  const auto add = [&](const Tensors& inputs) {
    cases.push_back({"batched_product", [](const Tensors& x) { return Tensors{batched_product(x[0], x[1])}; },
                     [](const Tensors& x) { return Tensors{at::matmul(x[0], x[1])}; }, inputs});
  };
  add({activation("a", {3, 2, 300, 40}), activation("b", {3, 2, 40, 290})});
  add({activation("a", {1, 2, 40, 80}), activation("b", {3, 2, 80, 36})});  // one matrix for all samples
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_maps(cases), add_attention(cases), add_feature_attention(cases), add_hashed_attention(cases);
  add_token_operators(cases), add_batched_products(cases);
  return cases;
}

TEST_CASE("in bf16 every operator is its definition but for the format's rounding, with gradients") {
  check_definitions(all_cases());
}

TEST_CASE("--kernels=check holds operators in bf16 against their definitions, forwards and backwards") {
  check_policy(all_cases());
}

TEST_CASE("in bf16 dropout drops what it drops in float") {
  std::vector<Case> dropping;
  for (const Case& one : all_cases())  // whose zeros are dropout's alone
    if (one.name == "gelu_dropout" || one.name == "embedding") dropping.push_back(one);
  check_zeros(dropping);
}

TEST_CASE("in bf16 results are the same bits on any number of threads, and without autocast from bf16 operands") {
  check_threads(all_cases());
  const Tensors x{activation("q", {3, 2, 40, 8}), activation("k", {3, 2, 40, 8}), activation("v", {3, 2, 40, 8})};
  const at::Tensor inside = under_bf16([](const Tensors& y) { return Tensors{attention(y[0], y[1], y[2], {})}; })(x)[0];
  const at::Tensor outside =
      attention(x[0].to(at::kBFloat16), x[1].to(at::kBFloat16), x[2].to(at::kBFloat16), AttentionOptions());
  CHECK(at::equal(inside, outside));
}

TEST_CASE("without our kernels bf16 is LibTorch's autocast, and float where that is off") {
  const at::Tensor x = activation("x", {4, 6}), weight = parameter("w", {5, 6});
  for (const Policy policy : {Policy::kComposite, Policy::kReference}) {
    const PolicyScope scope(policy);
    CHECK_FALSE(stores_bf16({x.to(at::kBFloat16)}));
    const AutocastScope autocast(at::kCPU, at::kBFloat16);
    CHECK(at::equal(linear(x, {weight, {}}), at::linear(x, weight)));
  }
  CHECK_FALSE(stores_bf16({x.to(at::kDouble)}));
  CHECK_FALSE(stores_bf16({x}));
}

TEST_CASE("fp16 autocast on a CPU runs as it did: no kernel of ours takes its activations") {
  const AutocastScope autocast(at::kCPU, at::kHalf);
  const at::Tensor x = activation("x", {4, 6});
  CHECK_FALSE(stores_bf16({x}));
  CHECK(linear(x, {parameter("w", {5, 6}), {}}).scalar_type() == at::kHalf);
}

}  // namespace xformer::kernels::bf16_test::operators
