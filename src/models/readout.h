// The last part of a Transformer: the final norm, if any, what is read of the places, and the linear maps that score
// it.
#pragma once

#include "models/block.h"
#include "models/model.h"

namespace xformer::models {

struct ReadoutOptions {
  int64_t dim = 64;
  // Of the sequence's places (pinned tokens left out): mean_padded: sum / N_pad; mean_valid: over valid ones; flatten:
  // side by side; prefix_max: half the first pinned token, half the largest number of valid places in each channel;
  // first: the last pinned token alone; or none: every place is read by itself.
  std::string pooling = "mean_padded";
  int64_t padded_len = 0;
  bool norm = true;  // layer norm in front of all
  double norm_epsilon = 1e-5;
  std::string activation = "none";   // behind the norm: none, gelu (with dropout) or relu
  double dropout = 0;                // of that activation
  bool mask_output = false;          // zero padded places before pooling
  int64_t summaries = 1;             // vectors side by side that one row of scores is made of
  std::vector<int64_t> hidden = {};  // widths of the maps but the last, with ReLU behind each
  std::string last = "classifier_out";
  bool last_dropped = false;  // where every place is read: a reserved id in front has the last one's room
  int64_t loss_block = 0;     // places at once, where losses are made instead of scores; 0: never
  bool tied = false;          // scored by the embedding's vectors of the ids, without a map of its own
  std::string init = "mlpen";

  // Whether what is made depends on what layers make of padded places; of places that are read by themselves theirs do.
  [[nodiscard]] bool reads_padding() const {
    return pooling == "none" || (!mask_output && (pooling == "mean_padded" || pooling == "flatten"));
  }
};

// Its parameters are registered in the model that owns it: norm, classifier_in, classifier_middle (of three maps),
// classifier_out (or what it is called in its place).
class Readout {
 public:
  // `pinned` leading tokens of x are no part of the sequence; with pooling "first" the last of them is read. `tokens`
  // [v,m], of whose last rows a tied readout makes scores.
  Readout(Model& owner, const ReadoutOptions& options, const ModelRequest& request, int64_t pinned,
          const at::Tensor& tokens);

  // x [s,n,m], valid [s,n] bool or undefined where all are -> [s, summary], or with pooling "none" [s,n,m].
  [[nodiscard]] at::Tensor pooled(const at::Tensor& x, const at::Tensor& valid) const;
  // [.., summaries * summary] -> [.., outputs] in float32 at least; with a loss_block and labels of x [b,n,m] what
  // place_loss.h makes of them.
  [[nodiscard]] at::Tensor scored(at::Tensor x, const at::Tensor& labels = {}) const;
  // Of sequences of this length.
  [[nodiscard]] attention::Cost cost(int64_t sequences, int64_t length) const;

 private:
  const Model& owner_;
  const ReadoutOptions options_;
  const int64_t pinned_, outputs_;
  const at::Tensor tokens_;  // of a tied readout
  std::shared_ptr<LayerNorm> norm_;
  kernels::Dropout dropout_;
  std::vector<std::shared_ptr<attention::Linear>> classifier_;
};

}  // namespace xformer::models
