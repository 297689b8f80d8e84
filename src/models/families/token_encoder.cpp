// A Transformer encoder that scores every place, which sees those before and behind it: masked language models (Devlin
// et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", NAACL 2019). Token,
// position and segment embedding, dropout, blocks of any attention, a final norm behind pre-norm blocks, and scores of
// the vocabulary's last ids, by the embedding's vectors of them or by a map of their own. Where places hold numbers, a
// linear map of them is their embedding, and the answer a vector by a map of its own (Zaheer et al. 2020, section 3.4).
// BERT's transformation in front of the scores and its loss for the order of sentences are left out, as in Combiner's
// (Ren et al. 2021; tasks-more 10).
#include "models/place_options.h"

namespace xformer::models::families::token_encoder {

std::vector<FamilyDescriptor> describe() {
  FamilyDescriptor family;
  family.name = "token-encoder";
  family.title = "Transformer encoder of places";
  family.summary = "Answers at every place from all others: masked language models, furthest vectors.";
  family.options = place_schema().options();
  family.per_position = true;
  family.causal = false;
  family.padded_len = [](const Json& options, int64_t max_tokens) {
    return encoder_padded_len(place_schema().read(options), max_tokens);
  };
  family.check = [](const ModelRequest& request) {
    XF_CHECK(request.input.sequences == 1, UserError,
             "the token-encoder family takes one sequence; the task has pairs of sequences");
    XF_ASSERT(!request.causal, "an encoder of places that sees no later one");
    const PlaceOptions options = place_schema().read(request.model_options);
    XF_CHECK(!options.tied || request.input.vocabulary > 0, UserError,
             "model.tied: the task has numbers, and ids alone have vectors to be scored by; expected false");
    check_places(options, request);
  };
  family.build = [](const ModelRequest& request) {
    return std::make_shared<Transformer>(place_parts(place_schema().read(request.model_options), request), request);
  };
  return {family};
}

}  // namespace xformer::models::families::token_encoder
