// Nystromformer: Xiong, Zeng, Chakraborty, Tan, Fung, Li, Singh, "Nystromformer: A Nystrom-Based Algorithm for
// Approximating Self-Attention", AAAI 2021:
//   O = F1 Z (F3 V) + conv(V),   F1 = softmax(Q K~^T), F2 = softmax(Q~ K~^T), F3 = softmax(Q~ K^T)  (times d^(-1/2))
//   Z ~ pseudo-inverse of F2:   Z <- Z (13 I - F2 Z (15 I - F2 Z (7 I - F2 Z))) / 4,   Z_0 = F2^T / (|F2|_1 |F2|_inf)
// Q~ and K~ are means of m segments of the sequence, conv a depthwise convolution along it, one kernel per head.
// Masks: means are over valid tokens; a segment without one is no landmark. Norms are of each matrix by itself (the
// published code takes the largest of the batch); |F2|_inf is 1, since rows of F2 sum to 1.
// Dropout acts on F1 and F3, whose columns and rows are tokens; F2 is inverted as it is.
// The convolution is a product of blocks of rows with a band of the kernel: LibTorch's own ends the process for some
// strides on a CPU (pytorch issue 195394), and this one has the precision of all products here.
#include <algorithm>
#include <cmath>

#include "attention/descriptor.h"
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
    const double scale = std::pow(static_cast<double>(q.size(-1)), -0.25);
    const at::Tensor mixed = attend(q * scale, k * scale, v, mask);
    if (!conv_.defined()) return mixed;
    return mixed + convolve(mask.all_valid() ? v : v * mask.as_factor(v.scalar_type()));
  }

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
    const Blocks blocks = blocks_of(shape.query_len);
    result.flops_executed += 2 * z * d * static_cast<double>(blocks.count * blocks.rows * blocks.columns);
    result.flops_pattern += 2 * z * d * n * static_cast<double>(options_.conv_kernel);
    return result;
  }

 private:
  [[nodiscard]] int64_t segment_of(int64_t n) const { return pooled_len(n, std::min(options_.landmarks, n)); }
  [[nodiscard]] int64_t landmarks_of(int64_t n) const { return pooled_len(n, segment_of(n)); }

  // Blocks of rows of the convolution, and the tokens that each reads.
  struct Blocks {
    int64_t count, rows, columns;
  };
  [[nodiscard]] Blocks blocks_of(int64_t n) const {
    const int64_t count = (n + 31) / 32, rows = (n + count - 1) / count;
    return {count, rows, rows + options_.conv_kernel - 1};
  }

  // [b,h,n,d] -> [b,h,n,d]: each row is the middle of its window, with zeros outside the sequence.
  [[nodiscard]] at::Tensor convolve(const at::Tensor& v) const {
    const int64_t b = v.size(0), h = v.size(1), n = v.size(2), d = v.size(3), half = options_.conv_kernel / 2;
    const auto [count, rows, columns] = blocks_of(n);
    // Row r of the band is the kernel moved by r: lines one longer than the band's, read in lines of the band's length.
    const at::Tensor line = at::constant_pad_nd(conv_.view({h, 1, options_.conv_kernel}), {0, rows});
    const at::Tensor band = line.expand({h, rows, columns + 1}).flatten(1).narrow(1, 0, rows * columns);
    const at::Tensor tokens = at::constant_pad_nd(v, {0, 0, half, count * rows - n + half}).unfold(2, columns, rows);
    const at::Tensor windows = tokens.permute({1, 4, 0, 2, 3}).reshape({h, columns, b * count * d});
    const at::Tensor mixed = at::bmm(band.view({h, rows, columns}), windows).view({h, rows, b, count, d});
    return mixed.permute({2, 0, 3, 1, 4}).flatten(2, 3).narrow(2, 0, n);
  }

  // q and k are scaled by d^(-1/4).
  [[nodiscard]] at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const SequenceMask& mask) const {
    const int64_t segment = segment_of(q.size(2));
    if (segment == 1) {
      const at::Tensor weights = masked_softmax(at::matmul(q, k.transpose(-1, -2)), mask);  // [b,h,n,n]
      probe("weights", weights);
      return at::matmul(dropout_rows_(weights, is_training()), v);
    }
    const SequenceMask landmarks = mask.pooled(segment);
    const at::Tensor short_q = pool_tokens(q, mask, segment), short_k = pool_tokens(k, mask, segment);  // [b,h,m,d]
    const at::Tensor f1 = masked_softmax(at::matmul(q, short_k.transpose(-1, -2)), landmarks);          // [b,h,n,m]
    const at::Tensor f3 = masked_softmax(at::matmul(short_q, k.transpose(-1, -2)), mask);               // [b,h,m,n]
    at::Tensor f2 = masked_softmax(at::matmul(short_q, short_k.transpose(-1, -2)), landmarks);          // [b,h,m,m]
    // Zero rows and columns stay zero in the inverse, which takes such rows out of f3.
    if (!landmarks.all_valid()) f2 = f2 * landmarks.as_factor(f2.scalar_type());
    const at::Tensor inverse = pseudo_inverse(f2.flatten(0, 1)).view(f2.sizes());
    probe("f1", f1), probe("f2", f2), probe("f3", f3), probe("inverse", inverse);
    const at::Tensor short_v = at::matmul(dropout_columns_(f3, is_training()), v);  // [b,h,m,d]
    return at::matmul(dropout_rows_(f1, is_training()), at::matmul(inverse, short_v));
  }

  // [z,m,m] -> [z,m,m]; a matrix of zeros gives zeros.
  [[nodiscard]] at::Tensor pseudo_inverse(const at::Tensor& f2) const {
    const at::Tensor norm = f2.sum(1, /*keepdim=*/true).amax(2, /*keepdim=*/true);  // [z,1,1]
    at::Tensor inverse = f2.transpose(1, 2) / norm.masked_fill(norm == 0, 1);
    const at::Tensor one = at::eye(f2.size(1), f2.options());
    for (int64_t i = 0; i < options_.inverse_iterations; ++i) {
      const at::Tensor near_one = at::bmm(f2, inverse);
      at::Tensor factor = at::baddbmm(15 * one, near_one, 7 * one - near_one, 1, -1);
      factor = at::baddbmm(13 * one, near_one, factor, 1, -1);
      inverse = at::bmm(inverse, factor) / 4;
    }
    return inverse;
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
