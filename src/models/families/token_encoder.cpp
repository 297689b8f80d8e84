// A Transformer encoder that scores every place, which sees those before and behind it: masked language models (Devlin
// et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", NAACL 2019). Token,
// position and segment embedding, dropout, blocks of any attention, a final norm behind pre-norm blocks, and scores of
// the vocabulary's last ids, by the embedding's vectors of them or by a map of their own. Where places hold numbers, a
// linear map of them is their embedding, and the answer a vector by a map of its own (Zaheer et al. 2020, section 3.4).
// BERT's transformation in front of the scores and its loss for the order of sentences are left out, as in Combiner's
// (Ren et al. 2021; tasks-more 10).
#include "models/encoder_options.h"

namespace xformer::models::families::token_encoder {

struct Options : EncoderOptions {
  Options() {
    ff_dim = 256;
    pooling = "none", length_rule = "exact";
    classifier_dim = 0;
    mask_output = false;
  }
  bool tied = true;
  int64_t loss_block = 0;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .include(encoder_schema(), {"dim", "heads", "head_dim", "layers", "ff_dim", "dropout", "attention_dropout",
                                      "positions", "norm_epsilon"})
          .add<std::string>(&Options::norm, "norm",
                            "pre: each part of a layer takes the norm of its input, and the readout that of the last "
                            "layer; post: norm of the sum behind each part",
                            one_of({"pre", "post"}))
          .include(encoder_schema(),
                   {"activation", "init", "attention_bias", "scale_input", "length_rule", "reversible", "ff_chunk"})
          .add(&Options::tied, "tied", "score ids by their own vectors of the embedding, instead of by another map")
          .add(&Options::loss_block, "loss_block",
               "in training and evaluation the scores of so many places are in memory at once, and are formed again in "
               "the backward pass; 0: those of all, formed once",
               at_least(0));
  return kSchema;
}

Parts parts_of(const Options& options, const ModelRequest& request) {
  Parts parts = encoder_parts(options, request);
  parts.readout.norm = options.norm == "pre";
  parts.readout.tied = options.tied;
  parts.readout.loss_block = options.loss_block;
  return parts;
}

std::vector<FamilyDescriptor> describe() {
  FamilyDescriptor family;
  family.name = "token-encoder";
  family.title = "Transformer encoder of places";
  family.summary = "Answers at every place from all others: masked language models, furthest vectors.";
  family.options = schema().options();
  family.per_position = true;
  family.padded_len = [](const Json& options, int64_t max_tokens) {
    return encoder_padded_len(schema().read(options), max_tokens);
  };
  family.check = [](const ModelRequest& request) {
    XF_CHECK(request.input.sequences == 1, UserError,
             "the token-encoder family takes one sequence; the task has pairs of sequences");
    XF_CHECK(!request.causal, UserError,
             "the token-encoder family sees later places, and the task lets none see them; take decoder/{}",
             request.attention.name);
    const Options options = schema().read(request.model_options);
    XF_CHECK(!options.tied || request.input.vocabulary > 0, UserError,
             "model.tied: the task has numbers, and ids alone have vectors to be scored by; expected false");
    XF_ASSERT(!options.tied || request.outputs <= request.input.vocabulary, "{} classes of {} ids", request.outputs,
              request.input.vocabulary);
    check_encoder(options, request);
  };
  family.build = [](const ModelRequest& request) {
    return std::make_shared<Transformer>(parts_of(schema().read(request.model_options), request), request);
  };
  return {family};
}

}  // namespace xformer::models::families::token_encoder
