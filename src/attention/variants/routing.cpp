// Routing Transformer: Roy, Saffar, Vaswani, Grangier, "Efficient Content-Based Sparse Attention with Routing
// Transformers", TACL 2021, section 4. The first half of the heads (rounded down) is local: blocks of w tokens see
// themselves and their neighbours. Of the others each has k centroids mu; with x = LN(q), y = LN(k), layer norms
// without parameters,
//   Q_c, K_c = the w queries and the w keys of largest x mu_c, y mu_c     A_c = softmax(x y^T / sqrt(d)) v over K_c
//   o_i = mean of A_c(i) over the clusters c with i in Q_c; 0 where there are none
// Centroids follow by moving averages, without a gradient: of all x and y that are nearest to mu_c, their number n_c
// and their sum s_c, each lambda of the old and 1 - lambda of a step's; mu_c = s_c / n_c, n_c smoothed by 1e-5. The
// loss gets beta times the mean of |x - mu|^2 to the nearest centroid. (attention-more 10) Causal: keys are the
// queries, y = x. The w tokens of a cluster that lie nearest to it are chosen among all tokens, so that a later token
// can push out an earlier one and be seen by that, whatever is masked inside the cluster. Here a token reads the last w
// tokens of the cluster that is nearest to it, itself one of them; nothing later has a say in that.
#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/descriptor.h"
#include "attention/shared/class_windows.h"
#include "attention/shared/parts.h"
#include "attention/shared/running_means.h"
#include "kernels/attention/attention.h"
#include "kernels/largest_places/largest_places.h"
#include "kernels/picked_rows/picked_rows.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::routing {

constexpr double kNormEpsilon = 1e-6;
constexpr double kSmoothing = 1e-5;  // of the number of a centroid's vectors

struct Options {
  int64_t centroids = 0, members = 0;
  double centroid_decay = 0.999;
  double commitment = 1e-4;
};

class RoutingCore : public AttentionCore {
 public:
  RoutingCore(const Options& options, const BuildContext& context)
      : options_(options),
        causal_(context.causal),
        local_(context.heads / 2),
        dropout_(context.make_dropout()),
        local_dropout_(context.make_dropout()) {
    XF_ASSERT(context.max_len > 0, "routing needs the longest length when it is built");
    centroids_ =
        options.centroids > 0 ? options.centroids : std::lround(std::sqrt(static_cast<double>(context.max_len)));
    const int64_t h = context.heads - local_, d = context.head_dim;
    const at::Tensor drawn = context.init.normal("centroids", {h, centroids_, d}, 1);
    sum_ = register_buffer("centroid_sum", at::layer_norm(drawn, {d}, {}, {}, kNormEpsilon, false));
    count_ = register_buffer("centroid_count", at::ones({h, centroids_}));
    step_sum_ = register_buffer("step_sum", at::zeros({h, centroids_, d}));
    step_count_ = register_buffer("step_count", at::zeros({h, centroids_}));
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    const int64_t n = q.size(2), h = q.size(1) - local_;
    XF_ASSERT(mask.causal == causal_ && k.size(2) == n, "routing attends within one sequence, causal {}", causal_);
    const auto routed = [&](const at::Tensor& x) { return x.narrow(1, local_, h); };
    const auto normed = [&](const at::Tensor& x) {
      return at::layer_norm(routed(x), {x.size(-1)}, {}, {}, kNormEpsilon, false);
    };
    const at::Tensor x = normed(q), y = causal_ ? x : normed(k);
    const at::Tensor centres = this->centres();
    loss_ = at::Tensor();
    if (is_training() && at::GradMode::is_enabled()) learn(causal_ ? std::vector{x} : std::vector{x, y}, centres, mask);
    const at::Tensor own =
        causal_ ? look_back(x, routed(v), centres, mask) : by_clusters(x, y, routed(v), centres, mask);
    if (local_ == 0) return own;
    const ProbeScope scope("local");
    const auto near = [&](const at::Tensor& part) { return part.narrow(1, 0, local_); };
    const at::Tensor block =
        window_attention(near(q), near(k), near(v), mask.key_valid, local_windows(n), local_dropout_, is_training());
    return at::cat({block, own}, 1);
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const int64_t n = shape.query_len, w = members(n), local = std::min(local_, shape.heads);
    const double b = static_cast<double>(shape.batch), d = static_cast<double>(shape.head_dim);
    const double far = static_cast<double>(shape.heads - local), near = static_cast<double>(local);
    const double scores = (causal_ ? 2 : 4) * d * static_cast<double>(n * centroids_);
    const Windows windows = local_windows(n), back = class_windows_of(n, w - 1);
    const double all = static_cast<double>(centroids_ * w * w);
    const double pairs = causal_ ? back.explicit_pairs() : all, least = causal_ ? back.pattern_pairs() : all;
    const double kept = causal_ ? 3 * b * far * pairs : 0;
    return {b * (far * (scores + 4 * d * pairs) + near * 4 * d * windows.executed_pairs()),
            b * (far * (scores + 4 * d * least) + near * 4 * d * windows.pattern_pairs()),
            kept + kept_of_windows(b * static_cast<double>(shape.heads), static_cast<double>(n), d)};
  }

