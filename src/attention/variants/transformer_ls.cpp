// Transformer-LS: Zhu, Ping, Xiao, Shoeybi, Goldstein, Anandkumar, Catanzaro, "Long-Short Transformer: Efficient
// Transformers for Language and Vision", NeurIPS 2021, sections 3.2 to 3.4: one softmax over a segment of neighbours
// and r mixtures of all tokens.
//   K = LN_s(x W_k),  V = LN_s(x W_v)        one norm over all h d channels, the same for both
//   P = softmax over valid tokens of x W_p   a column for each of r mixtures of each head [h,r,n]
//   K' = LN_l(P K),  V' = LN_l(P V)          over all heads' channels of a mixture, the same norm for both
//   o_i = softmax over {q_i K', q_i K_j} / sqrt(d) times [V'; V], j in i's segment of w tokens and w / 2 on either side
// Causal: j in i - w + 1 .. i; P is a softmax within each segment of l tokens, with r_c columns, of the projections as
// they are, x W_k and x W_v; row i reads the mixtures of the segments before its own. With w >= l it misses none of its
// past. Without the norms (dual_norm=false) both are left out. Bidirectional mixtures are of normalised keys and values
// as in the authors' Long Range Arena code, causal ones of plain ones as in their language model (attention-third 11).
// Its [CLS], a key of all in the last layer alone, is not here.
#include <ATen/Functions.h>

#include <cmath>

#include "attention/descriptor.h"
#include "attention/multi_head.h"
#include "attention/shared/full_precision.h"
#include "attention/shared/windows.h"
#include "kernels/batched_product/batched_product.h"
#include "tensor/closed_keys.h"
#include "tensor/parts.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::transformer_ls {

struct Options {
  int64_t block = 8;
  int64_t projected_len = 32;
  int64_t segment = 8;
  int64_t segment_rank = 1;
  bool dual_norm = true;
};

