// What families have in common that turn sequences into one vector each: embedding of ids or of numbers, blocks of any
// attention, final norm, pooling (lra-recipe 4 and 5, tasks-more 1 and 5).
//
//   mlpen  x = tok[id] + pos, dropout, L pre-norm blocks, final norm, times mask, mean over all N_pad positions
//          (mlpen/Nystromformer LRA/code/model.py)
//   glra   tok N(0,1), a zero-initialised CLS vector in front, sinusoidal positions, LayerNorm eps 1e-6, tanh-GELU,
//          output read at CLS (google-research/long-range-arena lra_benchmarks/models/transformer)
//   mvts   x = sqrt(m) W v + pos, dropout, L post-norm blocks, final norm, GELU, dropout, times mask, all positions
//          side by side (gzerveas/mvts_transformer, thuml/Flowformer)
#pragma once

#include "models/block.h"
#include "models/model.h"
#include "models/reversible.h"

namespace xformer::models {

struct EncoderOptions {
  int64_t dim = 64, heads = 2, head_dim = 32, layers = 2, ff_dim = 128;
  double dropout = 0.1, attention_dropout = 0.1;
  std::string positions = "learned", pooling = "mean_padded";
  int64_t classifier_dim = 128, vocabulary_rows = 0;
  double norm_epsilon = 1e-5;
  std::string norm = "pre", activation = "gelu", init = "mlpen";
  bool attention_bias = true, mask_output = true, scale_input = false, activate_output = false;
  std::string length_rule = "power_of_two";
  bool reversible = false;
  int64_t ff_chunk = 0;
  double stochastic_depth = 0;  // of the last layer, rising evenly from 0 in the first
};
[[nodiscard]] const Schema<EncoderOptions>& encoder_schema();

// Length that batches of sequences of at most max_tokens are padded to.
[[nodiscard]] int64_t encoder_padded_len(const EncoderOptions& options, int64_t max_tokens);

// UserError for options that do not go together, or with the input or the attention.
void check_encoder(const EncoderOptions& options, const ModelRequest& request);

class EncoderBody : public Model {
 public:
  at::Tensor extra_loss() override;
  void after_step(int64_t step) override;
  [[nodiscard]] std::string backend() const override { return layers_.front()->backend(); }

 protected:
  EncoderBody(const EncoderOptions& options, const ModelRequest& request);

  // ids [s,n] or values [s,n,width], valid [s,n] -> [s, summary_dim].
  [[nodiscard]] at::Tensor summary(const at::Tensor& ids, const at::Tensor& values, at::Tensor valid);
  [[nodiscard]] int64_t summary_dim() const;
  // Of summaries of sequences of this length.
  [[nodiscard]] attention::Cost body_cost(int64_t sequences, int64_t length) const;
  // Linear maps of these widths with ReLU between them, registered as classifier_in, classifier_middle (of three) and
  // classifier_out.
  void add_classifier(const std::vector<int64_t>& widths, const InitStream& init);
  [[nodiscard]] at::Tensor classified(at::Tensor x) const;
  [[nodiscard]] attention::Cost classifier_cost(int64_t rows) const;

  const EncoderOptions options_;

 private:
  void add_embedding(const InputSpec& input, const InitStream& init);
  void add_layers(const ModelRequest& request, const InitStream& init);
  // Embedded and with everything put in front of it; `valid` grows with it.
  [[nodiscard]] at::Tensor embedded(at::Tensor ids, const at::Tensor& values, at::Tensor& valid);
  [[nodiscard]] at::Tensor pooled(const at::Tensor& x, const at::Tensor& valid) const;
  [[nodiscard]] std::vector<at::Tensor> reversible_parameters() const;

  int64_t rows_, prefix_len_, padded_len_;
  bool cls_vector_;
  std::shared_ptr<attention::SharedObjects> shared_;
  at::Tensor tokens_, positions_, cls_, prefix_;
  std::shared_ptr<attention::Linear> input_;  // where places hold numbers
  kernels::Dropout embedding_dropout_, output_dropout_;
  std::vector<std::shared_ptr<attention::LayerBlock>> layers_;
  std::vector<std::shared_ptr<PreNormBlock>> reversible_;  // the same layers, when they are run that way
  std::shared_ptr<LayerNorm> norm_;
  std::vector<std::shared_ptr<attention::Linear>> classifier_;
};

}  // namespace xformer::models