  at::Tensor extra_loss() override { return std::exchange(loss_, at::Tensor()); }

  void after_step(int64_t) override {
    const at::NoGradGuard no_grad;
    take_step({{sum_, step_sum_}, {count_, step_count_}}, options_.centroid_decay);
  }

 private:
  // w
  [[nodiscard]] int64_t members(int64_t n) const {
    return std::min(n, options_.members > 0 ? options_.members : (n + centroids_ - 1) / centroids_);
  }
  [[nodiscard]] Windows local_windows(int64_t n) const { return Windows::neighbour_blocks(n, members(n), causal_); }

  // mu [h,k,d]
  [[nodiscard]] at::Tensor centres() const {
    const at::Tensor total = count_.sum(-1, /*keepdim=*/true);
    const at::Tensor smooth = (count_ + kSmoothing) / (total + static_cast<double>(centroids_) * kSmoothing) * total;
    return sum_ / smooth.unsqueeze(-1);
  }

  // Of the nearest centroid [b,h,n].
  static at::Tensor nearest(const at::Tensor& x, const at::Tensor& centres) {
    const at::Tensor half = centres.square().sum(-1).unsqueeze(1) / 2;  // [h,1,k]
    return (at::matmul(x.detach(), centres.transpose(-1, -2)) - half).argmax(-1);
  }

  // The sums of a step, over its micro-batches, and the loss.
  void learn(const std::vector<at::Tensor>& vectors, const at::Tensor& centres, const SequenceMask& mask) {
    const int64_t b = vectors[0].size(0), h = vectors[0].size(1), n = vectors[0].size(2);
    const at::Tensor valid =
        (mask.all_valid() ? at::ones({b, 1, n, 1}, vectors[0].options()) : mask.as_factor(vectors[0].scalar_type()))
            .expand({b, h, n, 1});
    at::Tensor distance;
    for (const at::Tensor& x : vectors) {
      const at::Tensor which = nearest(x, centres);
      const at::Tensor there = kernels::picked_rows(centres.unsqueeze(0).expand({b, -1, -1, -1}), which);
      const at::Tensor own = ((x - there).square() * valid).sum();
      distance = distance.defined() ? distance + own : own;
      const at::NoGradGuard no_grad;
      step_count_.add_(kernels::summed_rows(valid, which, centroids_).squeeze(-1).sum(0));
      step_sum_.add_(kernels::summed_rows(x.detach() * valid, which, centroids_).sum(0));
    }
    const at::Tensor count = valid.sum().clamp_min(1) * static_cast<double>(vectors.size());
    if (options_.commitment > 0) loss_ = distance / count * options_.commitment;
  }

  // Places of the w tokens that score highest for each centroid, in their order [b,h,k w].
  [[nodiscard]] at::Tensor choose(const at::Tensor& x, const at::Tensor& centres, const SequenceMask& mask) const {
    at::Tensor scores = at::matmul(centres, x.detach().transpose(-1, -2));  // [b,h,k,n]
    if (!mask.all_valid()) {
      const at::Tensor padded = mask.key_valid.logical_not().unsqueeze(1).unsqueeze(1);
      scores = scores.masked_fill(padded, kernels::lowest_log_sum(scores.scalar_type()));
    }
    return kernels::largest_places(scores, members(x.size(2))).flatten(2);
  }

