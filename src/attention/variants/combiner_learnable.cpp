// Combiner-Learnable: Ren, Dai, Dai, Yang, Leskovec, Schuurmans, Dai, "Combiner: Full Attention Transformer with Sparse
// Computation Cost", NeurIPS 2021, sections 3 and 4.4. Tokens fall into clusters, those of Routing Transformer (Roy,
// Saffar, Vaswani, Grangier, 2021); row i sees the tokens of its cluster as they are and the others in disjoint sets
// through the summaries of attention/shared/summaries.h, in one softmax. No code was published. As here:
//   cluster of token j   argmax over c of norm(k_j) . mu_c, per head, so that clusters partition the tokens
//   members              of each cluster the w tokens of highest score, w = 2 ceil(longest length / clusters)
//   surplus              what a cluster has beyond: a set of its own, which all read through its summary. Its tokens
//   have
//                        no direct keys: they read every cluster's members and surplus through summaries.
// Centroids follow the keys: after a step, with the sums s and counts c of its clusters,
//   C <- lambda C + (1 - lambda) c,   S <- lambda S + (1 - lambda) s,   mu = S / smoothed C,
// C smoothed as (C + 1e-5) / (sum C + clusters 1e-5) sum C. There is no causal form: which tokens are surplus depends
// on later ones. With one cluster it is softmax attention. Pinned tokens (CLS) stand outside.
#include <algorithm>
#include <cmath>

#include "attention/shared/running_means.h"
#include "attention/shared/summaries.h"
#include "kernels/picked_rows/picked_rows.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::combiner_learnable {

constexpr double kSmoothing = 1e-5;

struct Options : SummaryOptions {
  int64_t centroids = 0;
  double centroid_decay = 0.999;
};

// [..,n] as an index of rows [..,n,d].
at::Tensor of_rows(const at::Tensor& index, int64_t d) { return index.unsqueeze(-1).expand({-1, -1, -1, d}); }

class LearnableCore : public AttentionCore {
 public:
  LearnableCore(const Options& options, const BuildContext& context)
      : options_(options),
        frame_(context),
        pool_(*this, options, context),
        set_dropout_(context.make_dropout()),
        member_dropout_(context.make_dropout()),
        dropout_(context.make_dropout()) {
    XF_ASSERT(context.max_len > 0 && !context.causal, "combiner-learnable needs the longest length and all tokens");
    const int64_t longest = context.max_len - frame_.pinned(context.max_len), h = context.heads, d = context.head_dim;
    clusters_ = options.centroids > 0 ? options.centroids
                                      : std::max<int64_t>(1, std::llround(std::sqrt(static_cast<double>(longest))));
    most_members_ = std::max<int64_t>(1, 2 * ((longest + clusters_ - 1) / clusters_));
    const auto add = [&](const char* name, const at::Tensor& values) { return register_buffer(name, values); };
    const at::Tensor first = at::layer_norm(context.init.normal("centroids", {h, clusters_, d}, 1), {d});
    centroids_ = add("centroids", first);
    counts_ = add("cluster_counts", at::ones({h, clusters_}));
    sums_ = add("cluster_sums", first.clone());
    step_counts_ = add("step_counts", at::zeros({h, clusters_}));
    step_sums_ = add("step_sums", at::zeros({h, clusters_, d}));
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    return frame_.forward(q, k, v, mask, is_training(), [&](const PinnedFrame::Tokens& given) {
      const PinnedFrame::Tokens in = given.without_padding();
      const Members members = assign(in);
      return std::vector<std::vector<Part>>{{direct(in, members), summaries(in, members)}};
    });
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const int64_t n = shape.query_len, tokens = n - frame_.pinned(n), w = std::min(most_members_, tokens);
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const auto rows = static_cast<double>(tokens), c = static_cast<double>(clusters_);
    const double slots = c * static_cast<double>(w), assigned = 2 * rows * c * d, maps = pool_.flops(rows, d);
    const double executed =
        assigned + 4 * d * (slots * static_cast<double>(w) + 2 * rows * c + frame_.executed_pairs(n));
    // With clusters of one size.
    const double pattern = assigned + 4 * d * (rows * (rows / c + c - 1) + frame_.pattern_pairs(n));
    return {z * (executed + maps), z * (pattern + maps),
            z * (slots * (4 * d + 1) + rows * (2 * 2 * c + 4 * d) + 2 * frame_.executed_pairs(n))};
  }

