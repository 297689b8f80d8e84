#include "data/lra_protocols.h"

namespace xformer::data {

Json mlpen_values(const LraTraining& training, int64_t vocabulary_rows) {
  return {
      {"training.steps", training.steps},
      {"training.batch", training.batch},
      {"training.learning_rate", 1e-4},
      {"training.warmup", training.warmup},
      {"training.schedule", "onecycle_linear"},
      {"training.optimizer", "adamw"},
      {"training.beta1", 0.9},  // cycled between 0.95 and 0.85 by the schedule
      {"training.beta2", 0.999},
      {"training.epsilon", 1e-6},
      {"training.weight_decay", 0.0},
      {"training.cycle_beta1", true},
      {"training.selection", "best_dev"},
      {"training.eval_every", training.eval_every},
      {"eval.parity", false},
      {"eval.dev_batches", training.dev_batches},
      {"model.dim", 64},
      {"model.heads", 2},
      {"model.head_dim", 32},
      {"model.layers", 2},
      {"model.ff_dim", 128},
      {"model.dropout", 0.1},
      {"model.attention_dropout", 0.1},
      {"model.positions", "learned"},
      {"model.pooling", "mean_padded"},
      {"model.classifier_dim", 128},
      {"model.vocabulary_rows", vocabulary_rows},
      {"model.norm_epsilon", 1e-5},
      {"model.activation", "gelu"},
      {"model.init", "mlpen"},
      {"model.attention_bias", true},
      {"model.mask_output", true},
      {"model.length_rule", "power_of_two"},
  };
}

Json glra_values(const LraTraining& training, const GlraModel& model, int64_t vocabulary_rows) {
  return with_values(mlpen_values(training, vocabulary_rows), {
                                                                  {"training.learning_rate", 0.05},
                                                                  {"training.schedule", "rsqrt"},
                                                                  {"training.beta2", 0.98},
                                                                  {"training.epsilon", 1e-9},
                                                                  {"training.weight_decay", 0.1},
                                                                  {"training.cycle_beta1", false},
                                                                  {"training.selection", "last"},
                                                                  {"model.dim", model.dim},
                                                                  {"model.heads", model.heads},
                                                                  {"model.head_dim", model.head_dim},
                                                                  {"model.layers", model.layers},
                                                                  {"model.ff_dim", model.ff_dim},
                                                                  {"model.dropout", model.dropout},
                                                                  {"model.attention_dropout", model.attention_dropout},
                                                                  {"model.positions", model.positions},
                                                                  {"model.pooling", model.pooling},
                                                                  {"model.classifier_dim", model.ff_dim},
                                                                  {"model.norm_epsilon", 1e-6},
                                                                  {"model.activation", "gelu_tanh"},
                                                                  {"model.init", "glra"},
                                                                  {"model.attention_bias", false},
                                                                  {"model.mask_output", false},
                                                                  {"model.length_rule", "exact"},
                                                              });
}

Json clean_values(const LraTraining& training, int64_t vocabulary_rows) {
  return with_values(mlpen_values(training, vocabulary_rows), {{"model.pooling", "mean_valid"}});
}

Protocol combiner_protocol(Json glra) {
  return {"combiner", "the settings of glra, for the numbers of Combiner's Table 4, which differ from LRA's",
          std::move(glra)};
}

Json paramixer_values(const ParamixerTraining& training) {
  return {
      {"training.epochs", training.epochs},
      {"training.eval_epochs", 1},
      {"training.batch", training.batch},
      {"training.learning_rate", training.learning_rate},
      {"training.schedule", "constant"},
      {"training.optimizer", "adamw"},
      {"training.weight_decay", 0.0},
      {"training.selection", "best_dev"},
      {"model.dim", 32},
      {"model.heads", 1},
      {"model.head_dim", 32},
      {"model.layers", 1},
      {"model.ff_dim", 32},
      {"model.dropout", training.dropout},
      {"model.attention_dropout", 0.0},
      {"model.positions", "learned"},
      {"model.pooling", "flatten"},
      {"model.classifier_dim", 0},
      {"model.norm", "post"},
      {"model.length_rule", "exact"},
  };
}

Json with_values(Json values, const Json& more) {
  values.update(more);
  return values;
}

}  // namespace xformer::data
