// Paramixer: Yu, Khalitov, Cheng, Yang, "Paramixer: Parameterizing Mixing Links in Sparse Factors Works Better than
// Dot-Product Self-Attention", CVPR 2022, with its supplement and code (wiedersehne/Paramixer). A whole layer, without
// softmax and without norms. From the first layer's input X0, which all layers read, and the layer's input V:
//   V <- g(V),   then for m = 0 .. M-1:  V_i <- sum_p W_ip V_s(i,p) + V_i,   W = f_m(X0) [n,P]
// g and every f_m are two linear maps with GELU between them; W may be negative. Links, modulo the length n:
//   paramixer-chord  s(i,0) = i, s(i,p) = i + 2^(p-1), the same for all factors
//   paramixer-cdil   s(i,.) = i, i + k 2^m, i - k 2^m for k = 1 .. (P-1)/2; those that meet add up
// M is the binary logarithm of the longest length, rounded up, and chord's P = M + 1: only so does one layer connect
// all places. The paper's table has P = log2 n for two tasks, which leaves one out, and its code rounds M down.
// With residual=block the layer's g(V) is added behind the factors instead of V in each (a comment in the code).
// Padding is zeroed behind g and every factor, which the code does not do: its padding is read as if it were tokens.
// Dropout behind the layer is the model's attention_dropout. There is no causal form: links run around the end.
#include <bit>

#include "attention/descriptor.h"
#include "attention/multi_head.h"
#include "attention/shared/full_precision.h"
#include "kernels/feed_forward/feed_forward.h"
#include "kernels/rolled_rows/rolled_rows.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::paramixer {

constexpr const char* kFirstInput = "paramixer/x0";  // in Carry

struct Options {
  int64_t links = 0, factors = 0, hidden = 32;
  std::string residual = "factor";
  bool mask_pads = true, final_norm = false;
};

struct DilatedOptions : Options {
  DilatedOptions() { links = 9; }
};

// W2 gelu(W1 x + b1) + b2, in "in" and "out".
class TwoMaps : public torch::nn::Module {
 public:
  TwoMaps(int64_t hidden, int64_t width, const BuildContext& context, const std::string& name) {
    const InitStream init = context.init.child(name);
    in_ = register_module(
        "in", std::make_shared<Linear>(context.model_dim, hidden, true, context.init_scheme, init.child("in")));
    out_ =
        register_module("out", std::make_shared<Linear>(hidden, width, true, context.init_scheme, init.child("out")));
  }
  [[nodiscard]] at::Tensor forward(const at::Tensor& x) const {
    return kernels::feed_forward(x, in_->map(), out_->map(), /*tanh=*/false, {});
  }

 private:
  std::shared_ptr<Linear> in_, out_;
};

