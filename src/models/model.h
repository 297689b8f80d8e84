// A whole network from a task's input to its output, and how one is built by family name.
#pragma once

#include <torch/nn/module.h>

#include "attention/descriptor.h"

namespace xformer::models {

using attention::State;

struct InputSpec {
  int64_t max_tokens = 0;                // longest sequence of the data (N_max)
  int64_t vocabulary = 0;                // ids in use, padding included; 0: places hold numbers
  int64_t sequences = 1;                 // in one example
  int64_t width = 0;                     // numbers at each place
  std::vector<int64_t> categories = {};  // sizes of the columns of codes, as DataShape has them
  int64_t columns = 0;                   // places in a row of the image that they are, row by row; 0: they are none
  int64_t segments = 0;                  // kinds of stretches that a sequence is made of; 0: it is of one piece
  // Symbols of a text that is written about the first sequence, as the second holds it (core/pair_symbols.h); 0:
  // none is.
  int64_t written = 0;
  bool masks = false;  // the last id stands for whatever is hidden (DataShape)
};

// A batch as a model sees it.
struct ModelInput {
  at::Tensor tokens;       // [b, n] int64, 0 is padding; [b, 2, n] for pairs; undefined where places hold numbers
  at::Tensor key_valid;    // as the tokens, bool
  at::Tensor values = {};  // [b, n, width] float
  // [b, n] int64, -1 for none; where they are known. A family that answers at every place may then give what its scores
  // come to (place_loss.h) instead of them.
  at::Tensor labels = {};
  at::Tensor segments = {};  // [b, n] int64, where the task's sequences have them
};

class Model : public torch::nn::Module {
 public:
  explicit Model(uint64_t seed);
  // [b, outputs], or of a family that answers at every place [b, n, outputs], in float32 at least. `state` is what
  // init_state made, as the batch before left it; what this batch leaves stands there afterwards.
  virtual at::Tensor forward(const ModelInput& input, State& state) = 0;
  // Of a batch that nothing went before.
  [[nodiscard]] at::Tensor forward(const ModelInput& input);
  // What the model remembers before the first batch, each tensor [batch, ..] on its device; mostly nothing.
  [[nodiscard]] virtual State init_state(int64_t batch) const { return attention::init_state(*this, batch); }
  // Sum of what the attentions ask for; undefined when none does.
  [[nodiscard]] at::Tensor extra_loss() const { return attention::extra_loss(*this); }
  void after_step(int64_t step) { attention::after_step(*this, step); }
  // Rows of the network's tensors that are one example: where dropout's numbers of a micro-batch begin.
  [[nodiscard]] virtual int64_t rows_of_example(const ModelInput& input) const {
    return input.key_valid.dim() == 3 ? input.key_valid.size(1) : 1;
  }
  [[nodiscard]] virtual std::string backend() const { return attention::backends(*this); }
  [[nodiscard]] virtual attention::Cost cost(int64_t batch, int64_t length) const = 0;
  // Whether weight decay touches a parameter.
  [[nodiscard]] virtual bool decays(const std::string& name) const {
    (void)name;
    return true;
  }

  [[nodiscard]] const std::shared_ptr<kernels::DropoutStream>& dropout_stream() const { return dropout_stream_; }
  [[nodiscard]] const std::shared_ptr<attention::SharedObjects>& shared() const { return shared_; }

 private:
  std::shared_ptr<kernels::DropoutStream> dropout_stream_;
  std::shared_ptr<attention::SharedObjects> shared_;
};

struct ModelRequest {
  InputSpec input;
  // Columns: logits of classes, or one number. Where ids are predicted, the classes are the last so many of the
  // vocabulary.
  int64_t outputs = 0;
  bool causal = false;        // the task's outputs may see no later place, or the model is to see none
  bool per_position = false;  // outputs at every place
  attention::Resolved attention;
  Json attention_options = Json::object();
  Json model_options = Json::object();
  uint64_t seed = 0;
};

struct FamilyDescriptor {
  std::string name;
  std::vector<std::string> aliases;
  std::string title, summary;
  std::vector<OptionInfo> options;  // keys without the prefix "model."
  bool takes_attention = true;      // false: the family's name is the whole model's
  bool per_position = false;        // it answers at every place; else once for an example
  // Of one that answers at every place: that it sees no later place, or sees them; nothing: as the task has it.
  std::optional<bool> causal = {};
  bool pretrains = false;  // once, but at every place where a task's inputs are what is asked (data.objective)
  // Length that every batch is padded to (N_pad) for data of at most max_tokens.
  std::function<int64_t(const Json& options, int64_t max_tokens)> padded_len;
  // Cross-option checks before anything is built: UserError.
  std::function<void(const ModelRequest&)> check;
  std::function<std::shared_ptr<Model>(const ModelRequest&)> build;
};

[[nodiscard]] const Registry<FamilyDescriptor>& all_families();

// Names and tensors of everything trained, each shared tensor once, in a fixed order.
[[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> trainable(const Model& model);
// Trained tensors and buffers: what a weights file holds.
[[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> state(const Model& model);
[[nodiscard]] int64_t parameter_count(const Model& model);

}  // namespace xformer::models
