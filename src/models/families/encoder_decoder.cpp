// A Transformer that reads one sequence and writes another (Vaswani et al., "Attention Is All You Need", NeurIPS 2017;
// for long sources with sparse attention in the encoder and full attention in the decoder Zaheer et al., "Big Bird",
// NeurIPS 2020, section 4.1): an encoder of any attention over the source, and a decoder with any causal attention over
// what is written so far and any attention that has keys of another sequence (cross_ok) over the encoded source. Both
// sequences share the embedding's vectors; each has positions of its own.
//
// Attention options are those of the encoder's attention. The decoder's two take those that they have too (one key has
// one meaning everywhere), and else their defaults.
#include <ATen/Functions.h>

#include <algorithm>

#include "core/pair_symbols.h"
#include "kernels/embedding/embedding.h"
#include "models/cross_block.h"
#include "models/encoder_options.h"
#include "tensor/probe.h"

namespace xformer::models::families::encoder_decoder {

struct Options : EncoderOptions {
  Options() {
    ff_dim = 256;
    pooling = "none", length_rule = "exact";
    classifier_dim = 0;
    mask_output = false;
  }
  int64_t decoder_layers = 2;
  std::string decoder_attention = "softmax-fused", cross_attention = "softmax-fused";
  bool tied = true;
  int64_t beams = 1;
  double length_penalty = 0;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .include(encoder_schema(), {"dim", "heads", "head_dim", "layers"})
          .add(&Options::decoder_layers, "decoder_layers", "blocks of the decoder", at_least(1))
          .add(&Options::decoder_attention, "decoder_attention",
               "the decoder's attention to what is written so far: any with a causal form; it takes those attention "
               "options that it has too")
          .add(&Options::cross_attention, "cross_attention",
               "the decoder's attention to the source: any whose queries may be of another sequence; options as "
               "decoder_attention")
          .include(encoder_schema(), {"ff_dim", "dropout", "attention_dropout", "positions", "norm_epsilon"})
          .add<std::string>(&Options::norm, "norm",
                            "pre: each part of a layer takes the norm of its input, and so do encoder and decoder at "
                            "their ends; post: norm of the sum behind each part",
                            one_of({"pre", "post"}))
          .include(encoder_schema(), {"activation", "init", "attention_bias", "scale_input", "ff_chunk"})
          .add(&Options::tied, "tied", "score symbols by their own vectors of the embedding, instead of by another map")
          .add(&Options::beams, "beams", "texts that are followed at once when one is written; 1: the greedy one",
               between(1, 64))
          .add(&Options::length_penalty, "length_penalty",
               "of several beams the text is taken whose log-probability over ((5 + symbols) / 6)^length_penalty is "
               "the largest",
               at_least(0));
  return kSchema;
}

// Of another attention than the request's: options that both have, and else its defaults.
struct DecoderAttention {
  attention::Resolved name;
  Json options = Json::object();

  DecoderAttention(const std::string& text, const ModelRequest& request) : name(attention::resolve(text)) {
    for (const OptionInfo& info : name.options())
      options[info.name] = request.attention_options.value(info.name, info.fallback);
  }
};

Parts parts_of(const Options& options, const ModelRequest& request) {
  Parts parts = encoder_parts(options, request);
  if (!request.attention.base->build_block) parts.readout.norm = options.norm == "pre";
  return parts;
}

class EncoderDecoder : public Model, public WritingModel {
 public:
  EncoderDecoder(const Options& options, const ModelRequest& request)
      : Model(request.seed),
        options_(options),
        written_(request.input.written),
        parts_(parts_of(options, request)),
        embedding_(*this, parts_.embedding, request),
        stack_(*this, parts_.stack, request, embedding_.max_len(), embedding_.pinned()) {
    const InitStream init(request.seed);
    const int64_t dim = options.dim;
    if (parts_.readout.norm)
      encoder_norm_ = register_module("encoder_norm", std::make_shared<LayerNorm>(dim, options.norm_epsilon));
    if (options.positions == "learned")
      positions_ = register_parameter("decoder_positions", init.normal("decoder_positions", {written_, dim}, 0.02));
    if (options.positions == "sinusoidal")
      positions_ = register_buffer("decoder_positions", sinusoidal_positions(written_, dim));
    dropout_ = kernels::Dropout(options.dropout, dropout_stream());
    build_decoder(DecoderAttention(options.decoder_attention, request),
                  DecoderAttention(options.cross_attention, request), init);
    ReadoutOptions readout = parts_.readout;
    readout.norm = options.norm == "pre", readout.tied = options.tied;
    readout_ = std::make_unique<Readout>(*this, readout, request, 0, embedding_.tokens());
  }

