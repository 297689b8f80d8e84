// Performer: Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, positive orthogonal features
// (lemma 1 and section 2.4) of the softmax kernel:
//   phi(x) = exp(omega x' - |x'|^2 / 2 - c) + 1e-4,   x' = x / d^(1/4),   omega [m, d]
//   o_i = phi(q_i)^T S / phi(q_i)^T z,   S = sum_j phi(k_j) v_j^T,   z = sum_j phi(k_j)   over valid keys
// The factor m^(-1/2) of the paper cancels and is left out. The stabiliser c is the largest omega x': over the
// features of a row for queries, over features and valid keys of a head for keys; in the causal form over the keys up
// to the row, so that row i equals the bidirectional form on the first i + 1 tokens.
// `performer-relu` is the paper's generalized attention (section 2.2, performer-ReLU of section 4) with features
//   phi(x) = relu(omega x') + 1e-3,   or relu(x) + 1e-3 with neither projection nor scale (relu-identity, m = d)
#include <ATen/OpMathType.h>

#include <cmath>

#include "attention/descriptor.h"
#include "attention/shared/kernel_sums.h"
#include "attention/shared/random_features.h"

namespace xformer::attention::variants::performer {

constexpr double kFloor = 1e-4;  // added to every feature
constexpr double kReluFloor = 1e-3;

struct Options {
  int64_t features = 256;
  int64_t redraw = 0;
  bool double_scale = false;
};

struct ReluOptions {
  std::string kernel = "relu";
  int64_t features = 256;
  int64_t redraw = 0;
};

// Rows of stacked orthogonal d x d blocks, each with the length of a fresh Gaussian row: [features, d].
// Gram and Schmidt with positive factors, run twice, makes a block uniform among rotations, which LAPACK's QR with its
// own signs would not be; and it gives the same bits everywhere.
at::Tensor orthogonal_features(Stream numbers, int64_t features, int64_t d) {
  at::Tensor result = at::empty({features, d}, at::kDouble);
  double* rows = result.data_ptr<double>();
  const auto dot = [d](const double* a, const double* b) {
    double sum = 0;
    for (int64_t i = 0; i < d; ++i) sum += a[i] * b[i];
    return sum;
  };
  for (int64_t r = 0; r < features; ++r) {
    double* row = rows + r * d;
    for (int64_t i = 0; i < d; ++i) row[i] = next_normal(numbers);
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t other = r / d * d; other < r; ++other) {
        const double* unit = rows + other * d;
        const double share = dot(row, unit);
        for (int64_t i = 0; i < d; ++i) row[i] -= share * unit[i];
      }
    const double length = std::sqrt(dot(row, row));
    for (int64_t i = 0; i < d; ++i) row[i] /= length;
  }
  for (int64_t r = 0; r < features; ++r) {
    double square = 0;
    for (int64_t i = 0; i < d; ++i) {
      const double number = next_normal(numbers);
      square += number * number;
    }
    for (int64_t i = 0; i < d; ++i) rows[r * d + i] *= std::sqrt(square);
  }
  return result.to(at::kFloat);
}

// omega of a layer.
RandomFeatures features_of(int64_t features, int64_t redraw, const BuildContext& context) {
  return RandomFeatures("performer", "omega", redraw, context, [features, d = context.head_dim](Stream numbers) {
    return orthogonal_features(std::move(numbers), features, d);
  });
}

// Projecting queries and keys to m features, and the sums of kernel attention.
Cost kernel_cost(const Shape& shape, int64_t features, bool projected, bool causal) {
  const double z = static_cast<double>(shape.batch * shape.heads), m = static_cast<double>(features);
  const double rows = static_cast<double>(shape.query_len + shape.key_len), d = static_cast<double>(shape.head_dim);
  const double projection = projected ? 2 * z * rows * d * m : 0;
  Cost result = feature_attention_cost(shape, features, shape.head_dim + 1, causal);
  result.flops_executed += projection;
  result.flops_pattern += projection;
  return result;
}

