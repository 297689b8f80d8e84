// Options of the families of encoders, and the parts they mean (lra-recipe 4 and 5, tasks-more 1 and 5).
//
//   mlpen  x = tok[id] + pos, dropout, L pre-norm blocks, final norm, times mask, mean over all N_pad positions
//          (mlpen/Nystromformer LRA/code/model.py)
//   glra   tok N(0,1), a zero-initialised CLS vector in front, sinusoidal positions, LayerNorm eps 1e-6, tanh-GELU,
//          output read at CLS (google-research/long-range-arena lra_benchmarks/models/transformer)
//   mvts   x = sqrt(m) W v + pos, dropout, L post-norm blocks, final norm, GELU, dropout, times mask, all positions
//          side by side (thuml/Flowformer); with batch norm in the blocks and no final norm (gzerveas/mvts_transformer)
#pragma once

#include "models/transformer.h"

namespace xformer::models {

struct EncoderOptions {
  int64_t dim = 64, heads = 2, head_dim = 32, layers = 2, ff_dim = 128;
  double dropout = 0.1, attention_dropout = 0.1;
  std::string positions = "learned", pooling = "mean_padded";
  int64_t classifier_dim = 128, vocabulary_rows = 0;
  double norm_epsilon = 1e-5;
  std::string norm = "pre", norm_places = "valid", key_places = "valid", activation = "gelu", init = "mlpen";
  bool attention_bias = true, mask_output = true, scale_input = false, activate_output = false;
  std::string length_rule = "power_of_two";
  bool reversible = false;
  int64_t ff_chunk = 0;
  double stochastic_depth = 0;  // of the last layer, rising evenly from 0 in the first
  bool causal = false;
};
[[nodiscard]] const Schema<EncoderOptions>& encoder_schema();

// Length that batches of sequences of at most max_tokens are padded to.
[[nodiscard]] int64_t encoder_padded_len(const EncoderOptions& options, int64_t max_tokens);

// UserError for options that do not go together, or with the input or the attention.
void check_encoder(const EncoderOptions& options, const ModelRequest& request);

// The readout ends in two linear maps, or in one behind all positions side by side.
[[nodiscard]] Parts encoder_parts(const EncoderOptions& options, const ModelRequest& request);

}  // namespace xformer::models
