// A causal model read one place at a time, and what it keeps of the places so far.
#pragma once

#include "models/model.h"
#include "models/text_search.h"

namespace xformer::models {

// Tensors are [batch, ..]. A model that remembers earlier sequences (init_state) reads on behind its longest length;
// another's places end there.
struct Decoded {
  int64_t places = 0;              // of the sequence at hand
  State memory;                    // what stands before it: init_state's of a model that has read nothing
  std::vector<State> layers = {};  // of its places, by layer
};

// Of a Model whose scores of a place can be had without those of the earlier ones.
class DecodingModel {
 public:
  virtual ~DecodingModel() = default;
  // ids [b,n] of the places at hand, one, or any number that begin a sequence -> scores at the last of them
  // [b,outputs], those that forward gives there for all places of the sequence. In evaluation and without gradients.
  virtual at::Tensor decode(const at::Tensor& ids, Decoded& so_far) = 0;
};

// What a model keeps of sources that it has read and of the texts that it writes about them, a row each.
struct Writing {
  std::vector<State> sources;  // by layer, of the source alone
  at::Tensor source_valid;
  Decoded written;
  // Row i goes on as row order[i] [r] was.
  void select(const at::Tensor& order);
};

// Of a model that writes a text about a sequence; symbols as in core/pair_symbols.h.
class WritingModel {
 public:
  virtual ~WritingModel() = default;
  // Symbols of a text at most, its end among them.
  [[nodiscard]] virtual int64_t longest_text() const = 0;
  // Of the sources in the batch. In evaluation and without gradients, as below.
  [[nodiscard]] virtual Writing read(const ModelInput& input) = 0;
  // ids [r,n] as of DecodingModel, the mark first -> scores of what comes behind the last of them [r,outputs].
  virtual at::Tensor decode(const at::Tensor& ids, Writing& so_far) = 0;
  // How texts are searched for where nobody says otherwise.
  [[nodiscard]] virtual SearchOptions search() const = 0;
};

}  // namespace xformer::models
