// Longformer: Beltagy, Peters, Cohan, "Longformer: The Long-Document Transformer", 2020, section 3.1. G are the first g
// tokens (g = 1: the CLS token), delta_h the dilation of head h:
//   A(i) = G and all j with |i - j| <= w delta_h and delta_h dividing i - j   for i not in G
//   A(i) = everything                                                         for i in G
// softmax(q k / sqrt(d)) v over valid keys (causal: and not later ones); a key counts once. Global rows use maps of
// their own, q^g, k^g, v^g, which start as copies of q, k, v; with global_tied they use q, k, v, and the attention is a
// core.
#include <fmt/ranges.h>

#include "attention/descriptor.h"
#include "attention/multi_head.h"
#include "attention/shared/full_precision.h"
#include "attention/shared/global_window.h"
#include "attention/shared/windows.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::longformer {

struct Options {
  std::vector<int64_t> window = {32};
  std::vector<int64_t> dilation = {1};
  int64_t global_tokens = 1;
  bool global_tied = true;
};

// One dilation per head: the list repeated, over heads and then over layers.
std::vector<int64_t> dilation_of_heads(const std::vector<int64_t>& dilations, int64_t heads, int64_t layer) {
  const auto given = static_cast<int64_t>(dilations.size());
  XF_CHECK(heads % given == 0 || given % heads == 0, UserError,
           "attention.dilation: expected as many dilations as heads (under mrs-: as heads of one scale), a number that "
           "divides them, or as many for each of several layers; got {} dilations [{}] for {} heads",
           given, fmt::join(dilations, ","), heads);
  std::vector<int64_t> result;
  for (int64_t h = 0; h < heads; ++h) result.push_back(dilations[static_cast<size_t>((layer * heads + h) % given)]);
  return result;
}

// Refuses options that leave no core.
void check_core(const Options& options) {
  XF_CHECK(
      options.global_tied, UserError,
      "attention.global_tied=false: longformer then owns its projections, and there is no bare core that mrs- or a "
      "caller with its own q, k and v could use");
}

GlobalWindow make_attention(const Options& options, const BuildContext& context) {
  return {options.global_tokens, layer_window(options.window, context.layer),
          dilation_of_heads(options.dilation, context.heads, context.layer), context};
}

class TiedCore : public AttentionCore {
 public:
  TiedCore(const Options& options, const BuildContext& context) : attention_(make_attention(options, context)) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    return attention_.forward({q, k, v}, {q, k, v}, mask, is_training());
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override { return attention_.cost(shape); }
  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }
  [[nodiscard]] bool takes_half_on_devices(const at::Tensor& q) const override {
    return kernels::window_attention_runs_fused(q);
  }

 private:
  GlobalWindow attention_;
};