  void after_step(int64_t) override {
    const at::NoGradGuard no_grad;
    take_step({{sums_, step_sums_}, {counts_, step_counts_}}, options_.centroid_decay);
    const at::Tensor total = counts_.sum(-1, /*keepdim=*/true);  // [h,1]
    const at::Tensor smooth = (counts_ + kSmoothing) / (total + static_cast<double>(clusters_) * kSmoothing) * total;
    centroids_.copy_(sums_ / smooth.clamp_min(kSmoothing).unsqueeze(-1));
  }

 private:
  struct Members {
    int64_t width;       // w, at most n
    at::Tensor cluster;  // [b,h,n]; padding has `clusters`
    at::Tensor surplus;  // [b,h,n] bool
    at::Tensor slot;     // [b,h,n] place among clusters times w, -1 without one
    at::Tensor place;    // [b,h,clusters w] the token there, -1 for none
  };

  [[nodiscard]] Members assign(const PinnedFrame::Tokens& in) {
    const bool learns = is_training() && at::GradMode::is_enabled();  // once where a pass is computed again
    const at::NoGradGuard no_grad;
    const int64_t b = in.k.size(0), h = in.k.size(1), n = in.k.size(2), d = in.k.size(3);
    const at::Tensor valid = in.valid.unsqueeze(1).expand({b, h, n});
    const at::Tensor normed = at::layer_norm(in.k.detach(), {d});
    const auto [score, nearest] = at::max(at::matmul(normed, centroids_.transpose(-1, -2)), -1);
    Members result{std::min(most_members_, n), nearest.masked_fill(valid.logical_not(), clusters_), {}, {}, {}};
    const at::Tensor& cluster = result.cluster;
    const at::Tensor counted = at::zeros({b, h, clusters_ + 1}, cluster.options());
    const at::Tensor counts = counted.scatter_add(2, cluster, at::ones_like(cluster));
    // By cluster, within one by score, from the highest on, within one by place.
    const at::Tensor by_score = std::get<1>(at::sort(score, /*stable=*/true, -1, /*descending=*/true));
    const at::Tensor by_cluster = std::get<1>(at::sort(cluster.gather(2, by_score), /*stable=*/true, -1, false));
    const at::Tensor order = by_score.gather(2, by_cluster);
    const at::Tensor first = (counts.cumsum(2) - counts).gather(2, cluster.gather(2, order));
    const at::Tensor numbers = tables_.numbers(n, cluster.device());
    const at::Tensor rank = at::empty_like(cluster).scatter(2, order, numbers - first);
    result.surplus = rank.ge(result.width).logical_and(valid);
    const int64_t slots = clusters_ * result.width;
    const at::Tensor seated = valid.logical_and(rank.lt(result.width)), slot = cluster * result.width + rank;
    result.slot = at::where(seated, slot, -1);
    result.place = at::full({b, h, slots + 1}, -1, cluster.options())
                       .scatter(2, at::where(seated, slot, slots), numbers.expand({b, h, n}))
                       .narrow(2, 0, slots);
    probe("clusters", cluster);
    if (learns) {
      step_counts_.add_(counts.narrow(2, 0, clusters_).sum(0).to(step_counts_.scalar_type()));
      step_sums_.add_(kernels::summed_rows(normed, cluster, clusters_ + 1).narrow(2, 0, clusters_).sum(0));
    }
    return result;
  }

  // Members among themselves.
  [[nodiscard]] Part direct(const PinnedFrame::Tokens& in, const Members& members) const {
    const auto seated = [&](const at::Tensor& x) {  // [b,h,n,d] -> [b,h,clusters w,d], zero in empty seats
      return kernels::picked_rows(x, members.place, /*some_none=*/true);
    };
    const at::Tensor filled = none_unless(members.place.ge(0));  // [b,h,clusters w]
    const Windows windows = Windows::own_block(members.place.size(2), members.width, false);
    Part part;
    {
      const ProbeScope scope("members");
      part.out = window_attention(seated(in.q), seated(in.k), seated(in.v), {}, windows, member_dropout_, is_training(),
                                  {}, &part.log_sum, filled);
    }
    const at::Tensor log_sum = kernels::picked_rows(part.log_sum, members.slot, /*some_none=*/true);
    return {kernels::picked_rows(part.out, members.slot, /*some_none=*/true),
            at::where(members.slot.ge(0).unsqueeze(-1), log_sum, kernels::lowest_log_sum(at::kFloat))};
  }

