// Star-Transformer: Guo, Qiu, Liu, Shao, Xue, Zhang, NAACL 2019, section 3.2: satellites h_i in a ring around a relay
// s, in place of the layer and its feed-forward part. With e_i the input of the first layer, one layer is
//   h_i <- LN(ReLU(MHA_ring(query h_i; keys and values h_{i-1}, h_i, h_{i+1}, e_i, s)))   all at once
//   s   <- LN(ReLU(MHA_relay(query s; keys and values s, h_1 .. h_n)))                     with the new h
// The relay is the token that stands in front (prefix_tokens), and to begin with has the mean of the satellites added.
// Neighbours that do not exist are left out, not zero keys as in fastNLP's code. `style=code` follows that code, which
// its authors call unfinished: a norm (eps 1e-6) of the ring's h alone, as queries and as neighbours, leaky ReLU behind
// both, no norm of the relay. `ring=closed` joins the first and the last token (attention-third 4).
// There is no causal form: every token reads the relay, which reads every token.
#include <ATen/Functions.h>

#include <cmath>

#include "attention/descriptor.h"
#include "attention/multi_head.h"
#include "attention/shared/full_precision.h"
#include "attention/shared/index_tables.h"
#include "kernels/listed_attention/listed_attention.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::star_transformer {

struct Options {
  std::string style = "paper";
  std::string ring = "open";
};

constexpr const char* kEmbedding = "star/embedding";  // e, for the layers behind the first
constexpr double kLeak = 0.01;
constexpr int64_t kSlots = 5;  // keys of a satellite

// The four maps of an attention.
class Maps : public torch::nn::Module {
 public:
  Maps(const BuildContext& context, const InitStream& init) {
    const int64_t inner = context.heads * context.head_dim;
    const auto linear = [&](const char* name, int64_t from, int64_t to) {
      return register_module(name,
                             std::make_shared<Linear>(from, to, context.bias, context.init_scheme, init.child(name)));
    };
    query = linear("query", context.model_dim, inner);
    key = linear("key", context.model_dim, inner);
    value = linear("value", context.model_dim, inner);
    out = linear("out", inner, context.model_dim);
  }
  std::shared_ptr<Linear> query, key, value, out;
};

class StarBlock : public LayerBlock {
 public:
  StarBlock(const Options& options, const BuildContext& context)
      : code_(options.style == "code"),
        closed_(options.ring == "closed"),
        first_(context.layer == 0),
        model_dim_(context.model_dim),
        heads_(context.heads),
        head_dim_(context.head_dim),
        ring_dropout_(context.make_dropout()),
        relay_dropout_(context.make_dropout()) {
    ring_ = register_module("ring", std::make_shared<Maps>(context, context.init.child("ring")));
    relay_ = register_module("relay", std::make_shared<Maps>(context, context.init.child("relay")));
    const auto norm = [&](const std::string& name) {
      return Norm{register_parameter(name + "_weight", at::ones({model_dim_})),
                  register_parameter(name + "_bias", at::zeros({model_dim_}))};
    };
    ring_norm_ = norm("ring_norm");
    if (!code_) relay_norm_ = norm("relay_norm");
  }

