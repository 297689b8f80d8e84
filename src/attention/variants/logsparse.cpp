// LogSparse attention: Li, Jin, Xuan, Zhou, Chen, Wang, Yan, "Enhancing the Locality and Breaking the Memory Bottleneck
// of Transformer on Time Series Forecasting", NeurIPS 2019, section 4.2, and as the base of Combiner (Ren et al. 2021,
// section 4.2): softmax over about log2 n keys of a row,
//   exponential  those at distances {0 .. l - 1} and {l - 1 + 2^a}, l = `local`; the paper's base set is l = 1. A
//                distance that leads out of the sequence has no key. With `restart` S, distances below S are repeated
//                every S tokens, counted from the row (the paper's restart attention).
//   bit-suffix   i and ((i >> t) << t) - 1 for every t: the last tokens of the blocks that a binary tree leaves behind
// The paper's rows are causal. The bidirectional form has |i - j| in the same distances, and of bit-suffix also the
// first tokens ((i >> t) + 1) << t of the blocks ahead, for every bit t of i that is 0 (attention-third 3).
// `query_kernel` k > 1 makes queries and keys by causal convolutions of width k (section 4.1; centred where not
// causal), W_q and W_k [h d, m, k] over x with zeros at its ends and in place of padding.
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "attention/descriptor.h"
#include "attention/multi_head.h"
#include "attention/shared/full_precision.h"
#include "attention/shared/listed_core.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::logsparse {

struct Options {
  std::string pattern = "exponential";
  int64_t local = 1;
  int64_t restart = 0;
  int64_t query_kernel = 1;
};

// Rising distances below `length`, 0 the first.
std::vector<int64_t> exponential_distances(const Options& options, int64_t length) {
  const int64_t period = options.restart > 0 ? std::min(options.restart, length) : length;
  std::vector<int64_t> base;
  for (int64_t near = 0; near < std::min(options.local, period); ++near) base.push_back(near);
  for (int64_t step = 1; options.local - 1 + step < period; step *= 2) base.push_back(options.local - 1 + step);
  std::vector<int64_t> result;
  for (int64_t start = 0; start < length; start += period)
    for (const int64_t distance : base)
      if (start + distance < length) result.push_back(start + distance);
  return result;
}

std::vector<int64_t> bit_suffix_keys(int64_t row, int64_t length, bool causal) {
  std::vector<int64_t> keys{row};
  for (int64_t t = 0; int64_t{1} << t <= row; ++t)
    if (const int64_t key = (row >> t << t) - 1; key >= 0 && key != keys.back()) keys.push_back(key);
  for (int64_t t = 0; !causal && int64_t{1} << t < length; ++t)
    if (const int64_t key = ((row >> t) + 1) << t; (row >> t & 1) == 0 && key < length) keys.push_back(key);
  return keys;
}

std::shared_ptr<ListedCore> make_core(const Options& options, const BuildContext& context) {
  if (options.pattern == "bit-suffix") return std::make_shared<ListedCore>(context, bit_suffix_keys);
  return std::make_shared<ListedCore>(context, [options](int64_t row, int64_t length, bool causal) {
    return keys_apart(exponential_distances(options, length), row, length, causal);
  });
}

// y = conv(x) + bias along the length, weight [out, in, k].
class Convolution : public torch::nn::Module {
 public:
  Convolution(int64_t in, int64_t out, int64_t kernel, bool with_bias, const InitStream& init) {
    const double bound = 1 / std::sqrt(static_cast<double>(kernel * in));  // LibTorch's default
    weight = register_parameter("weight", init.uniform("weight", {out, in, kernel}, -bound, bound));
    if (with_bias) bias = register_parameter("bias", init.uniform("bias", {out}, -bound, bound));
  }
  at::Tensor weight, bias;
};

