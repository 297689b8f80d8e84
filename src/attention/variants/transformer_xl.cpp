// Transformer-XL: Dai, Yang, Yang, Carbonell, Le, Salakhutdinov, "Transformer-XL: Attentive Language Models beyond a
// Fixed-Length Context", ACL 2019, sections 3.2 and 3.3. A stream is read in segments of n places; each layer reads,
// beside its own segment, the last M rows that it was given before it:
//   h~ = [SG(memory); h],   q = h W_q,  k = h~ W_k,  v = h~ W_v,   scores by content and distance
//   memory' = the last M rows of [memory; h]
// SG stops the gradient: maps learn from remembered rows, the layers that made them do not. The relative attention is
// shared/relative_attention.h. `same_length`: every row reads M keys, its own the last (the authors' evaluation).
// What a layer is given is remembered: under model.norm=post that is the paper's model, under pre the normed rows, as
// the norm's weights were when they were made (attention-more 5). Positions of the embedding's own contradict the
// memory: a language model wants model.positions=none. Without a stream, and both ways, nothing is remembered.
#include "attention/descriptor.h"
#include "attention/shared/relative_attention.h"

namespace xformer::attention::variants::transformer_xl {

struct Options : RelativeOptions {
  bool same_length = false;
};

class TransformerXlMixer : public RelativeMixer {
 public:
  TransformerXlMixer(const Options& options, const BuildContext& context)
      : RelativeMixer(options, context),
        memory_(causal_ ? options.memory : 0),
        farthest_(options.same_length ? options.memory : 0) {}

  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry& carry) override {
    const Past past = found_past(layer_ + "memory", carry);
    const at::Tensor out = attend(x, past, mask, farthest_, carry).out;
    if (past.length() == 0) return out;
    const Past all = joined(past, rows_of(x, mask));
    leave_past(layer_ + "memory", part(all, x.size(1), past.length()), carry);
    return out;
  }

  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    return attend_cost(batch, length, memory_, farthest_);
  }

  void init_state(int64_t batch, State& state) const override {
    if (memory_ > 0) init_past(layer_ + "memory", batch, memory_, query_->weight, state);
  }

 private:
  const int64_t memory_, farthest_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add<int64_t>(&Options::memory, "memory", kMemoryHelp, at_least(0))
          .add<int64_t>(&Options::clamp, "clamp", kClampHelp, at_least(0))
          .add(&Options::same_length, "same_length",
               "every place reads as many keys as there are in a memory, its own the last");
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "transformer-xl";
  result.title = "Transformer-XL";
  result.paper =
      "Dai, Yang, Yang, Carbonell, Le, Salakhutdinov: Transformer-XL: Attentive Language Models beyond a Fixed-Length "
      "Context, 2019";
  result.method_class = "RC";
  result.summary =
      "Attends by content and distance, also to the rows that each layer was given in earlier segments of a stream.";
  result.complexity = Complexity::kQuadratic;
  result.traits = {.causal_ok = true, .carries = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.tensors = relative_meanings();
  result.check = [](const Json& options, int64_t) {
    const Options given = schema().read(options);
    XF_CHECK(!given.same_length || given.memory > 0, UserError,
             "attention.same_length: places read as many keys as the memory has; expected attention.memory of at least "
             "1, got 0");
  };
  result.build_mixer = [](const Json& options, const BuildContext& context) {
    return std::make_shared<TransformerXlMixer>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::transformer_xl
