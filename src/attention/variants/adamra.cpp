// AdaMRA: "Adaptive Multi-Resolution Attention with Linear Complexity", equations 1 and 6 to 9. Heads are resolutions:
// head h attends to segments of l_h tokens, and a router sends every token to one head.
//   Q, K, V = X W^Q, X W^K, X W^V                       K~^h, V~^h: segments of l_h tokens, compressed
//   P_i = softmax(Q_i W),   h(i) = argmax_h P_ih        lowest index of equal ones; no bias
//   q = Q W^Q_hs,  k = K~^h W^K_hs,  v = V~^h W^V_hs    sub-heads s = 1 .. S of width d / S; no bias
//   o_i = phi(q_i)^T sum_t phi(k_t) v_t^T / (phi(q_i)^T sum_t phi(k_t) + eps)   phi = relu, over segments with tokens
//   Y_i = (o_i of all sub-heads of h(i), side by side) W^O
// argmax passes no gradient to W: by default o_i is times P / stop(P), which is 1, so the values are those of the paper
// and the router learns. With one set of sub-head maps (proj = shared) they are slices of Q, K~ and V~.
// With softmax all heads work on all tokens, so that sizes never depend on where the router sends them; features are of
// a token's own head alone (kernels/routed_features).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/descriptor.h"
#include "attention/multi_head.h"
#include "attention/shared/full_precision.h"
#include "attention/shared/index_tables.h"
#include "attention/shared/kernel_sums.h"
#include "kernels/attention/attention.h"
#include "kernels/batched_product/batched_product.h"
#include "kernels/feature_attention/features.h"
#include "kernels/linear/linear.h"
#include "kernels/pooling/pooling.h"
#include "kernels/routed_features/routed_features.h"
#include "tensor/parts.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::adamra {

constexpr double kEpsilon = 1e-6;  // of the denominator
constexpr double kLowest = -1e30;  // score of what is not there
constexpr int kRounds = 3;         // of k-means

struct Options {
  std::vector<int64_t> rates = {2, 8, 32};
  int64_t sub_heads = 2;
  std::string kernel = "relu";
  std::string router_gradient = "straight-through";
  std::string proj = "per-head";
  std::string compress = "mean";
};

