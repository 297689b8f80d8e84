// A Transformer for one sequence: Embedding, Stack and Readout, one behind the other. Families say what their parts
// are.
#pragma once

#include "models/embedding.h"
#include "models/readout.h"
#include "models/stack.h"

namespace xformer::models {

struct Parts {
  EmbeddingOptions embedding;
  StackOptions stack;
  ReadoutOptions readout;
};

class Transformer : public Model, public DecodingModel {
 public:
  Transformer(const Parts& parts, const ModelRequest& request);
  at::Tensor forward(const ModelInput& input, State& state) override;
  at::Tensor decode(const at::Tensor& ids, Decoded& so_far) override;
  [[nodiscard]] attention::Cost cost(int64_t batch, int64_t length) const override;

 protected:
  // ids [s,n] or values [s,n,width], valid [s,n], segments [s,n] or none -> [s, summary], or of every place [s,n,m].
  [[nodiscard]] at::Tensor summary(const at::Tensor& ids, const at::Tensor& values, const at::Tensor& valid,
                                   State& state, const at::Tensor& segments = {});
  // Of summaries of sequences of this length.
  [[nodiscard]] attention::Cost summary_cost(int64_t sequences, int64_t length) const;

  Embedding embedding_;
  Stack stack_;
  Readout readout_;
};

}  // namespace xformer::models
