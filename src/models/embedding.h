// The first part of a Transformer: what a sequence's places hold (ids, numbers, patches, or the columns of a table)
// becomes vectors, with positions, and with what stands in front of the sequence.
#pragma once

#include "kernels/dropout/dropout.h"
#include "models/block.h"
#include "models/model.h"

namespace xformer::models {

class EventInput;

// What stands in front of a sequence to be read at the end.
enum class Front {
  kNone,
  kToken,   // a reserved id; the sequence's last place is dropped
  kVector,  // a learned vector with a position of its own
  kColumn   // the first row of a table's columns; the places are columns
};

struct EmbeddingOptions {
  int64_t dim = 64;
  int64_t padded_len = 0;
  Front front = Front::kNone;
  std::string positions = "none", init = "mlpen";
  int64_t vocabulary_rows = 0;  // 0: as many as there are ids
  bool scale_input = false;     // by the root of the width
  double dropout = 0;           // not of columns
};

// [length, dim], sines in the first half of the columns, cosines in the second (GLRA common_layers.sinusoidal_init).
[[nodiscard]] at::Tensor sinusoidal_positions(int64_t length, int64_t dim);

// Its parameters are registered in the model that owns it, under names of their own:
//   tokens, input or events (columns: column_weight, column_bias, codes), positions, segments, cls, prefix; mask, of
//   what is hidden, so that the ids have the same table where nothing is.
class Embedding {
 public:
  Embedding(Model& owner, const EmbeddingOptions& options, const ModelRequest& request);

  struct Embedded {
    at::Tensor x;      // [s, leading + n, m]
    at::Tensor valid;  // [s, leading + n] bool; undefined: all
  };
  // ids [s,n] or values [s,n,width], valid [s,n]; of ids with nothing in front also those from place `first` on.
  // segments [s,n] where the task has them. Without `padding_read` nobody reads x where it is not valid.
  [[nodiscard]] Embedded forward(at::Tensor ids, const at::Tensor& values, at::Tensor valid, int64_t first = 0,
                                 const at::Tensor& segments = {}, bool padding_read = true) const;

  // Tokens put in front of the places.
  [[nodiscard]] int64_t leading() const;
  // Leading tokens that are no part of the sequence, the reserved id included.
  [[nodiscard]] int64_t pinned() const { return prefix_len_ + (options_.front != Front::kNone ? 1 : 0); }
  [[nodiscard]] int64_t max_len() const { return leading() + options_.padded_len; }
  [[nodiscard]] const at::Tensor& tokens() const { return tokens_; }
  [[nodiscard]] attention::Cost cost(int64_t sequences, int64_t length) const;

 private:
  [[nodiscard]] at::Tensor columns(const at::Tensor& rows) const;

  const Model& owner_;
  const EmbeddingOptions options_;
  const int64_t prefix_len_;
  int64_t rows_ = 0, hidden_ = -1, numbers_ = 0, codes_ = 0;  // hidden_: the id of what is hidden
  at::Tensor tokens_, mask_, positions_, segments_, cls_, prefix_;
  at::Tensor column_weight_, column_bias_, table_, offsets_;
  std::shared_ptr<attention::Linear> input_;  // where places hold numbers
  std::shared_ptr<EventInput> events_;        // where they hold events
  kernels::Dropout dropout_;
};

}  // namespace xformer::models
