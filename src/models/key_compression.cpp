#include "models/key_compression.h"

#include <cmath>

#include "attention/multi_head.h"
#include "kernels/token_projection/token_projection.h"

namespace xformer::models {

namespace {

class CompressedCore : public attention::AttentionCore {
 public:
  CompressedCore(const KeyCompression& compression, const attention::BuildContext& context,
                 std::shared_ptr<attention::AttentionCore> core)
      : length_(compression.length), core_(register_module("core", std::move(core))) {
    const auto draw = [&](const char* name) {
      const double bound = 1 / std::sqrt(static_cast<double>(context.max_len));
      return context.init.uniform(name, {length_, context.max_len}, -bound, bound);
    };
    if (compression.sharing == "layerwise") {
      key_ = context.shared_parameter("kv_compression", [&] { return draw("kv_compression"); });
      return;
    }
    key_ = register_parameter("key_compression", draw("key_compression"));
    if (compression.sharing == "headwise") value_ = register_parameter("value_compression", draw("value_compression"));
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     attention::Carry& carry) override {
    const at::Tensor e = key_.unsqueeze(0), f = value_.defined() ? value_.unsqueeze(0) : e;
    return core_->forward(q, kernels::project_tokens(e, k, {}, mask).x, kernels::project_tokens(f, v, {}, mask).x,
                          {{}, /*causal=*/false, /*cross=*/true}, carry);
  }

  // 2 Z n k d for each of E K and F V, and what the core makes of k keys.
  [[nodiscard]] attention::Cost cost(const attention::Shape& shape) const override {
    attention::Cost result = core_->cost({shape.batch, shape.heads, shape.query_len, length_, shape.head_dim});
    const auto mixtures = static_cast<double>(2 * shape.batch * shape.heads * length_ * shape.head_dim);
    const double flops = 2 * mixtures * static_cast<double>(shape.key_len);
    result += {flops, flops, mixtures};
    return result;
  }

  [[nodiscard]] std::string backend() const override { return ""; }
  [[nodiscard]] bool takes_bf16() const override { return core_->takes_bf16(); }

 private:
  int64_t length_;
  std::shared_ptr<attention::AttentionCore> core_;
  at::Tensor key_, value_;  // [length, tokens]; value_ undefined when it is key_
};

}  // namespace

void check_compression(const KeyCompression& compression, const attention::Resolved& attention, int64_t tokens) {
  if (compression.length == 0) return;
  XF_CHECK(compression.length <= tokens, UserError,
           "model.kv_compression: a row has {} tokens, CLS included; expected at most as many, got {}", tokens,
           compression.length);
  XF_CHECK(attention.base->build_core && attention.base->traits.cross_ok && !attention.base->traits.fixed_length,
           UserError, "model.kv_compression: {} needs the keys and values of all its tokens; set 0", attention.name);
}

std::shared_ptr<attention::SequenceMixer> build_compressed(const KeyCompression& compression,
                                                           const attention::Resolved& attention, const Json& options,
                                                           const attention::BuildContext& context) {
  // What decorators wrap: the name's own core, compressed where it has all tokens.
  attention::Descriptor wrapped = *attention.base;
  wrapped.build_core = [&](const Json& own, const attention::BuildContext& inner) {
    std::shared_ptr<attention::AttentionCore> core = attention.base->build_core(own, inner);
    if (inner.max_len < context.max_len) return core;
    return std::shared_ptr<attention::AttentionCore>(
        std::make_shared<CompressedCore>(compression, inner, std::move(core)));
  };
  const attention::Resolved compressed{&wrapped, attention.decorator, attention.name};
  return std::make_shared<attention::MultiHeadMixer>(context, attention::build_core(compressed, options, context));
}

}  // namespace xformer::models
