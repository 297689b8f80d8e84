// A small residual network of convolutions for grey images whose pixels are the sequence: the check that a set of
// images can be learnt at all (lra-recipe 10.7), and a baseline without attention.
//
//   3x3 convolution, then stages of two residual blocks, each stage at half the side and twice the width (at most four
//   times) until the side is 8 or less; mean over places, a linear map. A block: norm, ReLU, 3x3, norm, ReLU, 3x3, sum
//   (He et al., "Identity mappings in deep residual networks", 2016), with group norm (Wu, He 2018).
#include <ATen/Functions.h>

#include <cmath>

#include "attention/multi_head.h"
#include "models/model.h"
#include "tensor/probe.h"

namespace xformer::models::families::cnn {

constexpr int64_t kBlocks = 2, kWidestTimes = 4, kGroups = 4, kLastSide = 8, kStemSide = 32;

struct Options {
  int64_t width = 32;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema = Schema<Options>().add(
      &Options::width, "width", "channels of the first stage, a multiple of 4", between(kGroups, 4096));
  return kSchema;
}

int64_t side_of(int64_t places) { return std::lround(std::sqrt(static_cast<double>(places))); }

class Cnn : public Model {
 public:
  Cnn(const Options& options, const ModelRequest& request)
      : Model(request.seed), side_(side_of(request.input.max_tokens)) {
    const InitStream init(request.seed);
    int64_t width = options.width, side = side_;
    // Large images are halved at once: most of the work would be in their first stage.
    stem_ = convolution("stem", 1, width, 3, side > kStemSide ? 2 : 1, init);
    side = halved(side, stem_.stride);
    for (int64_t stage = 0; stage == 0 || side > kLastSide; ++stage) {
      const int64_t wider = stage == 0 ? width : std::min(2 * width, kWidestTimes * options.width);
      for (int64_t i = 0; i < kBlocks; ++i) {
        const std::string name = fmt::format("stage{}_block{}_", stage, i);
        const int64_t in = i == 0 ? width : wider, stride = stage > 0 && i == 0 ? 2 : 1;
        Block block;
        block.first_norm = norm(name + "first_norm", in);
        block.first = convolution(name + "first", in, wider, 3, stride, init);
        block.second_norm = norm(name + "second_norm", wider);
        block.second = convolution(name + "second", wider, wider, 3, 1, init);
        if (stride > 1 || in != wider) block.shortcut = convolution(name + "shortcut", in, wider, 1, stride, init);
        blocks_.push_back(block);
        side = halved(side, stride);
      }
      width = wider;
    }
    last_norm_ = norm("last_norm", width);
    output_ = register_module(
        "classifier_out",
        std::make_shared<attention::Linear>(width, request.outputs, true, "mlpen", init.child("classifier_out")));
  }

  at::Tensor forward(const ModelInput& input, State&) override {
    const at::ScalarType type = output_->weight.scalar_type();
    at::Tensor x = input.tokens.to(type).view({-1, 1, side_, side_}) / 127.5 - 1;
    x = apply(stem_, x);
    probe("embedding", x);
    for (const Block& block : blocks_) {
      const at::Tensor inner = at::relu(apply(block.first_norm, x));
      const at::Tensor branch = apply(block.second, at::relu(apply(block.second_norm, apply(block.first, inner))));
      x = (block.shortcut.weight.defined() ? apply(block.shortcut, inner) : x) + branch;
    }
    x = at::relu(apply(last_norm_, x)).mean({2, 3});
    probe("pooled", x);
    const at::Tensor logits = output_->forward(x).to(at::promote_types(type, at::kFloat));
    probe("logits", logits);
    return logits;
  }

  // The convolutions' products, and the head's.
  [[nodiscard]] attention::Cost cost(int64_t batch, int64_t) const override {
    double flops = 0, elements = 0;
    int64_t side = side_;
    const auto add = [&](const Convolution& one, int64_t out_side) {
      const auto places = static_cast<double>(batch * out_side * out_side);
      flops += 2 * places * static_cast<double>(one.weight.numel());
      elements += places * static_cast<double>(one.weight.size(0));
    };
    side = halved(side, stem_.stride);
    add(stem_, side);
    for (const Block& block : blocks_) {
      side = halved(side, block.first.stride);
      add(block.first, side);
      add(block.second, side);
      if (block.shortcut.weight.defined()) add(block.shortcut, side);
    }
    flops += 2 * static_cast<double>(batch * output_->weight.numel());
    return {flops, flops, elements};
  }

  [[nodiscard]] std::string backend() const override { return "library"; }

 private:
  struct Convolution {
    at::Tensor weight;  // [out, in, k, k]; no bias: a norm follows
    int64_t stride = 1;
  };
  struct Norm {
    at::Tensor weight, bias;
  };
  struct Block {
    Norm first_norm, second_norm;
    Convolution first, second, shortcut;
  };

  static int64_t halved(int64_t side, int64_t stride) { return (side + stride - 1) / stride; }

  Convolution convolution(const std::string& name, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                          const InitStream& init) {
    // He et al. 2015, for ReLU: variance 2 / fan-in.
    const double bound = std::sqrt(6.0 / static_cast<double>(in * kernel * kernel));
    return {register_parameter(name, init.uniform(name, {out, in, kernel, kernel}, -bound, bound)), stride};
  }
  Norm norm(const std::string& name, int64_t width) {
    return {register_parameter(name + "_weight", at::ones({width})),
            register_parameter(name + "_bias", at::zeros({width}))};
  }
  static at::Tensor apply(const Convolution& one, const at::Tensor& x) {
    const int64_t padding = one.weight.size(2) / 2;
    return at::conv2d(x, one.weight, {}, {one.stride, one.stride}, {padding, padding});
  }
  static at::Tensor apply(const Norm& one, const at::Tensor& x) {
    return at::group_norm(x, kGroups, one.weight, one.bias, 1e-5);
  }

  int64_t side_;
  Convolution stem_;
  std::vector<Block> blocks_;
  Norm last_norm_;
  std::shared_ptr<attention::Linear> output_;
};

std::vector<FamilyDescriptor> describe() {
  FamilyDescriptor cnn;
  cnn.name = "cnn";
  cnn.title = "CNN";
  cnn.summary = "Baseline without attention: a small residual network, for sequences that are grey images.";
  cnn.options = schema().options();
  cnn.takes_attention = false;
  cnn.padded_len = [](const Json&, int64_t max_tokens) { return max_tokens; };
  cnn.check = [](const ModelRequest& request) {
    const int64_t places = request.input.max_tokens, side = side_of(places),
                  width = schema().read(request.model_options).width;
    XF_CHECK(request.input.vocabulary == 256 && request.input.sequences == 1 && side * side == places, UserError,
             "the cnn family takes square grey images, a pixel a place; the task's examples are none");
    XF_CHECK(!request.causal, UserError, "the cnn family has no causal form: a convolution sees later pixels");
    XF_CHECK(width % kGroups == 0, UserError, "model.width: expected a multiple of {}, got {}", kGroups, width);
  };
  cnn.build = [](const ModelRequest& request) {
    return std::make_shared<Cnn>(schema().read(request.model_options), request);
  };
  return {cnn};
}

}  // namespace xformer::models::families::cnn
