// What Combiner's attentions share (Ren et al. 2021, sections 3 and 4): tokens that are read through summaries of sets
// of them, and one softmax over keys and summaries that is computed in parts. A set S of tokens becomes
//   key k_S = pool of its k,   value v_S = sum_j softmax_j(q_S . k_j / sqrt(d)) v_j with q_S = pool of its q,
// so that its value depends on no query. Sets without a valid token are no keys.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "attention/core.h"
#include "attention/multi_head.h"
#include "attention/shared/windows.h"
#include "core/schema.h"
#include "kernels/token_sets/token_sets.h"

namespace xformer::attention {

struct SummaryOptions {
  std::string pool = "max";
  bool log_count_bias = false;
};
[[nodiscard]] const Schema<SummaryOptions>& summary_schema();
// Of the maps that pool=deepsets has.
[[nodiscard]] std::vector<TensorMeaning> summary_meanings();

// Pools queries and keys of sets. Maps of pool=deepsets are registered in `owner` (pool_query, pool_key).
class Pool {
 public:
  Pool(torch::nn::Module& owner, const SummaryOptions& options, const BuildContext& context);

  // Whether what is pooled of rows is not the rows themselves: of a set of one, too.
  [[nodiscard]] bool prepares() const { return options_.pool == "relu" || options_.pool == "deepsets"; }
  // What is pooled of rows [b,h,n,d].
  [[nodiscard]] at::Tensor queries(const at::Tensor& q) const { return prepared(q, query_); }
  [[nodiscard]] at::Tensor keys(const at::Tensor& k) const { return prepared(k, key_); }
  // Of the valid rows of each set of tokens: [b,h,n,d] -> [b,h,t,d], 0 of no row. `counts`: their numbers [b,1,t,1].
  [[nodiscard]] at::Tensor of_sets(const at::Tensor& x, const kernels::TokenSets& sets,
                                   const at::Tensor& counts) const {
    return finished(gathered(x, sets), counts).to(x.scalar_type());
  }
  // The same in two steps, the first of which can be taken again, of sets of sets: sums of bf16 are float.
  [[nodiscard]] at::Tensor gathered(const at::Tensor& x, const kernels::TokenSets& sets) const;
  [[nodiscard]] at::Tensor finished(const at::Tensor& x, const at::Tensor& counts) const {
    return options_.pool == "mean" ? x / counts.clamp_min(1) : x;
  }
  // Of the cells of a grid [b,h,R,C,d] before each one along `dim` (2 or 3), or behind it; valid [b,1,R,C,1].
  [[nodiscard]] at::Tensor before(const at::Tensor& x, const at::Tensor& valid, int64_t dim, bool behind) const;
  // What the logit of a summary of so many tokens gains: log(count) with log_count_bias, -infinity of none.
  [[nodiscard]] at::Tensor bias(const at::Tensor& count) const;
  [[nodiscard]] double flops(double rows, double width) const { return key_ ? 4 * rows * width * width : 0; }

 private:
  [[nodiscard]] at::Tensor prepared(const at::Tensor& x, const std::shared_ptr<Linear>& map) const;

  SummaryOptions options_;
  std::shared_ptr<Linear> query_, key_;  // [d,d], the same for all heads
};

// How many valid rows stand before each one along `dim`, or behind it.
[[nodiscard]] at::Tensor count_before(const at::Tensor& valid, int64_t dim, bool behind);

// What the logits of keys gain: nothing of valid ones, -infinity of the others.
[[nodiscard]] at::Tensor none_unless(const at::Tensor& valid);

// Some of the keys of one softmax: their mean under it, and the log of the sum of its exponentials.
struct Part {
  at::Tensor out, log_sum;  // [b,h,m,d], [b,h,m,1]; one of several parts may have more rows than are wanted.
                            // Without log_sum: it is of all keys, pinned ones too
};
// The softmax over the keys of all parts, of their first n rows.
[[nodiscard]] at::Tensor joined(const std::vector<Part>& parts, int64_t n);
// softmax(q k^T / sqrt(d) + bias) v over allowed keys, with its weights in memory; rows without one are zero. allowed
// and bias broadcast to [..,rows,keys]; a bias that is undefined is none. bf16 is computed with in float.
[[nodiscard]] Part explicit_part(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const at::Tensor& allowed, const at::Tensor& bias, const kernels::DropoutPlace& drop);

// The frame of a pattern that knows nothing of tokens pinned in front (CLS): those see all and are seen by all, if
// causal by later ones.
class PinnedFrame {
 public:
  explicit PinnedFrame(const BuildContext& context);

  struct Tokens {
    at::Tensor q, k, v;  // [b,h,n,d] behind the pinned ones
    at::Tensor valid;    // [b,n] bool, defined
    bool padded;         // whether there may be other tokens, and those of them not zero
    at::Tensor pinned_k = {}, pinned_v = {}, pinned_valid = {};  // [b,h,p,d], [b,p]; undefined without pinned ones

    // The same with zeros for those: for operations that do not know of padding.
    [[nodiscard]] Tokens without_padding() const;
  };
  // The parts of one or more softmaxes, whose outputs are averaged.
  using Attend = std::function<std::vector<std::vector<Part>>(const Tokens& tokens)>;
  [[nodiscard]] at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const SequenceMask& mask, bool training, const Attend& attend) const;

  // Pairs of one head, on top of those of the pattern over n - pinned(n) tokens: executed, and of the pattern.
  [[nodiscard]] int64_t pinned(int64_t n) const { return std::min(pinned_, n); }
  [[nodiscard]] double executed_pairs(int64_t n) const;
  [[nodiscard]] double pattern_pairs(int64_t n) const;
  [[nodiscard]] bool causal() const { return causal_; }

 private:
  int64_t pinned_;
  bool causal_;
  kernels::Dropout row_dropout_, key_dropout_;
};

}  // namespace xformer::attention