class AdaMraMixer : public SequenceMixer {
 public:
  AdaMraMixer(const Options& options, bool random, const BuildContext& context)
      : options_(options),
        random_(random),
        model_dim_(context.model_dim),
        dim_(context.heads * context.head_dim),
        heads_(static_cast<int64_t>(options.rates.size())),
        sub_dim_(dim_ / options.sub_heads) {
    XF_CHECK(dim_ % options.sub_heads == 0, UserError,
             "attention.sub_heads: expected a number that divides the width {}, got {}", dim_, options.sub_heads);
    const auto linear = [&](const char* name, int64_t in, int64_t out, bool bias) {
      return register_module(name,
                             std::make_shared<Linear>(in, out, bias, context.init_scheme, context.init.child(name)));
    };
    query_ = linear("query", model_dim_, dim_, context.bias);
    key_ = linear("key", model_dim_, dim_, context.bias);
    value_ = linear("value", model_dim_, dim_, context.bias);
    out_ = linear("out", dim_, model_dim_, context.bias);
    if (options.proj == "per-head") {
      const double d = static_cast<double>(dim_);
      const double bound = context.init_scheme == "glra" ? std::sqrt(3 / d) : 1 / std::sqrt(d);
      const auto maps = [&](const char* name) {
        return register_parameter(name, context.init.uniform(name, {heads_, dim_, dim_}, -bound, bound));
      };
      head_query_ = maps("head_query");
      head_key_ = maps("head_key");
      head_value_ = maps("head_value");
    }
    if (options.compress == "projection" || options.compress == "convolution") {
      // Both start as the mean.
      std::vector<at::Tensor> filters;
      for (const int64_t rate : options.rates)
        filters.push_back(
            at::full({2, rate, options.compress == "projection" ? 1 : dim_}, 1.0 / static_cast<double>(rate)));
      filters_ = register_parameter("filters", at::cat(filters, 1));
    }
    if (options.kernel == "softmax")
      for (int64_t h = 0; h < heads_; ++h) dropouts_.push_back(context.make_dropout());
    if (!random) {
      router_ = linear("router", dim_, heads_, false);
      return;
    }
    // A key that also survives as a float: buffers take the type of their module.
    const auto key = static_cast<double>(context.init.stream("routes").next_below(uint64_t{1} << 24));
    fixed_routes_ = register_buffer("fixed_routes", at::tensor({key, 0.0, 0.0}, at::kDouble));
    for (int64_t h = 0; h + 1 < heads_; ++h)
      draws_.emplace_back(1 - 1 / static_cast<double>(heads_ - h), context.dropout_stream);
  }

  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry& carry) override {
    kernels::NormedRows rows{x, x};
    return branch(rows, mask, carry).made();
  }

  [[nodiscard]] bool takes_norm() const override { return true; }
  kernels::Branch branch(kernels::NormedRows& x, const SequenceMask& mask, Carry&) override {
    const std::vector<at::Tensor> rows =
        kernels::linear(x, {query_->map(), key_->map(), value_->map()}, mask.needed());  // [b,n,d]
    at::Tensor mixed;
    {
      const FullPrecision full(rows[0].device().type());
      const at::Tensor q = full(rows[0]), k = full(rows[1]), v = full(rows[2]);
      probe("q", q), probe("k", k), probe("v", v);
      mixed = mix(q, k, v, mask);
    }
    probe("mixed", mixed);
    return {.rows = mixed, .out = out_->map(), .needed = mask.needed()};
  }

  // The pattern's least sends every token to its own head only.
  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    const double b = static_cast<double>(batch), n = static_cast<double>(length), d = static_cast<double>(dim_);
    const double h = static_cast<double>(heads_), width = static_cast<double>(sub_dim_);
    double segments = 0, fewest = n;
    for (const int64_t rate : options_.rates) {
      const auto own = static_cast<double>(pooled_len(length, rate));
      segments += own;
      fewest = std::min(fewest, own);
    }
    double flops = 8 * b * n * static_cast<double>(model_dim_) * d, pattern = 0;
    if (!random_) flops += 2 * b * n * d * h;
    if (options_.compress == "kmeans") flops += 2 * b * n * segments * d * (2 * kRounds + 1);
    if (options_.proj == "per-head") flops += 4 * b * segments * d * d;
    pattern = flops;
    const bool softmax = options_.kernel == "softmax";
    if (options_.proj == "per-head") flops += 2 * b * n * d * d * (softmax ? h : 1), pattern += 2 * b * n * d * d;
    if (softmax) {
      flops += 4 * b * n * segments * d, pattern += 4 * b * n * fewest * d;
    } else {
      const double table = 2 * b * d * (width + 1) * (segments + n);
      flops += table, pattern += table;
    }
    return {flops, pattern, b * n * d * (softmax ? 3 * h : 5)};
  }

 private:
  struct Routes {
    at::Tensor chosen;  // [b or 1,n,H] bool, one of each row
    at::Tensor gate;    // [b,n] factor of the token's output, or undefined
  };

  struct Segments {
    at::Tensor keys, values;  // [b,S,m,d/S]
    SequenceMask mask;
  };

  Routes route(const at::Tensor& q) {
    if (random_) return {random_routes(q), {}};
    const at::Tensor p = at::softmax(router_->forward(q), -1);  // [b,n,H]
    const at::Tensor chosen = tables_.numbers(heads_, q.device()) == p.detach().argmax(-1, true);
    if (options_.router_gradient == "none") return {chosen, {}};
    const at::Tensor gate = (p * chosen).sum(-1);
    return {chosen, options_.router_gradient == "gate" ? gate : gate / gate.detach()};
  }

  // A head drawn for each token, afresh in each training step; in evaluation one and the same for each position. What
  // the heads before left over, head h takes with probability 1 / (H - h).
  at::Tensor random_routes(const at::Tensor& q) {
    const at::Tensor ones = at::ones({is_training() ? q.size(0) : 1, q.size(1)}, q.options().dtype(at::kFloat));
    const at::Tensor fixed = fixed_routes_.to(at::kLong);
    at::Tensor left = ones > 0;
    std::vector<at::Tensor> taken;
    for (const kernels::Dropout& draw : draws_) {
      const at::Tensor wants =
          (is_training() ? draw(ones, true) : kernels::dropout(ones, draw.p(), fixed, draw.site())) > 0;
      taken.push_back(left.logical_and(wants));
      left = left.logical_and(wants.logical_not());
    }
    taken.push_back(left);
    return at::stack(taken, -1);
  }

  // [b,n,d] -> [b,S,n,d/S].
  [[nodiscard]] at::Tensor split(const at::Tensor& x) const {
    return x.unflatten(-1, {options_.sub_heads, sub_dim_}).transpose(1, 2);
  }

  // both [b,2,n,d]: keys and values -> [b,2,m,d] of head h, and which segments hold a token.
  std::pair<at::Tensor, SequenceMask> compress(const at::Tensor& both, const SequenceMask& mask, int64_t h) const {
    const int64_t rate = options_.rates[static_cast<size_t>(h)], n = both.size(2);
    const SequenceMask pooled = mask.pooled(rate);
    if (!filters_.defined()) return cluster(both, pool_tokens(both, mask, rate), mask, pooled);
    const int64_t first = std::accumulate(options_.rates.begin(), options_.rates.begin() + h, int64_t{0});
    const int64_t segments = pooled_len(n, rate);
    const at::Tensor rows = mask.all_valid() ? both : both * mask.as_factor(both.scalar_type());
    const at::Tensor grouped = with_zeros_behind(rows, 2, segments * rate - n).unflatten(2, {segments, rate});
    return {(grouped * filters_.narrow(1, first, rate).unsqueeze(1)).sum(3), pooled};
  }

  // k-means of the keys from the means of segments; values follow their keys. A cluster that lost its tokens stays
  // where it is until the end, and then holds nothing.
  [[nodiscard]] std::pair<at::Tensor, SequenceMask> cluster(const at::Tensor& both, const at::Tensor& means,
                                                            const SequenceMask& mask,
                                                            const SequenceMask& pooled) const {
    const at::Tensor rows = mask.all_valid() ? both : both * mask.as_factor(both.scalar_type());
    const at::Tensor keys = rows.detach().select(1, 0), index = tables_.numbers(means.size(2), keys.device());
    at::Tensor centres = means.detach().select(1, 0), members, count;  // [b,m,d], [b,m,n], [b,m,1]
    for (int round = 0; round < kRounds; ++round) {
      if (round > 0) centres = at::where(count > 0, at::matmul(members, keys) / count.clamp_min(1), centres);
      at::Tensor nearness = at::matmul(keys, centres.transpose(1, 2)) - centres.square().sum(-1).unsqueeze(1) / 2;
      if (!pooled.all_valid()) nearness = nearness.masked_fill(pooled.key_valid.logical_not().unsqueeze(1), kLowest);
      members = (nearness.argmax(-1, /*keepdim=*/true) == index).to(keys.scalar_type()).transpose(1, 2);
      if (!mask.all_valid()) members = members * mask.key_valid.unsqueeze(1);
      count = members.sum(-1, /*keepdim=*/true);
    }
    return {at::matmul(members.unsqueeze(1), rows) / count.clamp_min(1).unsqueeze(1), {count.squeeze(-1) > 0}};
  }

  // Of all heads, from k and v [b,n,d].
  std::vector<Segments> segments_of(const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask) const {
    const bool means = options_.compress == "mean";
    // What is pooled goes on as what pooling leaves of it: gradients are then added in the same pass.
    at::Tensor keys = k.unsqueeze(1), values = v.unsqueeze(1);
    const auto mean = [&](at::Tensor& rows, int64_t rate) {
      const kernels::PooledBeside made = kernels::pool_beside(rows, mask, rate);
      rows = made.x;
      return made.pooled.squeeze(1);
    };
    const at::Tensor both = means ? at::Tensor() : at::stack({k, v}, 1);
    std::vector<Segments> result;
    for (int64_t h = 0; h < heads_; ++h) {
      at::Tensor short_keys, short_values;  // [b,m,d]
      SequenceMask short_mask;
      if (means) {
        const int64_t rate = options_.rates[static_cast<size_t>(h)];
        short_keys = mean(keys, rate), short_values = mean(values, rate), short_mask = mask.pooled(rate);
      } else {
        const auto [made, made_mask] = compress(both, mask, h);
        short_keys = made.select(1, 0), short_values = made.select(1, 1), short_mask = made_mask;
      }
      if (head_key_.defined()) {
        short_keys = kernels::linear(short_keys, {head_key_[h], {}});
        short_values = kernels::linear(short_values, {head_value_[h], {}});
      }
      result.push_back({split(short_keys), split(short_values), short_mask});
    }
    return result;
  }

  at::Tensor mix(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask) {
    const int64_t b = q.size(0), n = q.size(1);
    Routes routes = route(q);
    // Padded queries are routed nowhere.
    if (!mask.all_valid()) routes.chosen = routes.chosen.logical_and(mask.key_valid.unsqueeze(-1));
    if (probe_recorder != nullptr)  // tokens of each sample that went to each head
      probe("routing", routes.chosen.expand({b, n, heads_}).sum(1));
    const std::vector<Segments> segments = segments_of(k, v, mask);
    if (options_.kernel != "softmax") return kernel_mix(q, routes, segments);
    const at::Tensor mixed = softmax_mix(q, routes.chosen.view({-1, n, 1, heads_, 1}), segments)  // [b,S,n,d/S]
                                 .transpose(1, 2)
                                 .reshape({b, n, dim_});
    return routes.gate.defined() ? mixed * routes.gate.unsqueeze(-1) : mixed;
  }

  at::Tensor kernel_mix(const at::Tensor& q, const Routes& routes, const std::vector<Segments>& segments) const {
    const kernels::FeatureMap map = options_.kernel == "elu" ? kernels::FeatureMap::kElu : kernels::FeatureMap::kRelu;
    std::vector<at::Tensor> tables;  // per head [b,S,d/S,d/S+1]
    for (const Segments& part : segments) {
      const at::Tensor features = kernels::plain_features(part.keys, {.map = map});
      tables.push_back(kernels::batched_product(features.transpose(-1, -2), values_and_count(part.values, part.mask)));
    }
    return kernels::routed_features(q, head_query_, at::cat(tables, 2), routes.chosen, routes.gate, {map, kEpsilon});
  }

  at::Tensor softmax_mix(const at::Tensor& q_in, const at::Tensor& own, const std::vector<Segments>& segments) const {
    const int64_t b = q_in.size(0), n = q_in.size(1);
    at::Tensor queries = q_in.view({b, n, options_.sub_heads, 1, sub_dim_});  // [b,n,S,H or 1,d/S]
    if (head_query_.defined()) {
      const at::Tensor maps =
          head_query_.unflatten(1, {options_.sub_heads, sub_dim_}).transpose(0, 1).reshape({dim_ * heads_, dim_});
      queries = kernels::linear(q_in, {maps, {}}).view({b, n, options_.sub_heads, heads_, sub_dim_});
    }
    at::Tensor sum;
    for (int64_t h = 0; h < heads_; ++h) {
      const ProbeScope scope("head", h);
      const Segments& part = segments[static_cast<size_t>(h)];
      kernels::AttentionOptions options;
      options.scale = 1 / std::sqrt(static_cast<double>(sub_dim_));
      options.mask = part.mask;
      options.dropout = dropouts_[static_cast<size_t>(h)].place(is_training());
      const at::Tensor q = queries.select(3, std::min(h, queries.size(3) - 1)).transpose(1, 2);  // [b,S,n,d/S]
      // All rows, so that what is multiplied does not depend on where the router sends tokens.
      const at::Tensor elsewhere = own.select(3, h).reshape({-1, 1, n, 1}).logical_not();
      const at::Tensor rows = kernels::attention(q, part.keys, part.values, options).masked_fill(elsewhere, 0);
      sum = sum.defined() ? sum + rows : rows;
    }
    return sum;
  }

  Options options_;
  bool random_;
  int64_t model_dim_, dim_, heads_, sub_dim_;
  std::shared_ptr<Linear> query_, key_, value_, out_, router_;
  at::Tensor head_query_, head_key_, head_value_;  // [H,d,d]; undefined when shared
  at::Tensor filters_;                             // [2, sum l, 1 or d]; undefined for mean and kmeans
  at::Tensor fixed_routes_;                        // [3]: a stream's state
  IndexTables tables_;
  std::vector<kernels::Dropout> draws_;     // H - 1
  std::vector<kernels::Dropout> dropouts_;  // of softmax's weights, by resolution
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::rates, "rates", "tokens per segment, for each resolution (1/c)", each_at_least(1))
          .add(&Options::sub_heads, "sub_heads", "heads within a resolution (S)", at_least(1))
          .add(&Options::kernel, "kernel", "what weighs keys: features of queries and keys (phi), or softmax",
               one_of({"relu", "elu", "softmax"}))
          .add(&Options::router_gradient, "router_gradient",
               "how the router learns: straight-through (outputs times P / stop(P)), gate (times P), none",
               one_of({"straight-through", "gate", "none"}))
          .add(&Options::proj, "proj",
               "maps of the sub-heads: per-head (for each resolution), shared (none of their own)",
               one_of({"per-head", "shared"}))
          .add(&Options::compress, "compress",
               "how a segment becomes one token: mean, projection (learned weights of its places), convolution (and of "
               "its channels), kmeans (clusters in place of segments; time n^2)",
               one_of({"mean", "projection", "convolution", "kmeans"}));
  return kSchema;
}