class ParamixerBlock : public LayerBlock {
 public:
  ParamixerBlock(const Options& options, bool dilated, const BuildContext& context)
      : options_(options), dilated_(dilated), dim_(context.model_dim), dropout_(context.make_dropout()) {
    XF_ASSERT(context.max_len > 0, "paramixer needs the longest length when it is built");
    factors_ = options.factors > 0 ? options.factors : std::bit_width(static_cast<uint64_t>(context.max_len - 1));
    links_ = options.links > 0 ? options.links : factors_ + 1;
    value_ = register_module("value", std::make_shared<TwoMaps>(options.hidden, dim_, context, "value"));
    for (int64_t m = 0; m < factors_; ++m) {
      const std::string name = "factor" + std::to_string(m);
      weights_.push_back(register_module(name, std::make_shared<TwoMaps>(options.hidden, links_, context, name)));
    }
  }

  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry& carry) override {
    XF_ASSERT(!mask.causal, "paramixer has no causal form");
    const at::Tensor first = carry.emplace(kFirstInput, x).first->second;
    const at::Tensor valid = options_.mask_pads ? mask.key_valid : at::Tensor();
    const bool in_factor = options_.residual == "factor";
    at::Tensor v = value_->forward(x);
    std::vector<at::Tensor> weights;
    for (const auto& maps : weights_) weights.push_back(maps->forward(first));  // [b,n,P]
    const FullPrecision full(x.device().type(), /*takes_bf16=*/true);
    v = full(v);
    if (valid.defined()) v = at::where(valid.unsqueeze(-1), v, 0);
    probe("v", v);
    const at::Tensor before = v;
    for (int64_t m = 0; m < factors_; ++m) {
      const ProbeScope scope("factor", m);
      const at::Tensor own = full(weights[static_cast<size_t>(m)]);
      probe("weights", own);
      v = kernels::rolled_rows(v, own, {offsets(m), in_factor, valid});
    }
    if (!in_factor) v = v + before;
    probe("mixed", v);
    return dropout_(v, is_training());
  }

  // 4 n m H + M (2 n m H + 2 n H P + 2 n P m), H the hidden width.
  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    const double n = static_cast<double>(batch * length), m = static_cast<double>(dim_);
    const double hidden = static_cast<double>(options_.hidden), links = static_cast<double>(links_);
    const double factors = static_cast<double>(factors_);
    const double flops = 2 * n * (2 * m * hidden + factors * (m * hidden + hidden * links + links * m));
    return {flops, flops, n * (hidden + 2 * m + factors * (hidden + links + m))};
  }

 private:
  // Steps of the links of factor m.
  [[nodiscard]] std::vector<int64_t> offsets(int64_t m) const {
    std::vector<int64_t> result{0};
    if (!dilated_) {
      for (int64_t p = 1; p < links_; ++p) result.push_back(int64_t{1} << (p - 1));
      return result;
    }
    for (const int64_t sign : {1, -1})
      for (int64_t k = 1; k <= links_ / 2; ++k) result.push_back(sign * k * (int64_t{1} << m));
    return result;
  }

  Options options_;
  bool dilated_;
  int64_t dim_, factors_ = 0, links_ = 1;
  kernels::Dropout dropout_;
  std::shared_ptr<TwoMaps> value_;                 // g
  std::vector<std::shared_ptr<TwoMaps>> weights_;  // f_m
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::links, "links", "positions that a token reads in one step, itself included", at_least(0))
          .add(&Options::factors, "factors",
               "sparse factors of a layer (M); 0: the binary logarithm of the longest length, rounded up. links=0 are "
               "one more than factors",
               between(0, 40))
          .add(&Options::hidden, "hidden", "width between the two maps that make values and the links' weights",
               at_least(1))
          .add(&Options::residual, "residual",
               "what is added: a factor's input to its sums (factor), or the layer's values behind all factors (block)",
               one_of({"factor", "block"}))
          .add(&Options::mask_pads, "mask_pads", "zero padded positions in front of every factor; the code does not")
          .add(&Options::final_norm, "final_norm", "layer norm behind the last layer, whatever model.norm says");
  return kSchema;
}

const Schema<DilatedOptions>& dilated_schema() {
  static const Schema<DilatedOptions> kSchema = Schema<DilatedOptions>().include(schema());
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor chord;
  chord.name = "paramixer-chord";
  chord.title = "Paramixer, chord links";
  chord.paper =
      "Yu, Khalitov, Cheng, Yang: Paramixer: Parameterizing Mixing Links in Sparse Factors Works Better than "
      "Dot-Product Self-Attention, 2022";
  chord.method_class = "FP";
  chord.summary =
      "A layer that multiplies values by log n sparse matrices, whose entries two maps of the input give; each place "
      "is "
      "linked to those 1, 2, 4, ... further on.";
  chord.complexity = Complexity::kLinearithmic;
  chord.traits = {.fixed_length = true, .carries = true};
  chord.options = schema().options();
  chord.tensors = {{"value.in.weight", "first map of g, which makes values [H, m]"},
                   {"value.in.bias", "of the first map of g [H]"},
                   {"value.out.weight", "second map of g [m, H]"},
                   {"value.out.bias", "of the second map of g [m]"},
                   {"in.weight", "first map of f_m, which makes the weights of factor m's links [H, m]"},
                   {"in.bias", "of the first map of f_m [H]"},
                   {"out.weight", "second map of f_m, a row for each link [P, H]"},
                   {"out.bias", "of the second map of f_m [P]"}};
  chord.check = [](const Json& options, int64_t) {
    const int64_t links = options.at("links");
    XF_CHECK(links <= 41, UserError, "attention.links: chord's steps double, expected at most 41, got {}", links);
  };
  chord.build_block = [](const Json& options, const BuildContext& context) {
    return std::make_shared<ParamixerBlock>(schema().read(options), /*dilated=*/false, context);
  };

  Descriptor dilated = chord;
  dilated.name = "paramixer-cdil";
  dilated.title = "Paramixer, dilated links";
  dilated.summary =
      "A layer that multiplies values by log n sparse matrices, whose entries two maps of the input give; each place "
      "is "
      "linked to neighbours on both sides, twice as far apart in every factor.";
  dilated.options = dilated_schema().options();
  dilated.check = [](const Json& options, int64_t) {
    const int64_t links = options.at("links");
    XF_CHECK(links % 2 == 1, UserError,
             "attention.links: paramixer-cdil has as many links on either side and the place itself, expected an odd "
             "number, got {}",
             links);
  };
  dilated.build_block = [](const Json& options, const BuildContext& context) {
    return std::make_shared<ParamixerBlock>(dilated_schema().read(options), /*dilated=*/true, context);
  };
  return {chord, dilated};
}

}  // namespace xformer::attention::variants::paramixer
