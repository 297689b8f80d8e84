// Nystromformer: Xiong, Zeng, Chakraborty, Tan, Fung, Li, Singh, "Nystromformer: A Nystrom-Based Algorithm for
// Approximating Self-Attention", AAAI 2021:
//   O = F1 Z (F3 V) + conv(V),   F1 = softmax(Q K~^T), F2 = softmax(Q~ K~^T), F3 = softmax(Q~ K^T)  (times d^(-1/2))
//   Z ~ pseudo-inverse of F2:   Z <- Z (13 I - F2 Z (15 I - F2 Z (7 I - F2 Z))) / 4,   Z_0 = F2^T / (|F2|_1 |F2|_inf)
// Q~ and K~ are means of m segments of the sequence, conv a depthwise convolution along it, one kernel per head.
// Masks: means are over valid tokens; a segment without one is no landmark. Norms are of each matrix by itself (the
// published code takes the largest of the batch); |F2|_inf is 1, since rows of F2 sum to 1.
// Dropout acts on F1 and F3, whose columns and rows are tokens; F2 is inverted as it is.
// FLOPs of the convolution are those of its sums; where there is no kernel of ours it multiplies a band (up to 1.9
// times).
#include <algorithm>
#include <cmath>

#include "attention/descriptor.h"
#include "kernels/attention/attention.h"
#include "kernels/batched_product/batched_product.h"
#include "kernels/landmark_weights/landmark_weights.h"
#include "kernels/pooling/pooling.h"
#include "kernels/pseudo_inverse/pseudo_inverse.h"
#include "kernels/token_convolution/token_convolution.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::nystromformer {

struct Options {
  int64_t landmarks = 64;
  int64_t conv_kernel = 35;
  int64_t inverse_iterations = 6;
};

class NystromCore : public AttentionCore {
 public:
  NystromCore(const Options& options, const BuildContext& context)
      : options_(options), dropout_rows_(context.make_dropout()), dropout_columns_(context.make_dropout()) {
    const int64_t size = options.conv_kernel;
    if (size == 0) return;
    XF_CHECK(size % 2 == 1, UserError,
             "attention.conv_kernel: expected an odd length, which has a middle, or 0 for no convolution; got {}",
             size);
    const double bound = 1 / std::sqrt(static_cast<double>(size));  // LibTorch's for a convolution
    conv_ = register_parameter("conv", context.init.uniform("conv", {context.heads, 1, size, 1}, -bound, bound));
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    const at::Tensor mixed = attend(q, k, v, mask);
    return conv_.defined() ? kernels::convolve_tokens(mixed, v, conv_.view({conv_.size(0), -1}), mask) : mixed;
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }

  // Four products of n, m and d, two of m, m and d, four of m, m and m an iteration; 2 Z n d for each place of the
  // kernel. As many landmarks as tokens is softmax itself.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), n = static_cast<double>(shape.query_len);
    const double d = static_cast<double>(shape.head_dim), m = static_cast<double>(landmarks_of(shape.query_len));
    const double steps = static_cast<double>(options_.inverse_iterations);
    const bool exact = segment_of(shape.query_len) == 1;
    const double flops = z * (exact ? 4 * n * n * d : 8 * n * m * d + 4 * m * m * d + 8 * steps * m * m * m);
    Cost result{flops, flops, z * (exact ? 2 * n * n : 4 * n * m + 12 * m * m)};
    if (!conv_.defined()) return result;
    const double sums = 2 * z * d * n * static_cast<double>(options_.conv_kernel);
    result.flops_executed += sums;
    result.flops_pattern += sums;
    return result;
  }

 private:
  [[nodiscard]] int64_t segment_of(int64_t n) const { return pooled_len(n, std::min(options_.landmarks, n)); }
  [[nodiscard]] int64_t landmarks_of(int64_t n) const { return pooled_len(n, segment_of(n)); }

  [[nodiscard]] at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const SequenceMask& mask) const {
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    const int64_t segment = segment_of(q.size(2));
    kernels::AttentionOptions rows;  // of F1, and of softmax itself where every token is a landmark
    rows.scale = scale;
    rows.mask = mask.pooled(segment);
    rows.query_valid = mask.query_valid(q.size(2));
    rows.dropout = dropout_rows_.place(is_training());
    if (segment == 1) return kernels::attention(q, k, v, rows);

    const kernels::PooledBeside queries = kernels::pool_beside(q, mask, segment),
                                keys = kernels::pool_beside(k, mask, segment);
    const at::Tensor &short_q = queries.pooled, &short_k = keys.pooled;  // [b,h,m,d]
    // What is done with landmarks alone is in float.
    const at::Tensor f2 = kernels::landmark_weights(short_q, short_k, scale, rows.mask);  // [b,h,m,m]
    // What is no landmark has no row and column in the inverse, which takes such rows out of F3.
    const at::Tensor inverse = kernels::pseudo_inverse(f2, rows.mask, options_.inverse_iterations);
    probe("f2", f2), probe("inverse", inverse);

    kernels::AttentionOptions columns;  // of F3
    columns.scale = scale;
    columns.mask = mask;
    columns.query_valid = rows.mask.key_valid;
    columns.dropout = dropout_columns_.place(is_training());
    const auto named = [](const char* name, const auto& work) {
      const ProbeScope scope(name);
      return work();
    };
    const at::Tensor short_v =
        named("f3", [&] { return kernels::attention(short_q, keys.x, v, columns); });  // [b,h,m,d]
    return named("f1", [&] {
      return kernels::attention(queries.x, short_k,
                                kernels::batched_product(inverse, short_v.to(inverse.scalar_type())), rows);
    });
  }

  Options options_;
  kernels::Dropout dropout_rows_, dropout_columns_;  // of f1 and of f3
  at::Tensor conv_;                                  // [h,1,c,1] or undefined
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::landmarks, "landmarks",
               "segments whose mean queries and keys stand for all (m); as many as tokens is softmax", at_least(1))
          .add(&Options::conv_kernel, "conv_kernel",
               "length of the convolution of values along the sequence that is added, odd; 0 for none", at_least(0))
          .add(&Options::inverse_iterations, "inverse_iterations", "steps towards the pseudo-inverse", at_least(1));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "nystromformer";
  result.aliases = {"nystrom"};
  result.title = "Nystromformer";
  result.paper =
      "Xiong, Zeng, Chakraborty, Tan, Fung, Li, Singh: Nystromformer: A Nystrom-Based Algorithm for Approximating "
      "Self-Attention, 2021";
  result.method_class = "LR";
  result.summary = "Nystrom's approximation of softmax attention through landmarks, the means of segments.";
  result.complexity = Complexity::kLinear;
  result.options = schema().options();
  result.tensors = {{"conv", "kernel of each head's convolution of values along the sequence [heads, 1, length, 1]"}};
  result.dense_limit = Json{{"landmarks", int64_t{1} << 40}, {"conv_kernel", 0}};
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<NystromCore>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::nystromformer
