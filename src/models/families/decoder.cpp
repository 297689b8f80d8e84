// A causal Transformer that scores every place (Vaswani et al., "Attention Is All You Need", NeurIPS 2017, the decoder
// without a second sequence; Radford et al., "Language Models are Unsupervised Multitask Learners", 2019): token and
// position embedding, dropout, blocks of any attention that has a causal form, a final norm behind pre-norm blocks, and
// scores of the vocabulary's last ids, by a map of their own or by the embedding's vectors of them (Press and Wolf,
// "Using the Output Embedding to Improve Language Models", EACL 2017).
#include "models/encoder_options.h"

namespace xformer::models::families::decoder {

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
          .include(encoder_schema(), {"dim", "heads", "head_dim", "layers"})
          .add<int64_t>(&Options::ff_dim, "ff_dim", "hidden width of the feed-forward part; 0: there is none",
                        at_least(0))
          .include(encoder_schema(), {"dropout", "attention_dropout", "positions", "norm_epsilon"})
          .add<std::string>(&Options::norm, "norm",
                            "pre: each part of a layer takes the norm of its input, and the readout that of the last "
                            "layer; post: norm of the sum behind each part",
                            one_of({"pre", "post"}))
          .include(encoder_schema(), {"activation", "init", "attention_bias", "scale_input", "reversible", "ff_chunk"})
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
  FamilyDescriptor decoder;
  decoder.name = "decoder";
  decoder.title = "causal Transformer";
  decoder.summary =
      "Answers at every place from what stands before it: language models, recall; causal attention only.";
  decoder.options = schema().options();
  decoder.per_position = true;
  decoder.padded_len = [](const Json&, int64_t max_tokens) { return max_tokens; };
  decoder.check = [](const ModelRequest& request) {
    XF_CHECK(request.input.vocabulary > 0 && request.input.sequences == 1, UserError,
             "the decoder family takes one sequence of ids; the task has {}",
             request.input.vocabulary > 0 ? "pairs of sequences" : "numbers");
    XF_CHECK(request.causal, UserError,
             "the decoder family sees no later place, and the task lets every place see all others; take "
             "token-encoder/{}",
             request.attention.name);
    const Options options = schema().read(request.model_options);
    XF_ASSERT(!options.tied || request.outputs <= request.input.vocabulary, "{} classes of {} ids", request.outputs,
              request.input.vocabulary);
    XF_CHECK(options.ff_dim > 0 || !options.reversible, UserError,
             "model.reversible needs both parts of a layer; expected model.ff_dim of at least 1, got 0");
    XF_CHECK(options.ff_dim > 0 || !request.attention.base->build_block, UserError,
             "model.ff_dim: {} is a whole layer with a feed-forward part of its own; expected at least 1, got 0",
             request.attention.name);
    check_encoder(options, request);
  };
  decoder.build = [](const ModelRequest& request) {
    return std::make_shared<Transformer>(parts_of(schema().read(request.model_options), request), request);
  };
  return {decoder};
}

}  // namespace xformer::models::families::decoder