  at::Tensor forward(const ModelInput& input, State&) override {
    const Embedding::Embedded encoded = encode(input);
    const int64_t batch = input.tokens.size(0), places = std::min(written_, input.tokens.size(2));
    const at::Tensor text = input.tokens.select(1, 1).narrow(1, 0, places - 1);
    at::Tensor x = embed(at::cat({at::full({batch, 1}, kMarkId, text.options()), text}, 1), 0);
    attention::Carry carry;
    for (size_t i = 0; i < layers_.size(); ++i)
      x = probed("decoder" + std::to_string(i),
                 [&] { return layers_[i]->forward(x, encoded.x, {encoded.valid}, carry); });
    return readout_->scored(readout_->pooled(x, {}));
  }

  // A pair is no segment of a stream.
  [[nodiscard]] State init_state(int64_t) const override { return {}; }

  // Source and text are tensors of their own.
  [[nodiscard]] int64_t rows_of_example(const ModelInput&) const override { return 1; }

  [[nodiscard]] int64_t longest_text() const override { return written_; }
  [[nodiscard]] SearchOptions search() const override { return {options_.beams, options_.length_penalty}; }

  Writing read(const ModelInput& input) override {
    const Embedding::Embedded encoded = encode(input);
    Writing result;
    for (const auto& layer : layers_) result.sources.push_back(layer->source(encoded.x));
    result.source_valid = encoded.valid;
    result.written.layers.resize(layers_.size());
    return result;
  }

  at::Tensor decode(const at::Tensor& ids, Writing& so_far) override {
    Decoded& written = so_far.written;
    const int64_t count = ids.size(1);
    XF_ASSERT(written.places + count <= written_, "a symbol behind the last of {}", written_);
    const attention::DecodingStep step{written.places, decoding_length_};
    at::Tensor x = embed(ids, written.places);
    attention::Carry carry;
    for (size_t i = 0; i < layers_.size(); ++i)
      x = layers_[i]->decode(x, step, so_far.sources[i], {so_far.source_valid}, carry, written.layers[i]);
    written.places += count;
    return readout_->scored(readout_->pooled(x.narrow(1, count - 1, 1), {})).select(1, 0);
  }

  [[nodiscard]] attention::Cost cost(int64_t batch, int64_t length) const override {
    const int64_t source = length + embedding_.leading(), places = std::min(written_, length);
    attention::Cost result = embedding_.cost(batch, length);
    result += stack_.cost(batch, source);
    for (const auto& layer : layers_) result += layer->cost(batch, places, source);
    result += readout_->cost(batch, places);
    return result;
  }

 private:
  void build_decoder(const DecoderAttention& own, const DecoderAttention& cross, const InitStream& init) {
    decoding_length_ = attention::decoding_length(own.name, own.options, written_);
    attention::BuildContext context;
    context.model_dim = options_.dim;
    context.heads = options_.heads;
    context.head_dim = options_.head_dim;
    context.dropout = options_.attention_dropout;
    context.bias = options_.attention_bias;
    context.init_scheme = options_.init;
    context.dropout_stream = dropout_stream();
    context.shared = shared();
    context.scope = "decoder/";
    for (int64_t layer = 0; layer < options_.decoder_layers; ++layer) {
      const std::string name = "decoder" + std::to_string(layer);
      context.layer = layer;
      context.init = init.child(name).child("mixer");
      context.max_len = written_;
      context.causal = true;
      auto mixer = attention::build_mixer(own.name, own.options, context);
      attention::BuildContext reading = context;
      reading.init = init.child(name).child("cross");
      reading.max_len = embedding_.max_len();
      auto reader = attention::build_cross(cross.name, cross.options, reading);
      layers_.push_back(register_module(
          name, std::make_shared<CrossBlock>(parts_.stack.block, options_.norm == "post", std::move(mixer),
                                             std::move(reader), dropout_stream(), init.child(name))));
    }
  }

