#include "attention/multi_head.h"

#include <cmath>

#include "attention/shared/full_precision.h"
#include "tensor/probe.h"

namespace xformer::attention {

Linear::Linear(int64_t in, int64_t out, bool with_bias, const std::string& scheme, const InitStream& init) {
  const double bound =
      scheme == "glra" ? std::sqrt(6.0 / static_cast<double>(in + out)) : 1 / std::sqrt(static_cast<double>(in));
  weight = register_parameter("weight", scheme == "vit" ? init.normal("weight", {out, in}, 0.02)
                                                        : init.uniform("weight", {out, in}, -bound, bound));
  if (!with_bias) return;
  const bool zero = scheme == "glra" || scheme == "ft" || scheme == "vit";
  bias = register_parameter("bias", zero ? at::zeros({out}) : init.uniform("bias", {out}, -bound, bound));
}

const std::vector<TensorMeaning>& projection_meanings() {
  static const std::vector<TensorMeaning> kMeanings{
      {"query.weight", "W of q = x W^T + bias [h d, m]; head i has rows i d to (i+1) d"},
      {"query.bias", "of q [h d]"},
      {"key.weight", "W of k = x W^T + bias [h d, m]"},
      {"key.bias", "of k [h d]"},
      {"value.weight", "W of v = x W^T + bias [h d, m]"},
      {"value.bias", "of v [h d]"},
      {"out.weight", "W of output = (heads side by side) W^T + bias [m, h d]"},
      {"out.bias", "of output [m]"}};
  return kMeanings;
}

MultiHeadMixer::MultiHeadMixer(const BuildContext& context, std::shared_ptr<AttentionCore> core, Values values)
    : model_dim_(context.model_dim), heads_(context.heads), head_dim_(context.head_dim) {
  const int64_t inner = heads_ * head_dim_;
  const auto linear = [&](const char* name, int64_t in, int64_t out) {
    return register_module(
        name, std::make_shared<Linear>(in, out, context.bias, context.init_scheme, context.init.child(name)));
  };
  query_ = linear("query", model_dim_, inner);
  key_ = linear("key", model_dim_, inner);
  if (values == Values::kProjected) value_ = linear("value", model_dim_, inner);
  out_ = linear("out", inner, model_dim_);
  core_ = register_module("core", std::move(core));
}

std::vector<at::Tensor> MultiHeadMixer::project(kernels::NormedRows& x, const at::Tensor& needed) const {
  std::vector<kernels::LinearMap> maps{query_->map(), key_->map()};
  if (value_) maps.push_back(value_->map());
  std::vector<at::Tensor> rows = kernels::linear(x, maps, needed);
  if (!value_) rows.push_back(rows[1]);
  return rows;
}

kernels::Branch MultiHeadMixer::branch(kernels::NormedRows& x, const SequenceMask& mask, Carry& carry) {
  const at::Tensor needed = mask.needed();
  const auto core = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const at::Tensor mixed = core_->forward(q, k, v, mask, carry);
    // Rows of padded queries are zero from here on, whatever the core left in them (attention-core 0.4).
    return core_->zeroes_padding() ? mixed : mask.zero_padding(mixed);
  };
  return mix(project(x, needed), core, needed);
}

at::Tensor MultiHeadMixer::decode(const at::Tensor& x, const DecodingStep& step, Carry& carry, State& kept) {
  // What is kept from step to step is in float on other devices than the CPU, whatever a whole pass takes there.
  const auto wide = [](const at::Tensor& x) { return x.is_cpu() ? x : kernels::in_float(x); };
  const auto core = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return attention::decode(*core_, wide(q), wide(k), wide(v), step, carry, kept);
  };
  kernels::NormedRows rows{x, x};
  return mix(project(rows, {}), core, {}).made();
}

kernels::Branch MultiHeadMixer::cross(const at::Tensor& x, const SequenceMask& mask, const at::Tensor& other,
                                      const SequenceMask& other_mask, Carry& carry) {
  return cross(x, mask, cross_rows(other), other_mask, carry);
}

std::vector<at::Tensor> MultiHeadMixer::cross_rows(const at::Tensor& other) const {
  return kernels::linear(other, {key_->map(), value_->map()});
}

kernels::Branch MultiHeadMixer::cross(const at::Tensor& x, const SequenceMask& mask,
                                      const std::vector<at::Tensor>& rows, const SequenceMask& other_mask,
                                      Carry& carry) {
  const SequenceMask keys{other_mask.key_valid, /*causal=*/false, /*cross=*/true};
  const auto core = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return mask.zero_padding(core_->forward(q, k, v, keys, carry));
  };
  return mix({query_->forward(x), rows[0], rows[1]}, core, {});
}

kernels::Branch MultiHeadMixer::mix(const std::vector<at::Tensor>& projected, const Core& core,
                                    const at::Tensor& needed) {
  const auto split = [&](const at::Tensor& rows) {  // [b, n, h d] -> [b, h, n, d]
    return rows.view({rows.size(0), rows.size(1), heads_, head_dim_}).transpose(1, 2);
  };
  at::Tensor q = split(projected[0]), k = split(projected[1]), v = split(projected[2]);
  at::Tensor mixed;
  {
    const FullPrecision full(q.device().type(), core_->takes_bf16(), core_->takes_half_on_devices(q));
    q = full(q), k = full(k), v = full(v);
    probe("q", q), probe("k", k), probe("v", v);
    mixed = core(q, k, v);
  }
  probe("mixed", mixed);
  return {.rows = mixed.transpose(1, 2).reshape({q.size(0), q.size(2), heads_ * head_dim_}),
          .out = out_->map(),
          .needed = needed};
}

Cost MultiHeadMixer::cross_cost(int64_t batch, int64_t length, int64_t other_length) const {
  Cost result = core_->cost({batch, heads_, length, other_length, head_dim_});
  const int64_t rows = 2 * length + (value_ ? 2 : 1) * other_length;
  const double projections = 2.0 * static_cast<double>(batch * rows * model_dim_ * heads_ * head_dim_);
  result.flops_executed += projections;
  result.flops_pattern += projections;
  return result;
}

}  // namespace xformer::attention
