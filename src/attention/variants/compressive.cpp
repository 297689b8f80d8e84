// Compressive Transformer: Rae, Potapenko, Jayakumar, Hillier, Lillicrap, "Compressive Transformers for Long-Range
// Sequence Modelling", ICLR 2020, section 3. Transformer-XL (transformer_xl.cpp) with a second, coarser memory in front
// of the first: what falls out of the memory is brought to c times fewer rows and kept.
//   h~ = [compressed; memory; h]       slots count as one step each
//   old = the n oldest rows of [memory; h],  memory' = the others,  compressed' = the last rows of [compressed; f(old)]
// f, by `compressor` (section 3.1): the mean or maximum of c rows, a convolution with kernel and stride c,
// the same with its taps two rows apart (dilated), or the n / c rows that were attended to most (most_used), in order.
// The gradient stops at both memories, so that f learns from a loss of its own (section 3.2, Algorithm 2): in every
// layer, with q, k and v as its maps make them, which do not learn from it,
//   mean square of  softmax(q k(old)^T / sqrt(d)) v(old)  -  softmax(q k(f(old))^T / sqrt(d)) v(f(old))
// Open in the paper, and decided in attention-more 6: that loss has no position terms and is the mean over numbers; a
// row of `old` that is no token is zero in a convolution, no member of a mean, a maximum or a choice, and a slot
// without any is no key; where c does not divide n the first slot has fewer rows.
#include <ATen/Functions.h>

#include <cmath>

#include "attention/descriptor.h"
#include "attention/shared/full_precision.h"
#include "attention/shared/relative_attention.h"
#include "tensor/closed_keys.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::compressive {

struct Options : RelativeOptions {
  int64_t compressed_memory = 512;
  int64_t compression_rate = 4;
  std::string compressor = "conv";
  double reconstruction_weight = 1;
};

