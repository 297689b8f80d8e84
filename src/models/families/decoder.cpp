// A causal Transformer that scores every place (Vaswani et al., "Attention Is All You Need", NeurIPS 2017, the decoder
// without a second sequence; Radford et al., "Language Models are Unsupervised Multitask Learners", 2019): token and
// position embedding, dropout, blocks of any attention that has a causal form, a final norm behind pre-norm blocks, and
// scores of the vocabulary's last ids, by a map of their own or by the embedding's vectors of them (Press and Wolf,
// "Using the Output Embedding to Improve Language Models", EACL 2017).
#include "models/place_options.h"

namespace xformer::models::families::decoder {

const Schema<PlaceOptions>& schema() {
  static const Schema<PlaceOptions> kSchema =
      Schema<PlaceOptions>()
          .include(place_schema(), {"dim", "heads", "head_dim", "layers"})
          .add<int64_t>(&PlaceOptions::ff_dim, "ff_dim", "hidden width of the feed-forward part; 0: there is none",
                        at_least(0))
          .include(place_schema(),
                   {"dropout", "attention_dropout", "positions", "norm_epsilon", "norm", "activation", "init",
                    "attention_bias", "scale_input", "reversible", "ff_chunk", "tied", "loss_block"});
  return kSchema;
}

std::vector<FamilyDescriptor> describe() {
  FamilyDescriptor decoder;
  decoder.name = "decoder";
  decoder.title = "causal Transformer";
  decoder.summary =
      "Answers at every place from what stands before it: language models, recall; causal attention only.";
  decoder.options = schema().options();
  decoder.per_position = true;
  decoder.causal = true;
  decoder.padded_len = [](const Json&, int64_t max_tokens) { return max_tokens; };
  decoder.check = [](const ModelRequest& request) {
    XF_CHECK(request.input.vocabulary > 0 && request.input.sequences == 1, UserError,
             "the decoder family takes one sequence of ids; the task has {}",
             request.input.vocabulary > 0 ? "pairs of sequences" : "numbers");
    XF_ASSERT(request.causal, "a decoder that sees later places");
    const PlaceOptions options = schema().read(request.model_options);
    XF_CHECK(options.ff_dim > 0 || !options.reversible, UserError,
             "model.reversible needs both parts of a layer; expected model.ff_dim of at least 1, got 0");
    XF_CHECK(options.ff_dim > 0 || !request.attention.base->build_block, UserError,
             "model.ff_dim: {} is a whole layer with a feed-forward part of its own; expected at least 1, got 0",
             request.attention.name);
    check_places(options, request);
  };
  decoder.build = [](const ModelRequest& request) {
    return std::make_shared<Transformer>(place_parts(schema().read(request.model_options), request), request);
  };
  return {decoder};
}

}  // namespace xformer::models::families::decoder