class PerformerCore : public AttentionCore, public DecodingCore {
 public:
  PerformerCore(const Options& options, const BuildContext& context)
      : options_(options), causal_(context.causal), features_(features_of(options.features, options.redraw, context)) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    return feature_attention(q, k, v, mask, features(q));
  }

  at::Tensor decode(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const DecodingStep& step,
                    State& kept) override {
    return decode_features(q, k, v, features(q), step, kept);
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }
  [[nodiscard]] bool takes_half_on_devices(const at::Tensor& /*q*/) const override { return true; }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    return kernel_cost(shape, options_.features, /*projected=*/true, causal_);
  }

  void after_step(int64_t step) override { features_.after_step(step); }

 private:
  [[nodiscard]] kernels::FeatureAttentionOptions features(const at::Tensor& q) const {
    kernels::FeatureAttentionOptions options;
    options.map = kernels::FeatureMap::kSoftmax;
    options.omega = features_.omega.to(at::toOpMathType(q.scalar_type()));
    // exp(q k / sqrt(d)) needs d^(-1/4) on both; mlpen's code scaled twice, which gives exp(q k / d).
    options.scale = std::pow(static_cast<double>(q.size(-1)), options_.double_scale ? -0.5 : -0.25);
    options.floor = kFloor;
    return options;
  }

  Options options_;
  bool causal_;
  RandomFeatures features_;
};

class ReluCore : public AttentionCore, public DecodingCore {
 public:
  ReluCore(const ReluOptions& options, const BuildContext& context)
      : projected_(options.kernel == "relu"), causal_(context.causal), size_(context.head_dim) {
    if (!projected_) return;
    size_ = options.features;
    features_ = features_of(options.features, options.redraw, context);
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    return feature_attention(q, k, v, mask, features(q));
  }

  at::Tensor decode(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const DecodingStep& step,
                    State& kept) override {
    return decode_features(q, k, v, features(q), step, kept);
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }
  [[nodiscard]] bool takes_half_on_devices(const at::Tensor& /*q*/) const override { return true; }

  [[nodiscard]] Cost cost(const Shape& shape) const override { return kernel_cost(shape, size_, projected_, causal_); }

  void after_step(int64_t step) override { features_.after_step(step); }

 private:
  [[nodiscard]] kernels::FeatureAttentionOptions features(const at::Tensor& q) const {
    kernels::FeatureAttentionOptions options;
    options.map = kernels::FeatureMap::kRelu;
    options.floor = kReluFloor;
    if (projected_) {
      options.omega = features_.omega.to(at::toOpMathType(q.scalar_type()));
      options.scale = std::pow(static_cast<double>(q.size(-1)), -0.25);
    }
    return options;
  }

  bool projected_, causal_;
  int64_t size_;  // m
  RandomFeatures features_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::features, "features", kFeaturesHelp, at_least(1))
          .add(&Options::redraw, "redraw", kRedrawHelp, at_least(0))
          .add(
              &Options::double_scale, "double_scale",
              "scale queries and keys twice, as the mlpen code does: approximates softmax(q k / d), not q k / sqrt(d)");
  return kSchema;
}

const Schema<ReluOptions>& relu_schema() {
  static const Schema<ReluOptions> kSchema =
      Schema<ReluOptions>()
          .add(&ReluOptions::kernel, "kernel", "what weighs keys: features of queries and keys (phi), or softmax",
               one_of({"relu", "relu-identity"}))
          .add(&ReluOptions::features, "features", kFeaturesHelp, at_least(1))
          .add(&ReluOptions::redraw, "redraw", kRedrawHelp, at_least(0));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "performer";
  result.title = "Performer (FAVOR+)";
  result.paper =
      "Choromanski, Likhosherstov, Dohan, Song, Gane, Sarlos, Hawkins, Davis, Mohiuddin, Kaiser, Belanger, "
      "Colwell, Weller: Rethinking Attention with Performers, 2021";
  result.method_class = "KR";
  result.summary =
      "Estimates the softmax kernel by positive orthogonal random features, then sums keys and values once.";
  result.complexity = Complexity::kLinear;
  result.traits = {.causal_ok = true, .cross_ok = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.tensors = {{"performer_omega", "omega: one random feature a row, the same for all heads [m, d]"}};
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<PerformerCore>(schema().read(options), context);
  };

  Descriptor relu = result;
  relu.name = "performer-relu";
  relu.title = "Performer (generalized attention, ReLU)";
  relu.summary = "Random features passed through ReLU, or ReLU alone, in place of the softmax kernel.";
  relu.options = relu_schema().options();
  relu.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<ReluCore>(relu_schema().read(options), context);
  };
  return {result, relu};
}

}  // namespace xformer::attention::variants::performer