  // All tokens on the summaries of members and of surplus; members not on that of their own cluster's members.
  [[nodiscard]] Part summaries(const PinnedFrame::Tokens& in, const Members& members) const {
    const int64_t b = in.q.size(0), h = in.q.size(1), n = in.q.size(2), d = in.q.size(3), sets = 2 * clusters_;
    // The set of a token; one behind the last for padding.
    const at::Tensor set = at::where(members.cluster.eq(clusters_), at::full({}, sets, members.cluster.options()),
                                     members.cluster + members.surplus.to(at::kLong) * clusters_);
    const auto added = [&](const at::Tensor& x) {  // [b,h,n,e] -> [b,h,sets + 1,e]
      return kernels::summed_rows(x, set, sets + 1);
    };
    const auto of_tokens = [&](const at::Tensor& x) { return kernels::picked_rows(x, set); };  // and back
    const auto largest = [&](const at::Tensor& x) {
      return at::full({b, h, sets + 1, x.size(3)}, kernels::lowest_log_sum(x.scalar_type()), x.options())
          .scatter_reduce(2, of_rows(set, x.size(3)), x, "amax");
    };
    const at::Tensor count = added(at::ones({b, h, n, 1}, in.q.options()));  // [b,h,sets + 1,1]
    const auto pooled = [&](const at::Tensor& x) {
      if (options_.pool == "sum") return added(x);
      if (options_.pool == "mean") return added(x) / count.clamp_min(1);
      return at::where(count.gt(0), largest(x), 0);
    };
    const at::Tensor set_q = pooled(pool_.queries(in.q)), set_k = pooled(pool_.keys(in.k)).narrow(2, 0, sets);
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    const at::Tensor logits = (of_tokens(set_q) * in.k).sum(-1, /*keepdim=*/true) * scale;  // [b,h,n,1]
    const at::Tensor raised = at::exp(logits - of_tokens(largest(logits.detach())));
    const at::Tensor weights = raised / of_tokens(added(raised));
    const at::Tensor set_v = added(set_dropout_(weights, is_training()) * in.v).narrow(2, 0, sets);

    const at::Tensor there = count.narrow(2, 0, sets).transpose(-1, -2);  // [b,h,1,sets]
    const at::Tensor others =
        tables_.numbers(sets, set.device()).ne(set.masked_fill(members.surplus, -1).unsqueeze(-1));
    const at::Tensor bias = options_.log_count_bias ? at::where(there.gt(0), pool_.bias(there), 0) : at::Tensor();
    return explicit_part(in.q, set_k, set_v, there.gt(0).logical_and(others), bias, dropout_.place(is_training()));
  }

  Options options_;
  PinnedFrame frame_;
  Pool pool_;
  int64_t clusters_ = 1, most_members_ = 1;
  kernels::Dropout set_dropout_, member_dropout_, dropout_;
  IndexTables tables_;
  at::Tensor centroids_, sums_, step_sums_;  // mu, S, s [h,clusters,d]
  at::Tensor counts_, step_counts_;          // C, c [h,clusters]
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::centroids, "centroids",
               "learned centres of a head's clusters (k); 0: the root of the longest length, rounded", at_least(0))
          .add(&Options::centroid_decay, "centroid_decay", "what a step leaves of the centroids' sums (lambda)",
               between(0, 1))
          .include(summary_schema());
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "combiner-learnable";
  result.aliases = {"combiner-routing"};
  result.title = "Combiner, learnable clusters";
  result.paper =
      "Ren, Dai, Dai, Yang, Leskovec, Schuurmans, Dai: Combiner: Full Attention Transformer with Sparse Computation "
      "Cost, 2021";
  result.method_class = "LP";
  result.summary = "Each token sees its cluster, and summaries of all others, in one softmax.";
  result.complexity = Complexity::kRootN;
  result.traits = {.fixed_length = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.tensors = summary_meanings();
  result.tensors.push_back({"centroids", "mu: what keys are compared with [h, clusters, d]"});
  result.tensors.push_back({"cluster_counts", "C: running number of a cluster's tokens [h, clusters]"});
  result.tensors.push_back({"cluster_sums", "S: running sum of a cluster's keys [h, clusters, d]"});
  result.tensors.push_back({"step_counts", "c: tokens of a cluster since the last step [h, clusters]"});
  result.tensors.push_back({"step_sums", "s: sum of a cluster's keys since the last step [h, clusters, d]"});
  result.dense_limit = Json{{"centroids", 1}};
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<LearnableCore>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::combiner_learnable