  // Of the first sequence of each pair. Every source has a symbol; a row that holds no example is read as if it had
  // one, padding, so that none attends to nothing.
  Embedding::Embedded encode(const ModelInput& input) {
    const at::Tensor valid = input.key_valid.select(1, 0);
    const at::Tensor readable =
        at::cat({at::ones({valid.size(0), 1}, valid.options()), valid.narrow(1, 1, valid.size(1) - 1)}, 1);
    const Embedding::Embedded embedded = embedding_.forward(input.tokens.select(1, 0), {}, readable);
    State none;
    const at::Tensor x = stack_.forward(embedded.x, embedded.valid, none);
    return {encoder_norm_ ? encoder_norm_->forward(x) : x, embedded.valid};
  }

  // ids [b,n] of the places from `first` on.
  at::Tensor embed(const at::Tensor& ids, int64_t first) const {
    const kernels::DropoutPlace drop = dropout_.place(is_training());
    const at::Tensor positions = positions_.defined() ? positions_.slice(0, first) : positions_;
    if (!options_.scale_input) return kernels::embedding(embedding_.tokens(), ids, positions, drop);
    const at::Tensor x =
        kernels::embedding(embedding_.tokens(), ids, {}, {}) * std::sqrt(static_cast<double>(options_.dim));
    return dropout_(positions.defined() ? x + positions.narrow(0, 0, ids.size(1)) : x, is_training());
  }

  const Options options_;
  const int64_t written_;
  const Parts parts_;
  Embedding embedding_;
  Stack stack_;
  std::shared_ptr<LayerNorm> encoder_norm_;
  at::Tensor positions_;
  kernels::Dropout dropout_;
  int64_t decoding_length_ = 0;
  std::vector<std::shared_ptr<CrossBlock>> layers_;
  std::unique_ptr<Readout> readout_;
};

void check(const ModelRequest& request) {
  XF_CHECK(request.input.written > 0, UserError,
           "the encoder-decoder family reads a sequence and writes another; the task has no text to be written");
  const Options options = schema().read(request.model_options);
  check_encoder(options, request);
  const DecoderAttention own(options.decoder_attention, request), cross(options.cross_attention, request);
  XF_CHECK(!own.name.base->build_block, UserError,
           "model.decoder_attention: {} is a whole layer, and a decoder's layer also reads the source", own.name.name);
  try {
    attention::check_buildable(own.name, own.options, options.heads, /*causal=*/true);
  } catch (const UserError& error) {
    throw UserError(std::string("model.decoder_attention: ") + error.what());
  }
  XF_CHECK(attention::prefix_tokens(own.name, own.options) == 0, UserError,
           "model.decoder_attention: {} puts tokens in front of the text, which cannot be written", own.name.name);
  try {
    attention::check_cross(cross.name);
    attention::check_buildable(cross.name, cross.options, options.heads, /*causal=*/false);
  } catch (const UserError& error) {
    throw UserError(std::string("model.cross_attention: ") + error.what());
  }
}

std::vector<FamilyDescriptor> describe() {
  FamilyDescriptor family;
  family.name = "encoder-decoder";
  family.title = "encoder-decoder Transformer";
  family.summary = "Reads a source by any attention and writes a text about it: summaries, answers.";
  family.options = schema().options();
  family.per_position = true;
  family.padded_len = [](const Json&, int64_t max_tokens) { return max_tokens; };
  family.check = check;
  family.build = [](const ModelRequest& request) {
    return std::make_shared<EncoderDecoder>(schema().read(request.model_options), request);
  };
  return {family};
}

}  // namespace xformer::models::families::encoder_decoder