class TransformerLsMixer : public SequenceMixer {
 public:
  TransformerLsMixer(const Options& options, const BuildContext& context)
      : options_(options),
        model_dim_(context.model_dim),
        heads_(context.heads),
        head_dim_(context.head_dim),
        causal_(context.causal),
        columns_(causal_ ? options.segment_rank : options.projected_len),
        dropout_(context.make_dropout()),
        slot_dropout_(context.make_dropout()) {
    XF_CHECK(!causal_ || options.block >= options.segment, UserError,
             "attention.block: expected at least attention.segment = {}, so that no row misses the tokens between its "
             "window and the segments before its own; got {}",
             options.segment, options.block);
    const int64_t inner = heads_ * head_dim_;
    const auto linear = [&](const char* name, int64_t in, int64_t out, bool bias) {
      return register_module(name,
                             std::make_shared<Linear>(in, out, bias, context.init_scheme, context.init.child(name)));
    };
    query_ = linear("query", model_dim_, inner, context.bias);
    key_ = linear("key", model_dim_, inner, context.bias);
    value_ = linear("value", model_dim_, inner, context.bias);
    // Its bias would cancel in the softmax over tokens.
    if (columns_ > 0) projection_ = linear("projection", model_dim_, heads_ * columns_, false);
    out_ = linear("out", inner, model_dim_, context.bias);
    if (!options.dual_norm) return;
    const auto norm = [&](const std::string& name) {
      return Norm{register_parameter(name + "_weight", at::ones({inner})),
                  register_parameter(name + "_bias", at::zeros({inner}))};
    };
    near_norm_ = norm("near_norm");
    if (columns_ > 0) far_norm_ = norm("far_norm");
  }

  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry&) override {
    const int64_t b = x.size(0), n = x.size(1);
    const at::Tensor q_rows = query_->forward(x), k_rows = key_->forward(x), v_rows = value_->forward(x);
    const at::Tensor columns = columns_ > 0 ? projection_->forward(x) : at::Tensor();  // [b, n, h r]
    at::Tensor mixed;
    {
      const FullPrecision full(x.device().type());
      const at::Tensor q = split(full(q_rows)), plain_k = full(k_rows), plain_v = full(v_rows);
      const at::Tensor k = split(near_norm_(plain_k)), v = split(near_norm_(plain_v));
      probe("q", q), probe("k", k), probe("v", v);
      if (!causal_) {
        const Windows windows = Windows::segments(n, options_.block, beside());
        const ExtraKeys slots = columns_ > 0 ? mixtures(split(full(columns)), k, v, mask) : ExtraKeys();
        mixed = window_attention(q, k, v, mask.key_valid, windows, dropout_, is_training(), slots);
      } else {
        at::Tensor near_sum;
        const at::Tensor near =
            window_attention(q, k, v, mask.key_valid, sliding(n), dropout_, is_training(), {}, &near_sum);
        const int64_t segments = (n + options_.segment - 1) / options_.segment;
        mixed = segments > 1
                    ? with_segments(q, split(full(columns)), split(plain_k), split(plain_v), mask, near, near_sum)
                    : near;
      }
    }
    probe("mixed", mixed);
    return out_->forward(mixed.transpose(1, 2).reshape({b, n, heads_ * head_dim_}));
  }

  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    const double b = static_cast<double>(batch), n = static_cast<double>(length), m = static_cast<double>(model_dim_);
    const double h = static_cast<double>(heads_), d = static_cast<double>(head_dim_), z = b * h;
    const double r = static_cast<double>(columns_), maps = 2 * b * n * m * h * (4 * d + r);
    if (!causal_) {
      const Windows windows = Windows::segments(length, options_.block, beside());
      const double rest = maps + 8 * z * n * r * d;
      return {rest + 4 * z * d * windows.executed_pairs(), rest + 4 * z * d * windows.pattern_pairs(),
              z * (2 * n * r + 2 * r * d) + kept_of_windows(z, n, d)};
    }
    const Windows windows = sliding(length);
    const int64_t size = options_.segment, segments = (length + size - 1) / size;
    double executed = 0, pattern = 0;  // pairs of rows and mixtures
    if (segments > 1) {
      executed = n * static_cast<double>(segments) * r;
      for (int64_t i = 0; i < length; ++i) pattern += static_cast<double>(i / size) * r;
    }
    const double tokens = segments > 1 ? static_cast<double>(segments * size) : 0;
    const double mixing = 4 * z * tokens * r * d, near_exec = windows.executed_pairs(), near = windows.pattern_pairs();
    return {maps + mixing + 4 * z * d * (near_exec + executed), maps + mixing + 4 * z * d * (near + pattern),
            z * (2 * n * r + 2 * executed) + kept_of_windows(z, n, d)};
  }

 private:
  struct Norm {
    at::Tensor weight, bias;  // [h d]; undefined without norms
    [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const {
      return weight.defined() ? at::layer_norm(x, {x.size(-1)}, weight, bias, 1e-5) : x;
    }
  };

  [[nodiscard]] int64_t beside() const { return std::max<int64_t>(options_.block / 2, 1); }
  [[nodiscard]] Windows sliding(int64_t n) const { return Windows::sliding(n, options_.block - 1, 0); }
  [[nodiscard]] at::Tensor split(const at::Tensor& rows) const {  // [b, n, h x] -> [b, h, n, x]
    return rows.reshape({rows.size(0), rows.size(1), heads_, -1}).transpose(1, 2);
  }
  // LN_l over all heads of a mixture [b,h,r,d].
  [[nodiscard]] at::Tensor far_norm(const at::Tensor& x) const {
    return split(far_norm_(x.transpose(1, 2).flatten(2)));
  }

  // K' and V' of the whole sequence. columns [b,h,n,r], k and v [b,h,n,d].
  [[nodiscard]] ExtraKeys mixtures(const at::Tensor& columns, const at::Tensor& k, const at::Tensor& v,
                                   const SequenceMask& mask) const {
    const at::Tensor weights = masked_softmax(columns.transpose(2, 3), {mask.key_valid});  // P [b,h,r,n]
    ExtraKeys result{
        far_norm(kernels::batched_product(weights, k)), far_norm(kernels::batched_product(weights, v)), {}};
    if (!mask.all_valid())
      result.allowed = mask.key_valid.any(-1, /*keepdim=*/true).unsqueeze(1).expand({-1, -1, columns.size(3)});
    probe("projection", weights), probe("short_k", result.k), probe("short_v", result.v);
    return result;
  }

  // What rows read of their windows, joined with the mixtures of the segments before their own. Keys and values are not
  // normalised; all [b,h,n,x].
  [[nodiscard]] at::Tensor with_segments(const at::Tensor& q, const at::Tensor& columns, const at::Tensor& k,
                                         const at::Tensor& v, const SequenceMask& mask, const at::Tensor& near,
                                         const at::Tensor& near_sum) const {
    const int64_t n = q.size(2), size = options_.segment, segments = (n + size - 1) / size;
    const auto in_segments = [&](const at::Tensor& x) {  // [b,h,n,x] -> [b,h,s,l,x]
      return with_zeros_behind(x, 2, segments * size - n).unflatten(2, {segments, size});
    };
    const at::Tensor valid = mask.all_valid() ? at::ones({1, n}, q.options().dtype(at::kBool)) : mask.key_valid;
    const at::Tensor open = in_segments(valid.unsqueeze(1).unsqueeze(-1)).transpose(3, 4);  // [b or 1,1,s,1,l]
    const at::Tensor weights = closed_softmax(in_segments(columns).transpose(3, 4), open.logical_not());
    const auto mixed = [&](const at::Tensor& x) {  // [b, h, s r_c, d]
      return far_norm(kernels::batched_product(weights, in_segments(x)).flatten(2, 3));
    };
    const at::Tensor short_k = mixed(k), short_v = mixed(v);
    probe("projection", weights), probe("short_k", short_k), probe("short_v", short_v);

    // Mixture s of row i counts if its segment has a token and lies before the row's own.
    const at::Tensor earlier = tables_.get("earlier", {n}, q.device(), [&](const at::TensorOptions& numbers) {
      const at::Tensor own = at::floor_divide(at::arange(n, numbers), size).unsqueeze(-1);              // [n,1]
      const at::Tensor of_slot = at::floor_divide(at::arange(segments * columns_, numbers), columns_);  // [s r_c]
      return of_slot.lt(own);
    });
    const at::Tensor filled =
        open.squeeze(3).any(-1).repeat_interleave(columns_, -1).unsqueeze(2);  // [b or 1,1,1,s r_c]
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    const PartialWeights slots =
        partial_softmax(kernels::batched_product(q * scale, short_k.transpose(-1, -2)), earlier.logical_and(filled));
    probe("far_weights", slots.weights);
    const at::Tensor far = kernels::batched_product(slot_dropout_(slots.weights, is_training()), short_v);
    // Two partial softmaxes become one by their shares exp(log_sum) of the whole.
    const at::Tensor share = at::sigmoid(near_sum - slots.log_sum);
    return mask.zero_padding(far + share * (near - far));
  }

  Options options_;
  int64_t model_dim_, heads_, head_dim_;
  bool causal_;
  int64_t columns_;  // r, or r_c
  kernels::Dropout dropout_, slot_dropout_;
  IndexTables tables_;
  std::shared_ptr<Linear> query_, key_, value_, projection_, out_;
  Norm near_norm_, far_norm_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::block, "block", "tokens per block (b)", at_least(1))
          .add(&Options::projected_len, "projected_len",
               "length that keys and values are brought to (k); at most the sequence's", at_least(0))
          .add(&Options::segment, "segment", "tokens of a segment that causal attention mixes by itself (l)",
               at_least(1))
          .add(&Options::segment_rank, "segment_rank", "mixtures of each such segment (r_c)", at_least(1))
          .add(&Options::dual_norm, "dual_norm", "layer norms of keys and values, of tokens and of mixtures");
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "transformer-ls";
  result.aliases = {"long-short"};
  result.title = "Transformer-LS (long-short)";
  result.paper =
      "Zhu, Ping, Xiao, Shoeybi, Goldstein, Anandkumar, Catanzaro: Long-Short Transformer: Efficient Transformers for "
      "Language and Vision, 2021";
  result.method_class = "LR";
  result.summary =
      "Each token reads its neighbours and a few mixtures of all tokens, weighed by the tokens themselves.";
  result.complexity = Complexity::kLinear;
  result.traits = {.causal_ok = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.tensors = projection_meanings();
  result.tensors.push_back(
      {"projection.weight", "W_p: logits of each token in each mixture [h r, m], causal [h r_c, m]"});
  for (const auto& [name, of] : {std::pair{"near_norm", "keys and values of tokens"}, {"far_norm", "their mixtures"}}) {
    result.tensors.push_back({std::string(name) + "_weight", std::string("scale of the norm of ") + of + " [h d]"});
    result.tensors.push_back({std::string(name) + "_bias", std::string("shift of the norm of ") + of + " [h d]"});
  }
  result.build_mixer = [](const Json& options, const BuildContext& context) {
    return std::make_shared<TransformerLsMixer>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::transformer_ls
