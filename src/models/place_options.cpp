#include "models/place_options.h"

namespace xformer::models {

PlaceOptions::PlaceOptions() {
  ff_dim = 256;
  pooling = "none", length_rule = "exact";
  classifier_dim = 0;
  mask_output = false;
}

const Schema<PlaceOptions>& place_schema() {
  using Options = PlaceOptions;
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

void check_places(const PlaceOptions& options, const ModelRequest& request) {
  XF_ASSERT(!options.tied || request.outputs <= request.input.vocabulary, "{} classes of {} ids", request.outputs,
            request.input.vocabulary);
  check_encoder(options, request);
}

Parts place_parts(const PlaceOptions& options, const ModelRequest& request) {
  Parts parts = encoder_parts(options, request);
  parts.readout.norm = options.norm == "pre";
  parts.readout.tied = options.tied;
  parts.readout.loss_block = options.loss_block;
  return parts;
}

}  // namespace xformer::models