class UntiedMixer : public SequenceMixer {
 public:
  UntiedMixer(const Options& options, const BuildContext& context)
      : heads_(context.heads),
        head_dim_(context.head_dim),
        causal_(context.causal),
        attention_(make_attention(options, context)) {
    const int64_t inner = heads_ * head_dim_;
    const auto linear = [&](const std::string& name, int64_t in, int64_t out, const std::string& stream) {
      return register_module(
          name, std::make_shared<Linear>(in, out, context.bias, context.init_scheme, context.init.child(stream)));
    };
    for (const std::string name : {"query", "key", "value"}) {
      local_.push_back(linear(name, context.model_dim, inner, name));
      // The same stream, hence a copy.
      if (options.global_tokens > 0) global_.push_back(linear("global_" + name, context.model_dim, inner, name));
    }
    out_ = linear("out", inner, context.model_dim, "out");
  }

  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry&) override {
    const int64_t n = x.size(1), g = attention_.global_rows(n);
    const auto project = [&](const Linear& map, int64_t tokens) {  // [b,h,tokens,d]
      const at::Tensor rows = map.forward(tokens == n ? x : x.narrow(1, 0, tokens));
      return rows.view({x.size(0), tokens, heads_, head_dim_}).transpose(1, 2);
    };
    GlobalWindow::Projected local{project(*local_[0], n), project(*local_[1], n), project(*local_[2], n)}, rows;
    if (g > 0) {
      const int64_t seen = mask.causal ? g : n;
      rows = {project(*global_[0], g), project(*global_[1], seen), project(*global_[2], seen)};
    }
    at::Tensor mixed;
    {
      const FullPrecision precision(x.device().type(), /*takes_bf16=*/true);
      for (at::Tensor* part : {&local.q, &local.k, &local.v}) *part = precision(*part);
      if (g > 0)
        for (at::Tensor* part : {&rows.q, &rows.k, &rows.v}) *part = precision(*part);
      probe("q", local.q), probe("k", local.k), probe("v", local.v);
      if (g > 0) probe("global_q", rows.q), probe("global_k", rows.k), probe("global_v", rows.v);
      mixed = attention_.forward(local, rows, mask, is_training());
    }
    probe("mixed", mixed);
    return out_->forward(mixed.transpose(1, 2).reshape({x.size(0), n, heads_ * head_dim_}));
  }

  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    Cost result = attention_.cost({batch, heads_, length, length, head_dim_});
    const int64_t g = attention_.global_rows(length), seen = g == 0 ? 0 : causal_ ? g : length;
    const double projections =
        2 * static_cast<double>(batch * (4 * length + g + 2 * seen)) * static_cast<double>(out_->weight.numel());
    result.flops_executed += projections;
    result.flops_pattern += projections;
    return result;
  }

 private:
  int64_t heads_, head_dim_;
  bool causal_;
  GlobalWindow attention_;
  std::vector<std::shared_ptr<Linear>> local_, global_;  // of q, k, v; no global ones without global tokens
  std::shared_ptr<Linear> out_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::window, "window", kWindowHelp, each_at_least(0))
          .add(&Options::dilation, "dilation",
               "steps between the tokens of a window, for each head: as many as heads, a number that divides them, or "
               "as "
               "many for each of several layers (the list repeats)",
               each_at_least(1))
          .add(&Options::global_tokens, "global_tokens", kGlobalTokensHelp, at_least(0))
          .add(&Options::global_tied, "global_tied",
               "global tokens share q, k and v with the others; else they have maps of their own");
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "longformer";
  result.title = "Longformer";
  result.paper = "Beltagy, Peters, Cohan: Longformer: The Long-Document Transformer, 2020";
  result.method_class = "FP+M";
  result.summary =
      "Each token attends to a window, dilated if wished, and to a few global tokens, which attend to all.";
  result.complexity = Complexity::kLinear;
  result.traits = {.causal_ok = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.tensors = {{"global_query.weight", "W of q in global rows [h d, m], with global_tied=false"},
                    {"global_query.bias", "of q in global rows [h d]"},
                    {"global_key.weight", "W of k in global rows [h d, m]"},
                    {"global_key.bias", "of k in global rows [h d]"},
                    {"global_value.weight", "W of v in global rows [h d, m]"},
                    {"global_value.bias", "of v in global rows [h d]"}};
  result.dense_limit = Json{{"window", {1 << 30}}};
  result.check = [](const Json& options, int64_t heads) {
    const Options own = schema().read(options);
    if (heads == 0) check_core(own);
    else (void)dilation_of_heads(own.dilation, heads, /*layer=*/0);
  };
  result.build_core = [](const Json& options, const BuildContext& context) {
    const Options own = schema().read(options);
    check_core(own);
    return std::make_shared<TiedCore>(own, context);
  };
  result.build_mixer = [](const Json& options, const BuildContext& context) -> std::shared_ptr<SequenceMixer> {
    const Options own = schema().read(options);
    if (!own.global_tied) return std::make_shared<UntiedMixer>(own, context);
    return std::make_shared<MultiHeadMixer>(context, std::make_shared<TiedCore>(own, context));
  };
  return {result};
}

}  // namespace xformer::attention::variants::longformer
