// Multiresolution-head attention (MrsFormer): head h works on the sequence pooled by its scale s_h. Means of s
// consecutive tokens of q, k and v go through the base attention, whose output rows are repeated s times (supplement,
// B: H^{s,s'} = up(down A . down V)). Pooling after the projection equals pooling before it: a masked mean commutes
// with an affine map. Heads of one scale form one core; any core can be the base.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "attention/descriptor.h"
#include "kernels/pooling/pooling.h"
#include "tensor/probe.h"

namespace xformer::attention::decorators::mrs {

struct Options {
  std::vector<int64_t> scales = {1, 2};
};

// One scale per head: the list repeated. UserError where it does not fit.
std::vector<int64_t> scale_of_heads(const std::vector<int64_t>& scales, int64_t heads) {
  const auto given = static_cast<int64_t>(scales.size());
  XF_CHECK(given > 0 && heads % given == 0, UserError,
           "attention.scales: expected as many scales as heads, or a number that divides them; got {} scales [{}] for "
           "{} heads",
           given, fmt::join(scales, ","), heads);
  std::vector<int64_t> result;
  for (int64_t h = 0; h < heads; ++h) result.push_back(scales[static_cast<size_t>(h % given)]);
  return result;
}

class MrsCore : public AttentionCore {
 public:
  MrsCore(const Options& options, const BuildContext& context, const CoreFactory& base)
      : pinned_(context.pinned_tokens) {
    XF_CHECK(!context.causal, UserError, "mrs has no causal form: the mean of a group of tokens holds later ones");
    std::map<int64_t, std::vector<int64_t>> by_scale;
    const std::vector<int64_t> scales = scale_of_heads(options.scales, context.heads);
    for (int64_t h = 0; h < context.heads; ++h) by_scale[scales[static_cast<size_t>(h)]].push_back(h);
    for (const auto& [scale, heads] : by_scale) {
      const std::string name = fmt::format("scale{}", scale);
      BuildContext inner = context;
      inner.heads = static_cast<int64_t>(heads.size());
      inner.max_len = pooled_len(context.max_len, scale, pinned_);
      inner.scope = context.scope + name + "/";
      // Scale 1 draws the base's own numbers, so that scales [1] are the base in every bit.
      if (scale != 1) {
        inner.init = context.init.child(name);
        inner.grid = 0;
      }
      groups_.push_back({scale, heads});
      cores_.push_back(register_module(name, base(inner)));
    }
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry& carry) override {
    const int64_t n = q.size(2);
    XF_ASSERT(!mask.causal && k.size(2) == n, "mrs pools one bidirectional sequence");
    const auto pooled = [&](const at::Tensor& x) { return kernels::pool_heads(x, mask, groups_, pinned_); };
    const std::vector<at::Tensor> short_q = pooled(q), short_k = pooled(k), short_v = pooled(v);
    std::vector<at::Tensor> mixed;  // [b, heads, pooled, d] of each group
    for (size_t i = 0; i < groups_.size(); ++i) {
      const ProbeScope scope("scale", groups_[i].scale);
      probe("q", short_q[i]), probe("k", short_k[i]), probe("v", short_v[i]);
      mixed.push_back(
          cores_[i]->forward(short_q[i], short_k[i], short_v[i], mask.pooled(groups_[i].scale, pinned_), carry));
      probe("mixed", mixed.back());
    }
    return kernels::repeat_heads(mixed, n, groups_, pinned_);
  }

  // Pooling and repeating hold no matrix products.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    Cost result;
    for (size_t i = 0; i < groups_.size(); ++i) {
      const int64_t n = pooled_len(shape.query_len, groups_[i].scale, pinned_);
      result += cores_[i]->cost({shape.batch, static_cast<int64_t>(groups_[i].heads.size()), n, n, shape.head_dim});
    }
    return result;
  }

  [[nodiscard]] std::string backend() const override { return ""; }
  [[nodiscard]] bool takes_bf16() const override {
    return std::all_of(cores_.begin(), cores_.end(), [](const auto& core) { return core->takes_bf16(); });
  }
  [[nodiscard]] bool takes_half_on_devices(const at::Tensor& q) const override {
    return std::all_of(cores_.begin(), cores_.end(), [&](const auto& core) { return core->takes_half_on_devices(q); });
  }

 private:
  int64_t pinned_;
  std::vector<kernels::HeadGroup> groups_;  // by rising scale
  std::vector<std::shared_ptr<AttentionCore>> cores_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema = Schema<Options>().add(
      &Options::scales, "scales",
      "tokens per group, for each head; as many as heads, or a number that divides them (s)", each_at_least(1));
  return kSchema;
}

std::vector<Decorator> describe() {
  Decorator result;
  result.name = "mrs";
  result.title = "Multiresolution-head attention (MrsFormer)";
  result.paper = "MrsFormer: Transformer with Multiresolution-head Attention, supplement A and B";
  result.summary = "Each head attends at its own resolution: tokens are averaged in groups before and repeated after.";
  result.options = schema().options();
  result.decorate = [](const Json& options, const BuildContext& context, const CoreFactory& base) {
    return std::make_shared<MrsCore>(schema().read(options), context, base);
  };
  result.check = [](const Json& options, int64_t heads) { (void)scale_of_heads(schema().read(options).scales, heads); };
  return {result};
}

}  // namespace xformer::attention::decorators::mrs