class ConvolvedMixer : public SequenceMixer {
 public:
  ConvolvedMixer(const Options& options, const BuildContext& context)
      : kernel_(options.query_kernel),
        model_dim_(context.model_dim),
        heads_(context.heads),
        head_dim_(context.head_dim),
        causal_(context.causal) {
    const int64_t inner = heads_ * head_dim_;
    const auto convolution = [&](const char* name) {
      return register_module(
          name, std::make_shared<Convolution>(model_dim_, inner, kernel_, context.bias, context.init.child(name)));
    };
    const auto linear = [&](const char* name, int64_t in, int64_t out) {
      return register_module(
          name, std::make_shared<Linear>(in, out, context.bias, context.init_scheme, context.init.child(name)));
    };
    query_ = convolution("query");
    key_ = convolution("key");
    value_ = linear("value", model_dim_, inner);
    out_ = linear("out", inner, model_dim_);
    core_ = register_module("core", make_core(options, context));
  }

  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry& carry) override {
    const int64_t b = x.size(0), n = x.size(1), left = causal_ ? kernel_ - 1 : (kernel_ - 1) / 2;
    const at::Tensor clean = mask.zero_padding(x.unsqueeze(1)).squeeze(1).transpose(1, 2);  // [b,m,n]
    const at::Tensor ends = at::constant_pad_nd(clean, {left, kernel_ - 1 - left});
    const auto convolved = [&](const Convolution& map) {
      return at::conv1d(ends, map.weight, map.bias.defined() ? std::optional(map.bias) : std::nullopt).transpose(1, 2);
    };
    at::Tensor q = convolved(*query_), k = convolved(*key_), v = value_->forward(x), mixed;
    {
      const FullPrecision full(x.device().type(), core_->takes_bf16());
      const auto split = [&](const at::Tensor& rows) {  // [b, n, h d] -> [b, h, n, d]
        return full(rows).reshape({b, n, heads_, head_dim_}).transpose(1, 2);
      };
      q = split(q), k = split(k), v = split(v);
      probe("q", q), probe("k", k), probe("v", v);
      mixed = core_->forward(q, k, v, mask, carry);
    }
    probe("mixed", mixed);
    return out_->forward(mixed.transpose(1, 2).reshape({b, n, heads_ * head_dim_}));
  }

  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    Cost result = core_->cost({batch, heads_, length, length, head_dim_});
    const double map = 2.0 * static_cast<double>(batch * length * model_dim_ * heads_ * head_dim_);
    const double maps = map * (2 + 2 * static_cast<double>(kernel_));
    result.flops_executed += maps;
    result.flops_pattern += maps;
    return result;
  }

 private:
  int64_t kernel_, model_dim_, heads_, head_dim_;
  bool causal_;
  std::shared_ptr<Convolution> query_, key_;
  std::shared_ptr<Linear> value_, out_;
  std::shared_ptr<ListedCore> core_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::pattern, "pattern",
               "which keys a row reads: exponential (distances that double) or bit-suffix (ends of the blocks that a "
               "binary tree leaves behind)",
               one_of({"exponential", "bit-suffix"}))
          .add(&Options::local, "local", "nearest tokens that a row reads, itself included", at_least(1))
          .add(&Options::restart, "restart", "distance at which the pattern begins anew; 0: never", at_least(0))
          .add(&Options::query_kernel, "query_kernel",
               "width of the convolutions that make queries and keys; 1: linear maps", at_least(1));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "logsparse";
  result.aliases = {"log-sparse", "logtrans"};
  result.title = "LogSparse Transformer";
  result.paper =
      "Li, Jin, Xuan, Zhou, Chen, Wang, Yan: Enhancing the Locality and Breaking the Memory Bottleneck of Transformer "
      "on "
      "Time Series Forecasting, 2019";
  result.method_class = "FP";
  result.summary = "Each token reads about log2 n others, at distances that double.";
  result.complexity = Complexity::kLinearithmic;
  result.traits = {.causal_ok = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.dense_limit = Json{{"local", 1 << 30}};
  result.check = [](const Json& options, int64_t heads) {
    const Options own = schema().read(options);
    XF_CHECK(own.restart == 0 || own.restart > own.local, UserError,
             "attention.restart: expected 0 or more than attention.local = {}, got {}", own.local, own.restart);
    XF_CHECK(heads > 0 || own.query_kernel == 1, UserError,
             "attention.query_kernel: mrs- works between projections, which it would change; expected 1, got {}",
             own.query_kernel);
  };
  result.build_core = [](const Json& options, const BuildContext& context) -> std::shared_ptr<AttentionCore> {
    return make_core(schema().read(options), context);
  };
  result.build_mixer = [](const Json& options, const BuildContext& context) -> std::shared_ptr<SequenceMixer> {
    const Options own = schema().read(options);
    if (own.query_kernel > 1) return std::make_shared<ConvolvedMixer>(own, context);
    return std::make_shared<MultiHeadMixer>(context, make_core(own, context));
  };
  return {result};
}

}  // namespace xformer::attention::variants::logsparse
