#include "attention/shared/relative_attention.h"

#include <ATen/Functions.h>

#include <cmath>

#include "attention/shared/full_precision.h"
#include "tensor/closed_keys.h"
#include "tensor/probe.h"

namespace xformer::attention {

namespace {

// The same in every layer, so the first one of a forward pass leaves them to the others.
constexpr const char* kDistances = "relative/distances";
constexpr const char* kHidden = "relative/hidden";

at::Tensor once(Carry& carry, const char* name, const std::function<at::Tensor()>& make) {
  const auto [found, fresh] = carry.try_emplace(name);
  if (fresh) found->second = make();
  return found->second;
}

}  // namespace

Past joined(const Past& before, const Past& after) {
  if (before.length() == 0) return after;
  if (after.length() == 0) return before;
  return {at::cat({before.rows.to(after.rows.scalar_type()), after.rows}, 1), at::cat({before.valid, after.valid}, 1)};
}

Past part(const Past& of, int64_t first, int64_t length) {
  return {of.rows.narrow(1, first, length), of.valid.narrow(1, first, length)};
}

void init_past(const std::string& name, int64_t batch, int64_t length, const at::Tensor& like, State& state) {
  const auto options = like.options().requires_grad(false);
  state[name] = at::zeros({batch, length, like.size(-1)}, options);
  state[name + "_valid"] = at::zeros({batch, length}, options.dtype(at::kBool));
}

Past found_past(const std::string& name, const Carry& carry) {
  const auto found = carry.find(name);
  return found == carry.end() ? Past{} : Past{found->second, carry.at(name + "_valid")};
}

void leave_past(const std::string& name, const Past& past, Carry& carry) {
  carry[name] = past.rows;
  carry[name + "_valid"] = past.valid;
}

RelativeMixer::RelativeMixer(const RelativeOptions& options, const BuildContext& context)
    : model_dim_(context.model_dim),
      heads_(context.heads),
      head_dim_(context.head_dim),
      causal_(context.causal),
      layer_("layer" + std::to_string(context.layer) + "/" + context.scope),
      clamp_(options.clamp),
      dropout_(context.make_dropout()) {
  const int64_t inner = heads_ * head_dim_;
  const auto linear = [&](const char* name, int64_t in, int64_t out, bool bias) {
    return register_module(name,
                           std::make_shared<Linear>(in, out, bias, context.init_scheme, context.init.child(name)));
  };
  query_ = linear("query", model_dim_, inner, context.bias);
  key_ = linear("key", model_dim_, inner, context.bias);
  value_ = linear("value", model_dim_, inner, context.bias);
  position_ = linear("position", model_dim_, inner, false);
  out_ = linear("out", inner, model_dim_, context.bias);
  const auto bias = [&](const char* name) {
    return context.shared_parameter(std::string("relative/") + name, [&] {
      return context.init.normal(name, {heads_, head_dim_}, 0.02);
    });
  };
  content_bias_ = bias("content_bias");
  position_bias_ = bias("position_bias");
}

// Kept in training alone: of decoding every step has another length.
at::Tensor RelativeMixer::distances(int64_t n, int64_t p) const {
  const auto numbers = position_->weight.options().requires_grad(false);
  const auto make = [&](const at::TensorOptions&) { return encoded_distances(n, p, numbers); };
  if (!is_training()) return make(numbers);
  return tables_.get("distances", {n, p, static_cast<int64_t>(position_->weight.scalar_type())}, numbers.device(),
                     make);
}

at::Tensor RelativeMixer::encoded_distances(int64_t n, int64_t p, const at::TensorOptions& numbers) const {
  at::Tensor steps = at::arange(n + p - 1, -ahead(n) - 1, -1, numbers);
  if (clamp_ > 0) steps = steps.clamp(-clamp_, clamp_);
  const auto width = static_cast<double>(model_dim_);
  const at::Tensor frequency = at::exp(at::arange((model_dim_ + 1) / 2, numbers) * (-2 * std::log(10000.0) / width));
  const at::Tensor angles = steps.unsqueeze(1) * frequency;
  return at::cat({angles.sin(), angles.cos()}, 1).narrow(1, 0, model_dim_);
}

at::Tensor RelativeMixer::out_of_reach(int64_t n, int64_t p, int64_t farthest) const {
  if (!causal_ && farthest == 0) return {};
  const at::Device device = position_->weight.device();
  const auto make = [&](const at::TensorOptions& numbers) {
    const at::Tensor all = at::ones({n, p + n}, numbers.device(device).dtype(at::kBool));
    at::Tensor result = all.triu(p + (causal_ ? 1 : farthest));
    return farthest > 0 ? result.logical_or(all.tril(p - farthest)) : result;
  };
  return is_training() ? tables_.get("reach", {n, p, farthest}, device, make) : make(at::TensorOptions());
}

at::Tensor RelativeMixer::hidden(int64_t n, const Past& past, const SequenceMask& mask, int64_t farthest) const {
  const int64_t p = past.length();
  const at::Tensor far = out_of_reach(n, p, farthest);
  if (p == 0 && mask.all_valid()) return far;
  at::Tensor valid = mask.key_valid;
  if (mask.all_valid()) valid = at::ones({past.valid.size(0), n}, past.valid.options());
  if (p > 0) valid = at::cat({past.valid, valid}, 1);
  const at::Tensor closed = valid.logical_not().unsqueeze(1).unsqueeze(1);
  return far.defined() ? closed.logical_or(far) : closed;
}

Past RelativeMixer::rows_of(const at::Tensor& x, const SequenceMask& mask) {
  return {x.detach(),
          mask.all_valid() ? at::ones({x.size(0), x.size(1)}, x.options().dtype(at::kBool)) : mask.key_valid};
}

RelativeMixer::Attended RelativeMixer::attend(const at::Tensor& x, const Past& past, const SequenceMask& mask,
                                              int64_t farthest, Carry& carry) const {
  XF_ASSERT(mask.causal == causal_, "relative attention was built with causal {}", causal_);
  const int64_t b = x.size(0), n = x.size(1), p = past.length(), keys = p + n;
  const at::Tensor steps = once(carry, kDistances, [&] { return distances(n, p); });
  const at::Tensor closed = once(carry, kHidden, [&] { return hidden(n, past, mask, farthest); });
  const at::Tensor q_rows = query_->forward(x);
  const at::Tensor all = p > 0 ? at::cat({past.rows.to(x.scalar_type()), x}, 1) : x;
  const std::vector<at::Tensor> rows = kernels::linear(all, {key_->map(), value_->map()});
  const at::Tensor r_rows = position_->forward(steps);
  Attended result;
  at::Tensor mixed;
  {
    const FullPrecision full(x.device().type());
    const at::Tensor q = split(full(q_rows)), k = split(full(rows[0])), v = split(full(rows[1]));
    const at::Tensor r = full(r_rows).unflatten(-1, {heads_, head_dim_}).permute({1, 2, 0});  // [h,d,distances]
    probe("q", q), probe("k", k), probe("v", v);
    const double scale = 1 / std::sqrt(static_cast<double>(head_dim_));
    // Column c of row i is the distance n + p - 1 - c, that of key j = c - (n - 1 - i). Rows that lie one behind the
    // other in memory and are read with one place less each begin one place earlier each: no copy.
    const at::Tensor by_distance = at::matmul((q + position_bias_.unsqueeze(1)) * scale, r);
    const int64_t pitch = r.size(-1) - 1;
    const at::Tensor shifted =
        by_distance.flatten(2).narrow(2, n - 1, n * pitch).unflatten(2, {n, pitch}).narrow(3, 0, keys);
    at::Tensor scores = at::matmul((q + content_bias_.unsqueeze(1)) * scale, k.transpose(-1, -2)).add_(shifted);
    // A row that may read nothing is padding, and zero below.
    if (closed.defined()) scores = scores.masked_fill_(closed, lowest_score(scores.scalar_type()));
    const at::Tensor weights = at::softmax(scores, -1);
    probe("weights", weights);
    mixed = mask.zero_padding(at::matmul(dropout_(weights, is_training()), v));
    result = {{}, q, k, v, weights};
  }
  probe("mixed", mixed);
  result.out = out_->forward(mixed.transpose(1, 2).reshape({b, n, heads_ * head_dim_}));
  return result;
}

Cost RelativeMixer::attend_cost(int64_t batch, int64_t n, int64_t p, int64_t farthest) const {
  const double b = static_cast<double>(batch), z = b * static_cast<double>(heads_), d = static_cast<double>(head_dim_);
  const double rows = static_cast<double>(n), keys = static_cast<double>(n + p);
  const double columns = keys + static_cast<double>(ahead(n));
  const double map = 2 * static_cast<double>(model_dim_ * heads_ * head_dim_);
  const double maps = map * (2 * b * (rows + keys) + columns);
  double pairs = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t back = p + i + 1, far = farthest > 0 ? std::min(back, farthest) : back;
    const int64_t later = causal_ ? 0 : farthest > 0 ? std::min(n - 1 - i, farthest - 1) : n - 1 - i;
    pairs += static_cast<double>(far + later);
  }
  return {maps + 2 * z * d * rows * (2 * keys + columns), maps + 6 * z * d * pairs, 2 * z * rows * keys};
}

std::vector<TensorMeaning> relative_meanings() {
  std::vector<TensorMeaning> result = projection_meanings();
  result.push_back({"position.weight", "W_r: the waves of a distance to its key [h d, m]"});
  result.push_back({"relative_content_bias", "u: added to queries for what a key holds; all layers [h, d]"});
  result.push_back({"relative_position_bias", "w: added to queries for how far away a key is; all layers [h, d]"});
  return result;
}

}  // namespace xformer::attention