  [[nodiscard]] at::Tensor by_clusters(const at::Tensor& x, const at::Tensor& y, const at::Tensor& v,
                                       const at::Tensor& centres, const SequenceMask& mask) const {
    const int64_t b = x.size(0), h = x.size(1), n = x.size(2), d = x.size(3), w = members(n);
    const at::Tensor queries = choose(x, centres, mask), keys = choose(y, centres, mask);
    probe("members", queries.view({b, h, centroids_, w}));
    const auto take = [&](const at::Tensor& all, const at::Tensor& rows) {  // [b h k,1,w,d]
      return kernels::picked_rows(all, rows).view({b * h * centroids_, 1, w, -1});
    };
    kernels::AttentionOptions options;
    options.scale = 1 / std::sqrt(static_cast<double>(d));
    options.dropout = place_of_parts(dropout_.place(is_training()), h * centroids_);
    at::Tensor counted = at::ones({b, h, centroids_ * w, 1}, x.options());
    if (!mask.all_valid()) {
      const at::Tensor valid = mask.key_valid.unsqueeze(1).expand({b, h, n});
      const auto flags = [&](const at::Tensor& rows) { return valid.gather(2, rows).view({b * h * centroids_, w}); };
      options.mask.key_valid = flags(keys), options.query_valid = flags(queries);
      counted = options.query_valid.to(x.scalar_type()).view_as(counted);
    }
    const at::Tensor out = kernels::attention(take(x, queries), take(y, keys), take(v, keys), options);
    const at::Tensor found = kernels::summed_rows(counted, queries, n);
    return kernels::summed_rows(out.reshape({b, h, -1, d}), queries, n) / found.clamp_min(1);
  }

  [[nodiscard]] at::Tensor look_back(const at::Tensor& x, const at::Tensor& v, const at::Tensor& centres,
                                     const SequenceMask& mask) const {
    at::Tensor cluster = nearest(x, centres);
    if (!mask.all_valid()) cluster = cluster.masked_fill(mask.key_valid.logical_not().unsqueeze(1), centroids_);
    probe("cluster", cluster);
    const double scale = 1 / std::sqrt(static_cast<double>(x.size(-1)));
    const ClassRows found = class_windows(x * scale, x, v, cluster, members(x.size(2)) - 1, /*self_last=*/false,
                                          dropout_, is_training(), tables_);
    return mask.zero_padding(found.rows);
  }

  Options options_;
  bool causal_;
  int64_t local_, centroids_ = 1;
  kernels::Dropout dropout_, local_dropout_;
  IndexTables tables_;
  at::Tensor sum_, count_;            // s [h,k,d], n [h,k]
  at::Tensor step_sum_, step_count_;  // the same of the step at hand
  at::Tensor loss_;                   // of the last forward pass in training, until it is asked for
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::centroids, "centroids",
               "learned centres of a head's clusters (k); 0: the root of the longest length, rounded", at_least(0))
          .add(&Options::members, "members", "tokens of each cluster (w); 0: n / k, rounded up", at_least(0))
          .add(&Options::centroid_decay, "centroid_decay", "what a step leaves of the centroids' sums (lambda)",
               between(0, 1))
          .add(&Options::commitment, "commitment",
               "of the squared distance to the nearest centroid, added to the loss (beta)", at_least(0));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "routing";
  result.title = "Routing Transformer";
  result.paper =
      "Roy, Saffar, Vaswani, Grangier: Efficient Content-Based Sparse Attention with Routing Transformers, 2021";
  result.method_class = "LP";
  result.summary = "Half of the heads are local; in the others tokens attend within clusters around learned centroids.";
  result.complexity = Complexity::kRootN;
  result.traits = {.causal_ok = true, .fixed_length = true};
  result.appended_padding = {"with members above 0",
                             [](const Json& options) { return options["members"].get<int64_t>() > 0; }};
  result.options = schema().options();
  result.tensors = {
      {"centroid_sum", "s: moving sum of the vectors nearest to each centroid, s / n is the centroid [h, k, d]"},
      {"centroid_count", "n: moving number of these vectors [h, k]"},
      {"step_sum", "what the step at hand has added to s so far; zero between steps [h, k, d]"},
      {"step_count", "the same of n [h, k]"}};
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<RoutingCore>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::routing