class CompressiveMixer : public RelativeMixer {
 public:
  CompressiveMixer(const Options& options, const BuildContext& context)
      : RelativeMixer(options, context),
        options_(options),
        memory_(causal_ ? options.memory : 0),
        slots_(causal_ ? options.compressed_memory : 0) {
    if (slots_ > 0 && learned())
      compress_ = register_module(
          "compress", std::make_shared<Linear>(options.compression_rate * model_dim_, model_dim_, /*bias=*/true,
                                               context.init_scheme, context.init.child("compress")));
  }

  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry& carry) override {
    loss_ = at::Tensor();
    const Past memory = found_past(layer_ + "memory", carry), compressed = found_past(layer_ + "compressed", carry);
    const Attended read = attend(x, joined(compressed, memory), mask, /*farthest=*/0, carry);
    if (memory.length() + compressed.length() == 0) return read.out;
    const int64_t n = x.size(1), before = compressed.length();
    const Past recent = joined(memory, rows_of(x, mask));
    if (memory.length() > 0) leave_past(layer_ + "memory", part(recent, n, memory.length()), carry);
    if (before == 0) return read.out;
    const Past old = part(recent, 0, n);
    at::Tensor use;  // [b,n]: how much rows of the segment attended to each
    if (options_.compressor == "most_used")
      use = mask.zero_padding(read.weights.detach()).narrow(3, before, n).sum({1, 2});
    const Past fresh = compress(old, use);
    if (compress_ && is_training() && options_.reconstruction_weight > 0)
      loss_ = options_.reconstruction_weight * reconstruction(read, before, old, fresh);
    const Past all = joined(compressed, {fresh.rows.detach(), fresh.valid});
    leave_past(layer_ + "compressed", part(all, fresh.length(), before), carry);
    return read.out;
  }

  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    Cost result = attend_cost(batch, length, memory_ + slots_, 0);
    if (!compress_) return result;
    const double rows = static_cast<double>(batch * pooled_len(length, options_.compression_rate));
    const double flops = 2 * rows * static_cast<double>(options_.compression_rate * model_dim_ * model_dim_);
    result += {flops, flops, 0};
    return result;
  }

  at::Tensor extra_loss() override { return loss_; }

  void init_state(int64_t batch, State& state) const override {
    if (memory_ > 0) init_past(layer_ + "memory", batch, memory_, query_->weight, state);
    if (slots_ > 0) init_past(layer_ + "compressed", batch, slots_, query_->weight, state);
  }

 private:
  [[nodiscard]] bool learned() const { return options_.compressor == "conv" || options_.compressor == "dilated"; }

  // f: [b,n,m] -> [b, ceil(n / c), m].
  [[nodiscard]] Past compress(const Past& old, const at::Tensor& use) const {
    const int64_t n = old.length(), c = options_.compression_rate, slots = pooled_len(n, c), missing = slots * c - n;
    const std::string& function = options_.compressor;
    if (function == "most_used") {
      // Rows that are no token are taken last; the order of time is kept.
      const at::Tensor rank =
          use.masked_fill(old.valid.logical_not(), -1).argsort(/*stable=*/true, 1, /*descending=*/true);
      const at::Tensor places = std::get<0>(rank.narrow(1, 0, slots).sort(1));
      return {old.rows.gather(1, places.unsqueeze(-1).expand({-1, -1, model_dim_})), old.valid.gather(1, places)};
    }
    const at::Tensor valid = at::constant_pad_nd(old.valid, {missing, 0}).unflatten(1, {slots, c});  // [b,slots,c]
    const Past result{{}, valid.any(2)};
    const auto windows = [&](const at::Tensor& rows) {
      return at::constant_pad_nd(rows, {0, 0, missing, 0}).unflatten(1, {slots, c});
    };
    if (function == "max") {
      const double lowest = lowest_score(old.rows.scalar_type());
      const at::Tensor most = windows(old.rows).masked_fill(valid.logical_not().unsqueeze(-1), lowest).amax(2);
      return {most.masked_fill(result.valid.logical_not().unsqueeze(-1), 0), result.valid};
    }
    const at::Tensor rows = at::where(old.valid.unsqueeze(-1), old.rows, 0);
    if (function == "mean")
      return {windows(rows).sum(2) / valid.sum(2).clamp_min(1).unsqueeze(-1).to(rows.scalar_type()), result.valid};
    if (function == "conv") return {compress_->forward(windows(rows).flatten(2)), result.valid};
    // A slot's taps are c rows, each two after the other, up to the last of its own.
    const at::Tensor taps =
        at::constant_pad_nd(rows, {0, 0, missing + c - 1, 0}).unfold(1, 2 * c - 1, c).slice(3, 0, std::nullopt, 2);
    return {compress_->forward(taps.transpose(2, 3).flatten(2)), result.valid};
  }

  // What the segment's rows would have read of `old`, against what they read of `fresh`; learned from by f alone.
  [[nodiscard]] at::Tensor reconstruction(const Attended& read, int64_t before, const Past& old,
                                          const Past& fresh) const {
    const auto fixed = [](const Linear& map) {
      return kernels::LinearMap{map.weight.detach(), map.bias.defined() ? map.bias.detach() : at::Tensor()};
    };
    const std::vector<at::Tensor> rows = kernels::linear(fresh.rows, {fixed(*key_), fixed(*value_)});
    const FullPrecision full(fresh.rows.device().type());
    const at::Tensor q = read.q.detach() / std::sqrt(static_cast<double>(head_dim_));
    const auto attended = [&](const at::Tensor& k, const at::Tensor& v, const at::Tensor& valid) {
      return at::matmul(masked_softmax(at::matmul(q, k.transpose(-1, -2)), {valid}), v);
    };
    const at::Tensor meant = attended(read.k.detach().narrow(2, before, old.length()),
                                      read.v.detach().narrow(2, before, old.length()), old.valid);
    return (attended(split(full(rows[0])), split(full(rows[1])), fresh.valid) - meant).square().mean();
  }

  const Options options_;
  const int64_t memory_, slots_;
  std::shared_ptr<Linear> compress_;  // f, of c rows side by side [c m -> m]; undefined where it learns nothing
  at::Tensor loss_;                   // of the last forward pass in training
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add<int64_t>(&Options::memory, "memory", kMemoryHelp, at_least(0))
          .add<int64_t>(&Options::clamp, "clamp", kClampHelp, at_least(0))
          .add(&Options::compressed_memory, "compressed_memory",
               "slots that each layer keeps of what fell out of its memory; 0: none", at_least(0))
          .add(&Options::compression_rate, "compression_rate", "rows of the memory that become one slot (c)",
               at_least(1))
          .add(&Options::compressor, "compressor",
               "mean or max of the rows; conv: a learned map of all of them; dilated: of every other row, as many; "
               "most_used: the rows that were attended to most",
               one_of({"mean", "max", "conv", "dilated", "most_used"}))
          .add(&Options::reconstruction_weight, "reconstruction_weight",
               "added to the loss, so many times: how far attention to slots is from attention to their rows, in every "
               "layer; 0: a learned compression stays as it began",
               at_least(0));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "compressive";
  result.aliases = {"compressive-transformer"};
  result.title = "Compressive Transformer";
  result.paper =
      "Rae, Potapenko, Jayakumar, Hillier, Lillicrap: Compressive Transformers for Long-Range Sequence Modelling, 2020";
  result.method_class = "RC";
  result.summary = "Transformer-XL with a second memory: what falls out of the first is compressed and kept longer.";
  result.complexity = Complexity::kQuadratic;
  result.traits = {.causal_ok = true, .carries = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.tensors = relative_meanings();
  result.tensors.push_back({"compress.weight", "f: c rows side by side, the oldest first, to a slot [m, c m]"});
  result.tensors.push_back({"compress.bias", "of f [m]"});
  result.build_mixer = [](const Json& options, const BuildContext& context) {
    return std::make_shared<CompressiveMixer>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::compressive