// The name without the options that it decides.
Descriptor ablation(Descriptor base, const std::string& name, const std::string& title, const std::string& summary,
                    const std::string& decided) {
  base.name = name;
  base.title = title;
  base.summary = summary;
  std::erase_if(base.options, [&](const OptionInfo& option) { return option.name == decided; });
  return base;
}

std::vector<Descriptor> describe() {
  Descriptor base;
  base.name = "adamra";
  base.title = "AdaMRA";
  base.paper = "Zhang, Ma, Seidl, Tresp: Adaptive Multi-Resolution Attention with Linear Complexity, 2021";
  base.method_class = "MR";
  base.summary =
      "A router sends each token to one of several resolutions, whose keys and values are means of segments.";
  base.complexity = Complexity::kLinear;
  base.appended_padding = always_exact();
  base.options = schema().options();
  base.tensors = projection_meanings();
  const std::vector<TensorMeaning> maps{
      {"head_query",
       "W^Q of the sub-heads of each resolution: q = Q W^T [H, d, d]; sub-head s has rows s d/S to (s+1) d/S"},
      {"head_key", "W^K of the sub-heads: k = K~ W^T [H, d, d]"},
      {"head_value", "W^V of the sub-heads: v = V~ W^T [H, d, d]"},
      {"filters",
       "weights of a segment's places, for keys and for values; resolutions one behind the other [2, sum l, 1 or d]"}};
  base.tensors.insert(base.tensors.end(), maps.begin(), maps.end());
  const auto build = [](const std::string& kernel, bool random) {
    return [=](const Json& json, const BuildContext& context) {
      Options options = schema().read(json);
      if (!kernel.empty()) options.kernel = kernel;
      return std::make_shared<AdaMraMixer>(options, random, context);
    };
  };

  Descriptor routed = base;
  routed.tensors.push_back({"router.weight", "W of P = softmax(Q W^T) [H, d]"});
  routed.build_mixer = build("", false);

  Descriptor elu = ablation(routed, "adamra-elu", "AdaMRA, elu kernel", "AdaMRA with elu + 1 for relu.", "kernel");
  elu.build_mixer = build("elu", false);

  Descriptor softmax = ablation(routed, "adamra-softmax", "AdaMRA, softmax",
                                "AdaMRA with softmax over the segments of a token's resolution.", "kernel");
  softmax.complexity = Complexity::kQuadratic;
  softmax.build_mixer = build("softmax", false);

  Descriptor random = ablation(base, "adamra-rand", "AdaMRA, random routing",
                               "AdaMRA whose tokens go to resolutions drawn at random.", "router_gradient");
  random.traits.stochastic = true;
  random.tensors.push_back({"fixed_routes", "key of the draws that route tokens in evaluation, and two zeros [3]"});
  random.build_mixer = build("", true);
  return {routed, random, softmax, elu};
}

}  // namespace xformer::attention::variants::adamra
