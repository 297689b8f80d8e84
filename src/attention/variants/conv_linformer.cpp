// Linformer by convolution ("Effective transformers", slides): Linformer's k mixtures of keys and values come from a
// convolution whose kernel is as long as its stride s, instead of a matrix over the whole sequence:
//   O = softmax(Q K'^T / sqrt(d)) V',   K' = conv(K), V' = conv(V) with a kernel each,   s = ceil(N_max / k)
// Padded tokens are zero in the convolution; a window without a valid token is no key. The slides leave the channels
// open (attention-core 3.10): `full` maps d channels to d, `depthwise` keeps them apart, `scalar` has one number per
// place of the window, which is Linformer's matrix with equal shifted rows. All heads share the kernels.
// The stride is fixed when the core is built, so appended padding changes nothing and a roll by s rolls the mixtures.
// A constant value stays constant over whole windows, but comes out as the kernel maps it, not as itself.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attention/descriptor.h"
#include "kernels/attention/attention.h"
#include "tensor/parts.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::conv_linformer {

struct Options {
  int64_t projected_len = 128;
  std::string conv = "full";
};

class ConvLinformerCore : public AttentionCore {
 public:
  ConvLinformerCore(const Options& options, const BuildContext& context)
      : full_(options.conv == "full"), dropout_(context.make_dropout()) {
    XF_ASSERT(context.max_len > 0, "conv-linformer needs the longest length when it is built");
    stride_ = pooled_len(context.max_len, std::min(options.projected_len, context.max_len));
    const int64_t d = context.head_dim;
    std::vector<int64_t> shape{stride_};
    if (options.conv != "scalar") shape.push_back(d);
    if (full_) shape.push_back(d);
    const double bound = 1 / std::sqrt(static_cast<double>(full_ ? stride_ * d : stride_));  // LibTorch's for Conv1d
    for (Convolution* each : {&key_, &value_}) {
      const std::string name = each == &key_ ? "conv_key" : "conv_value";
      each->kernel = register_parameter(name, context.init.uniform(name, shape, -bound, bound));
      // The scalar form is a matrix over the sequence, which has no bias.
      if (options.conv == "scalar") continue;
      each->bias = register_parameter(name + "_bias", context.init.uniform(name + "_bias", {d}, -bound, bound));
    }
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    const at::Tensor short_k = convolve(k, mask, key_), short_v = convolve(v, mask, value_);  // [b,h,k',d]
    probe("short_k", short_k), probe("short_v", short_v);
    kernels::AttentionOptions options;
    options.scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    options.mask = mask.pooled(stride_);
    options.query_valid = mask.query_valid(q.size(2));
    options.dropout = dropout_.place(is_training());
    return kernels::attention(q, short_k, short_v, options);
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }

  // 2 Z n d^2 for each full convolution (2 Z n d for the others), 4 Z n k' d for scores and mixing. Kept are q, the
  // windows of k and v, their mixtures, the output and a log-sum for each row.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const double rows = static_cast<double>(pooled_len(shape.key_len, stride_));
    const double per_token = 4 * z * d * (full_ ? d : 1), n = static_cast<double>(shape.query_len);
    const double keys = static_cast<double>(shape.key_len);
    const double pairs = 4 * z * n * rows * d;
    return {per_token * rows * static_cast<double>(stride_) + pairs, per_token * keys + pairs,
            z * (2 * d * (n + keys + rows) + n)};
  }

  [[nodiscard]] std::string backend() const override { return fmt::format("explicit, stride {}", stride_); }

 private:
  struct Convolution {
    at::Tensor kernel;  // [s,d,d], [s,d] or [s]
    at::Tensor bias;    // [d] or undefined
  };

  // [b,h,n,d] -> [b,h,k',d]
  [[nodiscard]] at::Tensor convolve(const at::Tensor& x, const SequenceMask& mask, const Convolution& with) const {
    const int64_t b = x.size(0), h = x.size(1), n = x.size(2), d = x.size(3), rows = pooled_len(n, stride_);
    const at::Tensor valid = mask.all_valid() ? x : x * mask.as_factor(x.scalar_type());
    const at::Tensor windows = with_zeros_behind(valid, 2, rows * stride_ - n).unflatten(2, {rows, stride_});
    at::Tensor mixed;
    if (full_) {
      mixed = at::matmul(windows.flatten(3), with.kernel.flatten(0, 1));
    } else {  // one product per channel: [d, b h k', s] x [d, s, 1]
      const at::Tensor kernel = (with.kernel.dim() == 1 ? with.kernel.unsqueeze(-1) : with.kernel).expand({stride_, d});
      const at::Tensor channels = windows.permute({4, 0, 1, 2, 3}).reshape({d, b * h * rows, stride_});
      mixed = at::bmm(channels, kernel.t().unsqueeze(-1)).view({d, b, h, rows}).permute({1, 2, 3, 0});
    }
    return with.bias.defined() ? mixed + with.bias : mixed;
  }

  bool full_;
  int64_t stride_ = 1;
  kernels::Dropout dropout_;
  Convolution key_, value_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::projected_len, "projected_len",
               "length that keys and values are brought to (k); at most the sequence's", at_least(1))
          .add(&Options::conv, "conv",
               "channels of the convolution over the sequence: full (d to d), depthwise (each by itself), scalar (one "
               "kernel for all)",
               one_of({"full", "depthwise", "scalar"}));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "conv-linformer";
  result.title = "Linformer by convolution";
  result.paper = "Wang, Li, Khabsa, Fang, Ma: Linformer, 2020; with convolutions in Effective transformers (slides)";
  result.method_class = "LR";
  result.summary = "Brings keys and values to a fixed length by a convolution whose kernel is as long as its stride.";
  result.complexity = Complexity::kLinear;
  result.traits = {.cross_ok = true, .fixed_length = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  const std::string layout =
      " [s, d in, d out] (full), [s, d] (depthwise) or [s] (scalar), s = ceil(N_max / k); the same for all heads";
  result.tensors = {{"conv_key", "kernel over each window of s keys" + layout},
                    {"conv_key_bias", "added to each mixed key [d]; softmax does not see it"},
                    {"conv_value", "kernel over each window of s values" + layout},
                    {"conv_value_bias", "added to each mixed value [d]"}};
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<ConvLinformerCore>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::conv_linformer
