// The LSTM baseline (Hochreiter, Schmidhuber, "Long short-term memory", 1997): embedding, one or more layers, the state
// behind the last valid place, dropout, a linear map (attention-more 17).
#include <ATen/Functions.h>

#include "attention/multi_head.h"
#include "attention/shared/index_tables.h"
#include "models/event_input.h"
#include "tensor/probe.h"

namespace xformer::models::families::lstm {

struct Options {
  int64_t dim = 64, hidden = 128, layers = 1;
  double dropout = 0.1;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::dim, "dim", "width of the embedding", at_least(1))
          .add(&Options::hidden, "hidden", "width of the state", at_least(1))
          .add(&Options::layers, "layers", "layers, one upon the other", between(1, 10000))
          .add(&Options::dropout, "dropout", "dropout of the embedding and of the last state", fraction_below_one());
  return kSchema;
}

class Lstm : public Model {
 public:
  Lstm(const Options& options, const ModelRequest& request) : Model(request.seed), options_(options) {
    const InitStream init(request.seed);
    const auto linear = [&](const char* name, int64_t in, int64_t out) {
      return register_module(name, std::make_shared<attention::Linear>(in, out, true, "mlpen", init.child(name)));
    };
    if (request.input.vocabulary > 0)
      tokens_ = register_parameter("tokens", init.normal("tokens", {request.input.vocabulary, options.dim}, 1));
    else if (holds_events(request.input))
      events_ = register_module(
          "events", std::make_shared<EventInput>(request.input, options.dim, "mlpen", init.child("events")));
    else input_ = linear("input", request.input.width, options.dim);
    // LibTorch's order and initial values: four gates (input, forget, cell, output), U(+-1/sqrt(hidden)).
    const double bound = 1 / std::sqrt(static_cast<double>(options.hidden));
    for (int64_t layer = 0; layer < options.layers; ++layer) {
      const int64_t in = layer == 0 ? options.dim : options.hidden, gates = 4 * options.hidden;
      const auto add = [&](const std::string& name, at::IntArrayRef shape) {
        const std::string full = fmt::format("layer{}_{}", layer, name);
        weights_.push_back(register_parameter(full, init.uniform(full, shape, -bound, bound)));
      };
      add("input_weight", {gates, in});
      add("state_weight", {gates, options.hidden});
      add("input_bias", {gates});
      add("state_bias", {gates});
    }
    embedding_dropout_ = kernels::Dropout(options.dropout, dropout_stream());
    state_dropout_ = kernels::Dropout(options.dropout, dropout_stream());
    output_ = linear("classifier_out", options.hidden, request.outputs);
  }

  at::Tensor forward(const ModelInput& input, State&) override {
    at::Tensor x = tokens_.defined() ? at::embedding(tokens_, input.tokens)
                   : input_          ? input_->forward(input.values)
                                     : events_->forward(input.values);
    x = embedding_dropout_(x, is_training());
    probe("embedding", x);
    const at::Tensor start = at::zeros({options_.layers, x.size(0), options_.hidden}, x.options());
    // As registered: moving a module to a device or type replaces what its parameters hold, not the parameters.
    const at::Tensor states = std::get<0>(at::lstm(x, {start, start}, weights_, /*has_biases=*/true, options_.layers,
                                                   /*dropout=*/0, is_training(), /*bidirectional=*/false,
                                                   /*batch_first=*/true));
    probe("states", states);
    // Padding stands behind the last valid place and changes no state before it.
    const at::Tensor places = tables_.numbers(x.size(1), input.key_valid.device());
    const at::Tensor last = at::where(input.key_valid, places, at::zeros_like(places)).amax(1);
    const at::Tensor state = states.gather(1, last.view({-1, 1, 1}).expand({-1, 1, options_.hidden})).squeeze(1);
    const at::Tensor out = output_->forward(state_dropout_(state, is_training()));
    const at::Tensor logits = out.to(at::promote_types(output_->weight.scalar_type(), at::kFloat));
    probe("logits", logits);
    return logits;
  }

  // Gates of every place, and the head.
  [[nodiscard]] attention::Cost cost(int64_t batch, int64_t length) const override {
    const double rows = static_cast<double>(batch * length), h = static_cast<double>(options_.hidden);
    const double first = static_cast<double>(options_.dim) + h, further = 2 * h;
    double flops = 8 * rows * h * (first + further * static_cast<double>(options_.layers - 1));
    if (input_) flops += 2 * rows * static_cast<double>(input_->weight.numel());
    if (events_) flops += rows * events_->flops();
    flops += 2 * static_cast<double>(batch * output_->weight.numel());
    return {flops, flops, rows * 4 * h * static_cast<double>(options_.layers)};
  }

  [[nodiscard]] std::string backend() const override { return "library"; }

 private:
  Options options_;
  at::Tensor tokens_;
  std::shared_ptr<attention::Linear> input_, output_;
  std::shared_ptr<EventInput> events_;
  std::vector<at::Tensor> weights_;
  attention::IndexTables tables_;
  kernels::Dropout embedding_dropout_, state_dropout_;
};

std::vector<FamilyDescriptor> describe() {
  FamilyDescriptor lstm;
  lstm.name = "lstm";
  lstm.title = "LSTM";
  lstm.summary = "Baseline without attention: a recurrent network, its state behind the last place, a linear map.";
  lstm.options = schema().options();
  lstm.takes_attention = false;
  lstm.padded_len = [](const Json&, int64_t max_tokens) { return max_tokens; };
  lstm.check = [](const ModelRequest& request) {
    const InputSpec& input = request.input;
    XF_CHECK(input.sequences == 1 && (input.categories.empty() || holds_events(input)), UserError,
             "the lstm family takes one sequence of ids, numbers or events");
  };
  lstm.build = [](const ModelRequest& request) {
    return std::make_shared<Lstm>(schema().read(request.model_options), request);
  };
  return {lstm};
}

}  // namespace xformer::models::families::lstm