  at::Tensor forward(const at::Tensor& given, const SequenceMask& mask, Carry& carry) override {
    XF_ASSERT(!mask.causal, "the star has no causal form");
    const int64_t b = given.size(0), satellites = given.size(1) - 1;
    const at::Tensor x = mask.zero_padding(given.unsqueeze(1)).squeeze(1);
    const at::Tensor valid = mask.all_valid() ? at::ones({b, satellites}, x.options().dtype(at::kBool))
                                              : mask.key_valid.narrow(1, 1, satellites);
    at::Tensor s = x.narrow(1, 0, 1), h = x.narrow(1, 1, satellites);  // [b,1,m], [b,S,m]
    if (first_) {
      carry[kEmbedding] = h;
      s = s + h.sum(1, /*keepdim=*/true) / valid.sum(1, /*keepdim=*/true).clamp_min(1).unsqueeze(-1);
    }
    if (satellites > 0) h = ring(h, carry.at(kEmbedding), s, valid);
    s = relay(s, h, valid);
    probe("relay", s);
    return mask.zero_padding(at::cat({s, h}, 1).unsqueeze(1)).squeeze(1);
  }

  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    const double b = static_cast<double>(batch), s = static_cast<double>(length - 1),
                 m = static_cast<double>(model_dim_);
    const double h = static_cast<double>(heads_), d = h * static_cast<double>(head_dim_);
    // At the ends of an open ring, and in one of fewer than three, some neighbours are not there.
    const double slots = s == 0     ? 0
                         : !closed_ ? static_cast<double>(kSlots) * s - 2
                         : s >= 3   ? static_cast<double>(kSlots) * s
                                    : s * (s + 2);
    const double ring = s == 0 ? 0 : 12 * b * s * m * d + 4 * b * m * d + 4 * b * slots * d;
    const double flops = ring + 4 * b * (s + 1) * m * d + 4 * b * m * d + 4 * b * (s + 1) * d;
    return {flops, flops, b * (s + 1) * (8 * d + kSlots * h)};
  }

 private:
  struct Norm {
    at::Tensor weight, bias;  // [m]
    [[nodiscard]] at::Tensor operator()(const at::Tensor& x, double epsilon) const {
      return at::layer_norm(x, {x.size(-1)}, weight, bias, epsilon);
    }
  };

  [[nodiscard]] at::Tensor split(const at::Tensor& rows) const {  // [b, n, h d] -> [b, h, n, d]
    return rows.reshape({rows.size(0), rows.size(1), heads_, head_dim_}).transpose(1, 2);
  }
  [[nodiscard]] static at::Tensor joined(const at::Tensor& x) { return x.transpose(1, 2).flatten(2); }

  // The new satellites [b,S,m].
  [[nodiscard]] at::Tensor ring(const at::Tensor& h, const at::Tensor& e, const at::Tensor& s,
                                const at::Tensor& valid) const {
    const at::Tensor own = code_ ? ring_norm_(h, 1e-6) : h;
    const at::Tensor table = at::cat({own, e, s}, 1);  // [b, 2 S + 1, m]
    const at::Tensor q_rows = ring_->query->forward(own), k_rows = ring_->key->forward(table),
                     v_rows = ring_->value->forward(table);
    at::Tensor mixed;
    {
      const FullPrecision full(h.device().type(), /*takes_bf16=*/true, /*takes_half_on_devices=*/true);
      const at::Tensor q = split(full(q_rows)), k = split(full(k_rows)), v = split(full(v_rows));
      probe("q", q), probe("k", k), probe("v", v);
      const at::Tensor relay = at::ones({valid.size(0), 1}, valid.options());
      const ProbeScope scope("ring");
      mixed = kernels::listed_attention(
          q, k, v, {places(valid), {}, at::cat({valid, valid, relay}, 1), valid, ring_dropout_.place(is_training())});
    }
    probe("mixed", mixed);
    const at::Tensor out = ring_->out->forward(joined(mixed));
    return code_ ? at::leaky_relu(out, kLeak) : ring_norm_(at::relu(out), 1e-5);
  }

  // Where each satellite's keys are in the table: i - 1, i and i + 1 of h, i of e, s [1 or b,1,S,5].
  [[nodiscard]] at::Tensor places(const at::Tensor& valid) const {
    const int64_t count = valid.size(1);
    // The open ring's follow from the number of satellites alone.
    const auto made = [&](const at::TensorOptions& numbers) { return places(valid, at::arange(count, numbers)); };
    if (closed_) return made(valid.options().dtype(at::kLong));
    return tables_.get("places", {count}, valid.device(), made);
  }

  [[nodiscard]] at::Tensor places(const at::Tensor& valid, const at::Tensor& satellites) const {
    const int64_t count = satellites.size(0);
    const at::Tensor i = satellites.unsqueeze(0);  // [1,S]
    at::Tensor left = i - 1, right = at::where(i.eq(count - 1), -1, i + 1);
    if (closed_) {
      const at::Tensor numbers = valid.to(at::kInt);
      const at::Tensor first = numbers.argmax(1, /*keepdim=*/true);  // [b,1]
      const at::Tensor last = count - 1 - numbers.flip({1}).argmax(1, /*keepdim=*/true);
      const at::Tensor far = (last - first).gt(1);  // else the other end is a neighbour already, or the token itself
      left = at::where(i.eq(first), at::where(far, last, -1), left);
      right = at::where(i.eq(last), at::where(far, first, -1), right);
    }
    const auto like = [&](const at::Tensor& column) { return column.expand(left.sizes()); };
    return at::stack({left, like(i), like(right), like(i + count), like(at::full_like(i, 2 * count))}, -1).unsqueeze(1);
  }

  // The new relay [b,1,m].
  [[nodiscard]] at::Tensor relay(const at::Tensor& s, const at::Tensor& h, const at::Tensor& valid) const {
    const at::Tensor table = at::cat({s, h}, 1);  // [b, 1 + S, m]
    const at::Tensor q_rows = relay_->query->forward(s), k_rows = relay_->key->forward(table),
                     v_rows = relay_->value->forward(table);
    at::Tensor mixed;
    {
      const FullPrecision full(s.device().type());
      const double scale = 1 / std::sqrt(static_cast<double>(head_dim_));
      const at::Tensor own = at::ones({valid.size(0), 1}, valid.options());
      const at::Tensor weights =
          masked_softmax(at::matmul(split(full(q_rows)) * scale, split(full(k_rows)).transpose(-1, -2)),
                         {at::cat({own, valid}, 1)});  // [b,h,1,1+S]
      probe("relay_weights", weights);
      mixed = at::matmul(relay_dropout_(weights, is_training()), split(full(v_rows)));
    }
    const at::Tensor out = relay_->out->forward(joined(mixed));
    return code_ ? at::leaky_relu(out, kLeak) : relay_norm_(at::relu(out), 1e-5);
  }

  bool code_, closed_, first_;
  int64_t model_dim_, heads_, head_dim_;
  kernels::Dropout ring_dropout_, relay_dropout_;
  IndexTables tables_;
  std::shared_ptr<Maps> ring_, relay_;
  Norm ring_norm_, relay_norm_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::style, "style", "where norms and which ReLU: those of the paper, or of fastNLP's code",
               one_of({"paper", "code"}))
          .add(&Options::ring, "ring", "whether the first and the last token are neighbours",
               one_of({"open", "closed"}));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "star-transformer";
  result.aliases = {"star"};
  result.title = "Star-Transformer";
  result.paper = "Guo, Qiu, Liu, Shao, Xue, Zhang: Star-Transformer, 2019";
  result.method_class = "M";
  result.summary =
      "Each token reads its two neighbours, its own embedding and a relay, which reads all tokens; a whole layer. "
      "The relay is read too, where the sequence becomes one vector.";
  result.complexity = Complexity::kLinear;
  result.traits = {.carries = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  for (const std::string part : {"ring", "relay"}) {
    const std::string of = part == "ring" ? "of the satellites" : "of the relay";
    for (const std::string map : {"query", "key", "value"}) {
      result.tensors.push_back({part + "." + map + ".weight", "W of " + map + " = x W^T + bias " + of + " [h d, m]"});
      result.tensors.push_back({part + "." + map + ".bias", map + "'s bias " + of + " [h d]"});
    }
    result.tensors.push_back(
        {part + ".out.weight", "W of output = (heads side by side) W^T + bias " + of + " [m, h d]"});
    result.tensors.push_back({part + ".out.bias", "output's bias " + of + " [m]"});
    result.tensors.push_back({part + "_norm_weight", "scale of the norm " + of + " [m]"});
    result.tensors.push_back({part + "_norm_bias", "shift of the norm " + of + " [m]"});
  }
  result.prefix_tokens = [](const Json&) { return int64_t{1}; };
  result.model_defaults = {{"pooling", "prefix_max"}};  // under others nothing reads the last layer's relay
  result.build_block = [](const Json& options, const BuildContext& context) {
    return std::make_shared<StarBlock>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::star_transformer
