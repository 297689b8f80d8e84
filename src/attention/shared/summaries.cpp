#include "attention/shared/summaries.h"

#include <ATen/Functions.h>

#include <cmath>

#include "core/error.h"
#include "kernels/batched_product/batched_product.h"
#include "kernels/fused.h"
#include "kernels/joined_softmax/joined_softmax.h"
#include "kernels/running_max/running_max.h"
#include "tensor/parts.h"
#include "tensor/probe.h"

namespace xformer::attention {

namespace {

// Plain operations take parameters, sums and quotients in float.
using kernels::in_float;

// What stands for minus infinity: a softmax over nothing else stays finite.
double lowest(const at::Tensor& x) { return kernels::lowest_log_sum(x.scalar_type()); }

// Of the rows before each one along `dim`, or behind it.
at::Tensor running_sum(const at::Tensor& x, int64_t dim, bool behind) {
  const int64_t rest = x.size(dim) - 1;
  const at::Tensor sums = behind ? x.flip(dim).cumsum(dim).flip(dim) : x.cumsum(dim);
  const at::Tensor edge = at::zeros_like(sums.narrow(dim, 0, 1)), kept = sums.narrow(dim, behind ? 1 : 0, rest);
  return behind ? at::cat({kept, edge}, dim) : at::cat({edge, kept}, dim);
}

// logsumexp of the last dimension where softmax's weights are known, which are its gradient. LibTorch's takes an
// exponential of each score three times more, and many times as long for one that is closed.
at::Tensor log_sum_of(const at::Tensor& scores, const at::Tensor& weights) {
  const at::Tensor own = weights.detach(), mean = (own * scores).sum(-1, /*keepdim=*/true);
  const at::Tensor value = scores.detach().amax(-1, /*keepdim=*/true) - own.amax(-1, /*keepdim=*/true).log();
  return mean + (value - mean.detach());
}

}  // namespace

const Schema<SummaryOptions>& summary_schema() {
  static const Schema<SummaryOptions> kSchema =
      Schema<SummaryOptions>()
          .add(&SummaryOptions::pool, "pool",
               "how a set's queries and keys become one: max, mean, sum, relu (max behind ReLU) or deepsets (a map and "
               "ReLU before max)",
               one_of({"max", "mean", "sum", "relu", "deepsets"}))
          .add(&SummaryOptions::log_count_bias, "log_count_bias",
               "add the log of a set's tokens to the logit of its summary");
  return kSchema;
}

std::vector<TensorMeaning> summary_meanings() {
  return {{"pool_query.weight", "map in front of pooled queries, of pool=deepsets [d, d]"},
          {"pool_key.weight", "map in front of pooled keys, of pool=deepsets [d, d]"}};
}

Pool::Pool(torch::nn::Module& owner, const SummaryOptions& options, const BuildContext& context) : options_(options) {
  if (options.pool != "deepsets") return;
  const auto map = [&](const char* name) {
    return owner.register_module(name, std::make_shared<Linear>(context.head_dim, context.head_dim, /*bias=*/false,
                                                                context.init_scheme, context.init.child(name)));
  };
  query_ = map("pool_query");
  key_ = map("pool_key");
}

at::Tensor Pool::prepared(const at::Tensor& x, const std::shared_ptr<Linear>& map) const {
  if (options_.pool == "deepsets") return at::relu(at::matmul(in_float(x), map->weight.t())).to(x.scalar_type());
  return options_.pool == "relu" ? at::relu(x) : x;
}

at::Tensor Pool::gathered(const at::Tensor& x, const kernels::TokenSets& sets) const {
  if (options_.pool != "mean" && options_.pool != "sum") return kernels::set_max(x, sets);
  return kernels::in_sets(at::where(sets.valid.unsqueeze(1).unsqueeze(-1), in_float(x), 0), sets).sum(3);
}

at::Tensor Pool::before(const at::Tensor& x, const at::Tensor& valid, int64_t dim, bool behind) const {
  if (options_.pool == "mean" || options_.pool == "sum") {
    const at::Tensor sum = running_sum(at::where(valid, in_float(x), 0), dim, behind);
    const at::Tensor mean = options_.pool == "sum" ? sum : sum / count_before(valid, dim, behind).clamp_min(1);
    return mean.to(x.scalar_type());
  }
  return kernels::running_max(x, {valid.squeeze(-1).squeeze(1), dim == 2, behind});
}

at::Tensor Pool::bias(const at::Tensor& count) const {
  const at::Tensor none = none_unless(count.gt(0));
  return options_.log_count_bias ? none + count.clamp_min(1).to(at::kDouble).log() : none;
}

at::Tensor none_unless(const at::Tensor& valid) {
  return at::zeros(valid.sizes(), valid.options().dtype(at::kFloat)).masked_fill(valid.logical_not(), -INFINITY);
}

at::Tensor count_before(const at::Tensor& valid, int64_t dim, bool behind) {
  return running_sum(valid.to(at::kLong), dim, behind);
}

at::Tensor joined(const std::vector<Part>& parts, int64_t n) {
  if (parts.size() == 1) return parts[0].out;
  std::vector<at::Tensor> outs, log_sums;
  for (const Part& part : parts) outs.push_back(part.out), log_sums.push_back(part.log_sum);
  return kernels::joined_softmax(outs, log_sums, n);
}

Part explicit_part(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& allowed,
                   const at::Tensor& bias, const kernels::DropoutPlace& drop) {
  at::Tensor scores =
      kernels::batched_product(in_float(q) / std::sqrt(static_cast<double>(q.size(-1))), in_float(k).transpose(-1, -2));
  if (bias.defined()) scores = scores + bias.to(scores.scalar_type());
  scores = scores.masked_fill(allowed.logical_not(), lowest(scores));
  // Beside an allowed key the others have no weight at all; without one all have the same, and the row is zero.
  const at::Tensor weights = at::softmax(scores, -1);
  const at::Tensor out = kernels::batched_product(drop(weights), in_float(v)).to(v.scalar_type());
  return {at::where(allowed.any(-1, /*keepdim=*/true), out, 0), log_sum_of(scores, weights)};
}

PinnedFrame::PinnedFrame(const BuildContext& context)
    : pinned_(context.pinned_tokens),
      causal_(context.causal),
      row_dropout_(context.make_dropout()),
      key_dropout_(context.make_dropout()) {}

PinnedFrame::Tokens PinnedFrame::Tokens::without_padding() const {
  const SequenceMask mask{padded ? valid : at::Tensor()};
  Tokens result = *this;
  result.q = mask.zero_padding(q), result.k = mask.zero_padding(k), result.v = mask.zero_padding(v);
  result.padded = false;
  return result;
}

at::Tensor PinnedFrame::forward(const at::Tensor& given_q, const at::Tensor& given_k, const at::Tensor& given_v,
                                const SequenceMask& mask, bool training, const Attend& attend) const {
  const int64_t n = given_q.size(2), p = pinned(n), keys = causal_ ? p : n;
  XF_ASSERT(mask.causal == causal_ && given_k.size(2) == n, "combiner attends within one sequence, causal {}", causal_);
  // What pinned tokens read, and what reads them, does not know of padding.
  const auto fit = [&](const at::Tensor& x) { return p > 0 ? mask.zero_padding(x) : x; };
  const at::Tensor q = fit(given_q), k = fit(given_k), v = fit(given_v);
  at::Tensor first;  // rows of the pinned tokens
  if (p > 0) {
    const SequenceMask seen{mask.all_valid() ? at::Tensor() : mask.key_valid.narrow(1, 0, keys), causal_};
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    const at::Tensor rows = in_float(q.narrow(2, 0, p)), columns = in_float(k.narrow(2, 0, keys)).transpose(-1, -2);
    const at::Tensor weights = masked_softmax(at::matmul(rows * scale, columns), seen);
    first = at::matmul(row_dropout_(weights, training), in_float(v.narrow(2, 0, keys))).to(v.scalar_type());
    if (p == n) return first;
  }
  const at::Tensor valid = mask.all_valid() ? at::ones({q.size(0), n}, q.options().dtype(at::kBool)) : mask.key_valid;
  const auto rest = [&](const at::Tensor& x) { return part_of(x, 2, p, n - p); };
  Tokens tokens{rest(q), rest(k), rest(v), valid.narrow(1, p, n - p), p == 0 && !mask.all_valid()};
  if (p > 0)
    tokens.pinned_k = k.narrow(2, 0, p), tokens.pinned_v = v.narrow(2, 0, p),
    tokens.pinned_valid = valid.narrow(1, 0, p);
  const std::vector<std::vector<Part>> mixtures = attend(tokens);
  Part pinned_part;
  if (p > 0 && mixtures[0][0].log_sum.defined())
    pinned_part = explicit_part(tokens.q, tokens.pinned_k, tokens.pinned_v,
                                tokens.pinned_valid.unsqueeze(1).unsqueeze(1), {}, key_dropout_.place(training));
  at::Tensor sum;
  for (size_t i = 0; i < mixtures.size(); ++i) {
    const ProbeScope scope("mixture", static_cast<int64_t>(i));
    std::vector<Part> parts = mixtures[i];
    if (pinned_part.out.defined()) parts.push_back(pinned_part);
    const at::Tensor one = joined(parts, n - p);
    sum = sum.defined() ? sum + one : mixtures.size() == 1 ? one : in_float(one);
  }
  const at::Tensor mean = mixtures.size() == 1 ? sum : (sum / static_cast<double>(mixtures.size())).to(v.scalar_type());
  return p > 0 ? at::cat({first, mean}, 2) : mean;
}

double PinnedFrame::executed_pairs(int64_t n) const {
  const int64_t p = pinned(n);
  return static_cast<double>(p * (causal_ ? p : n) + (n - p) * p);
}

double PinnedFrame::pattern_pairs(int64_t n) const {
  const int64_t p = pinned(n);
  return static_cast<double>((causal_ ? p * (p + 1) / 2 : p * n) + (n - p) * p);
}

}  // namespace xformer::attention
