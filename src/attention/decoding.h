// Causal attention one token at a time. A mixer is handed the token behind those that it has had, and gives the row
// that its causal form over all of them gives that token; a sequence may begin with several tokens at once. What it
// needs of the earlier ones it keeps in a State.
//
// How much that is depends on the attention. A mixer or block keeps its inputs, and runs again over all of them; one
// around a core keeps queries, keys and values, and only the core runs again. A core that is a RowCore runs for the new
// row alone; a DecodingCore or DecodingMixer keeps what it likes (sums over the keys so far).
#pragma once

#include "attention/descriptor.h"

namespace xformer::attention {

struct DecodingStep {
  int64_t first = 0;  // tokens before those at hand: of these there is one, or any number where first is 0
  // Of the sequence as the attention was trained with it, where rows depend on it (blocks of a share of the length,
  // clusters of as many members): the causal form then runs over so many tokens, those behind the ones at hand zeros,
  // which no row sees. 0: the rows of a prefix are those of the whole.
  int64_t length = 0;
};

// DecodingStep::length for a model of sequences of `max_len` tokens: that, but for options under which appended padding
// changes nothing. They are complete.
[[nodiscard]] int64_t decoding_length(const Resolved& attention, const Json& options, int64_t max_len);

// A core whose causal row i is its row i over the first i + 1 keys, which forward takes with a single query.
class RowCore {
 public:
  virtual ~RowCore() = default;
};

class DecodingCore {
 public:
  virtual ~DecodingCore() = default;
  // q, k, v [b,h,n,d] of the tokens at hand -> [b,h,n,d].
  virtual at::Tensor decode(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const DecodingStep& step,
                            State& kept) = 0;
};

class DecodingMixer {
 public:
  virtual ~DecodingMixer() = default;
  // x [b,n,m] of the tokens at hand -> [b,n,m].
  virtual at::Tensor decode(const at::Tensor& x, const DecodingStep& step, Carry& carry, State& kept) = 0;
};

// The rows of the tokens at hand, in evaluation and without gradients. `carry` is that of a forward pass over all
// tokens; `kept` is the mixer's own, empty before the first.
[[nodiscard]] at::Tensor decode(SequenceMixer& mixer, const at::Tensor& x, const DecodingStep& step, Carry& carry,
                                State& kept);
[[nodiscard]] at::Tensor decode(AttentionCore& core, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const DecodingStep& step, Carry& carry, State& kept);

// Rows [..,n,d] of the tokens at hand, kept under a name behind those of the tokens before; all of them [..,first +
// n,d].
[[nodiscard]] at::Tensor keep(State& kept, const std::string& name, const at::Tensor& rows, const DecodingStep& step);

}  // namespace xformer::attention
