// Multiresolution-head attention (MrsFormer): head h works on the sequence pooled by its scale s_h. Means of s
// consecutive tokens of q, k and v go through the base attention, whose output rows are repeated s times (supplement,
// B: H^{s,s'} = up(down A . down V)). Pooling after the projection equals pooling before it: a masked mean commutes
// with an affine map. Heads of one scale form one core; any core can be the base.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "attention/descriptor.h"
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

// The heads of one scale, in rising order.
struct Group {
  int64_t scale = 1;
  std::vector<int64_t> heads;
  std::shared_ptr<AttentionCore> core;

  // [b,H,n,d] -> [b,h,n,d]; a view where the heads are evenly spaced.
  [[nodiscard]] at::Tensor take(const at::Tensor& x) const {
    const int64_t first = heads.front(), stride = heads.size() > 1 ? heads[1] - first : 1;
    for (size_t i = 1; i < heads.size(); ++i)
      if (heads[i] - heads[i - 1] != stride) {
        std::vector<at::Tensor> parts;
        for (const int64_t head : heads) parts.push_back(x.narrow(1, head, 1));
        return at::cat(parts, 1);
      }
    return x.slice(1, first, heads.back() + 1, stride);
  }
};

class MrsCore : public AttentionCore {
 public:
  MrsCore(const Options& options, const BuildContext& context, const CoreFactory& base)
      : heads_(context.heads), pinned_(context.pinned_tokens) {
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
      groups_.push_back({scale, heads, register_module(name, base(inner))});
    }
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry& carry) override {
    const int64_t n = q.size(2);
    XF_ASSERT(!mask.causal && k.size(2) == n, "mrs pools one bidirectional sequence");
    std::vector<at::Tensor> rows(static_cast<size_t>(heads_));  // [b,1,n,d] per head
    for (const Group& group : groups_) {
      const auto pooled = [&](const at::Tensor& x) { return pool_tokens(group.take(x), mask, group.scale, pinned_); };
      const ProbeScope scope("scale", group.scale);
      const at::Tensor short_q = pooled(q), short_k = pooled(k), short_v = pooled(v);
      probe("q", short_q), probe("k", short_k), probe("v", short_v);
      const at::Tensor mixed = group.core->forward(short_q, short_k, short_v, mask.pooled(group.scale, pinned_), carry);
      probe("mixed", mixed);
      const at::Tensor repeated = repeat_tokens(mixed, n, group.scale, pinned_);
      if (groups_.size() == 1) return repeated;
      for (size_t i = 0; i < group.heads.size(); ++i)
        rows[static_cast<size_t>(group.heads[i])] = repeated.narrow(1, static_cast<int64_t>(i), 1);
    }
    return at::cat(rows, 1);
  }

  // Pooling and repeating hold no matrix products.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    Cost result;
    for (const Group& group : groups_) {
      const int64_t n = pooled_len(shape.query_len, group.scale, pinned_);
      result += group.core->cost({shape.batch, static_cast<int64_t>(group.heads.size()), n, n, shape.head_dim});
    }
    return result;
  }

  [[nodiscard]] std::string backend() const override {
    std::set<std::string> names;
    for (const Group& group : groups_) names.insert(group.core->backend());
    return fmt::format("{}", fmt::join(names, "; "));
  }

  at::Tensor extra_loss() override {
    at::Tensor result;
    for (const Group& group : groups_)
      if (const at::Tensor loss = group.core->extra_loss(); loss.defined())
        result = result.defined() ? result + loss : loss;
    return result;
  }

  void after_step(int64_t step) override {
    for (const Group& group : groups_) group.core->after_step(step);
  }

 private:
  int64_t heads_, pinned_;
  std::vector<Group> groups_;  // by rising scale
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
