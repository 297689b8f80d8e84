// Sparse Transformer: Child, Gray, Radford, Sutskever, "Generating Long Sequences with Sparse Transformers", 2019,
// section 4.3, with stride l. Row i sees, in one softmax,
//   sparse-fixed    {j: floor(j / l) = floor(i / l)} and the summary {j: j mod l >= l - c}
//   sparse-strided  {j: |i - j| < l} and {j: (i - j) mod l = 0}
// and, if causal, of these only j <= i. Both sets are merged in every head; with head_split the first half of the heads
// (rounded up) takes the first set and the others the second. The window is l wide as in the public codes, not l + 1.
// Tokens pinned in front (CLS) stand outside the pattern: they see and are seen by all (if causal, by later ones), as
// in the Long Range Arena's code, which summary_first follows too: it adds the first column of each block to the
// summary. A row without any key, as causal rows before the first summary of a split head, gives zero.
#include <algorithm>
#include <cmath>

#include "attention/descriptor.h"
#include "attention/shared/index_tables.h"
#include "attention/shared/windows.h"
#include "kernels/batched_product/batched_product.h"
#include "kernels/fused.h"
#include "tensor/parts.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::sparse {

struct StridedOptions {
  int64_t stride = 50;
  bool head_split = false;
};

struct FixedOptions {
  int64_t stride = 50, summary = 10;
  bool summary_first = false, head_split = false;
};

// What both patterns share: pinned tokens, heads split or not, and the sum of costs. Below, m is the length without
// pinned tokens, t its blocks of l tokens, p the pinned tokens.
class SparseCore : public AttentionCore {
 public:
  SparseCore(int64_t stride, bool head_split, const BuildContext& context)
      : stride_(stride),
        causal_(context.causal),
        dropout_(context.make_dropout()),
        other_dropout_(context.make_dropout()),
        pinned_dropout_(context.make_dropout()),
        head_split_(head_split),
        pinned_(context.pinned_tokens) {
    XF_CHECK(!head_split || context.heads > 1, UserError,
             "attention.head_split: one set of keys for some heads and one for the others needs two heads, got {}",
             context.heads);
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    const int64_t n = q.size(2), p = std::min(pinned_, n);
    XF_ASSERT(mask.causal == causal_ && k.size(2) == n, "sparse attends within one sequence, causal {}", causal_);
    const at::Tensor pinned_rows = p > 0 ? pinned(p, q, k, v, mask) : at::Tensor();
    if (p == n) return pinned_rows;
    Input in;
    in.valid = mask.all_valid() ? at::Tensor() : mask.key_valid.narrow(1, p, n - p);
    if (p > 0) {
      in.pinned = {k.narrow(2, 0, p), v.narrow(2, 0, p), {}};
      if (!mask.all_valid()) in.pinned.allowed = mask.key_valid.narrow(1, 0, p).unsqueeze(1);
    }
    const int64_t heads = q.size(1), first = head_split_ ? (heads + 1) / 2 : heads;
    const auto half = [&](int64_t from, int64_t count) {
      Input part = in;
      const auto take = [&](const at::Tensor& x) { return part_of(x, 1, from, count); };
      const auto behind = [&](const at::Tensor& x) { return part_of(take(x), 2, p, n - p); };
      part.q = behind(q), part.k = behind(k), part.v = behind(v);
      if (p > 0) part.pinned.k = take(part.pinned.k), part.pinned.v = take(part.pinned.v);
      return part;
    };
    at::Tensor result;
    if (head_split_) {
      at::Tensor near, far;
      {
        const ProbeScope scope("near");
        near = attend(half(0, first), true, false);
      }
      {
        const ProbeScope scope("far");
        far = attend(half(first, heads - first), false, true);
      }
      result = at::cat({near, far}, 1);
    } else {
      result = attend(half(0, heads), true, true);
    }
    return p > 0 ? at::cat({pinned_rows, result}, 2) : result;
  }

  [[nodiscard]] bool takes_bf16() const override { return true; }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const int64_t n = shape.query_len, p = std::min(pinned_, n), m = n - p, heads = shape.heads;
    Pairs sum;  // over heads
    const double rows = static_cast<double>(p) * static_cast<double>(causal_ ? p : n);
    const double rows_pattern = causal_ ? static_cast<double>(p * (p + 1) / 2) : rows;
    const auto add = [&](int64_t count, bool near, bool far) {
      const Pairs pairs = m > 0 ? this->pairs(m, p, near, far) : Pairs{};
      sum.executed += static_cast<double>(count) * (pairs.executed + rows);
      sum.kept += static_cast<double>(count) * (pairs.kept + rows);
      sum.pattern += static_cast<double>(count) * (pairs.pattern + static_cast<double>(m * p) + rows_pattern);
    };
    if (head_split_) add((heads + 1) / 2, true, false), add(heads / 2, false, true);
    else add(heads, true, true);
    const double each = static_cast<double>(shape.batch), flops = 4 * each * static_cast<double>(shape.head_dim);
    const double windows =
        kept_of_windows(each * static_cast<double>(heads), static_cast<double>(m), static_cast<double>(shape.head_dim));
    return {flops * sum.executed, flops * sum.pattern, windows + 2 * each * sum.kept};
  }

 protected:
  struct Input {
    at::Tensor q, k, v, valid;  // [b,h,m,d], [b,m] or undefined
    ExtraKeys pinned;
  };
  struct Pairs {
    double executed = 0, pattern = 0;
    double kept = 0;  // of those executed, with their weights
  };
  // Rows over the first set of keys, the second or both, and over the pinned keys.
  [[nodiscard]] virtual at::Tensor attend(const Input& in, bool near, bool far) const = 0;
  // Pairs of one head; in `pattern` without the pinned ones.
  [[nodiscard]] virtual Pairs pairs(int64_t m, int64_t p, bool near, bool far) const = 0;

  [[nodiscard]] int64_t blocks(int64_t m) const { return (m + stride_ - 1) / stride_; }

  int64_t stride_;
  bool causal_;
  kernels::Dropout dropout_, other_dropout_, pinned_dropout_;
  IndexTables tables_;

 private:
  // The first p rows see all keys; if causal, those up to themselves.
  [[nodiscard]] at::Tensor pinned(int64_t p, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const SequenceMask& mask) const {
    const int64_t keys = causal_ ? p : k.size(2);
    const SequenceMask seen{mask.all_valid() ? at::Tensor() : mask.key_valid.narrow(1, 0, keys), causal_};
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    const auto rows = [](const at::Tensor& x, int64_t count) { return kernels::in_float(x.narrow(2, 0, count)); };
    const at::Tensor weights = masked_softmax(at::matmul(rows(q, p) * scale, rows(k, keys).transpose(-1, -2)), seen);
    return at::matmul(pinned_dropout_(weights, is_training()), rows(v, keys));
  }

  bool head_split_;
  int64_t pinned_;
};

class StridedCore : public SparseCore {
 public:
  StridedCore(const StridedOptions& options, const BuildContext& context)
      : SparseCore(options.stride, options.head_split, context) {}

 private:
  [[nodiscard]] Windows window(int64_t m) const { return Windows::sliding(m, stride_ - 1, causal_ ? 0 : stride_ - 1); }
  [[nodiscard]] Windows residues(int64_t m) const { return Windows::own_block(m, blocks(m), causal_, stride_); }

  [[nodiscard]] at::Tensor attend(const Input& in, bool near, bool far) const override {
    const int64_t m = in.q.size(2);
    const Windows residues = this->residues(m);
    if (!near) return window_attention(in.q, in.k, in.v, in.valid, residues, other_dropout_, is_training(), in.pinned);
    if (!far || residues.block == 1)  // then a residue is the row itself
      return window_attention(in.q, in.k, in.v, in.valid, window(m), dropout_, is_training(), in.pinned);
    at::Tensor near_sum;
    const at::Tensor near_out =
        window_attention(in.q, in.k, in.v, in.valid, window(m), dropout_, is_training(), in.pinned, &near_sum);

    return with_residues({near_out, near_sum}, in.q, in.k, in.v, in.valid, residues, other_dropout_, is_training(),
                         tables_);
  }

  [[nodiscard]] Pairs pairs(int64_t m, int64_t p, bool near, bool far) const override {
    Pairs result;
    const bool both = near && far && blocks(m) > 1;
    const auto add = [&](const Windows& windows) {
      result.executed += windows.executed_pairs() + static_cast<double>(m * p);
      result.pattern += windows.pattern_pairs();
    };
    if (near) add(window(m));
    else add(residues(m));
    if (both) {
      result.kept = residues(m).explicit_pairs();
      result.executed += result.kept;
      result.pattern += residues(m).pattern_pairs() - static_cast<double>(m);
    }
    return result;
  }
};

class FixedCore : public SparseCore {
 public:
  FixedCore(const FixedOptions& options, const BuildContext& context)
      : SparseCore(options.stride, options.head_split, context),
        summary_(options.summary),
        first_too_(options.summary_first && options.summary < options.stride) {
    XF_CHECK(options.summary <= options.stride, UserError,
             "attention.summary: expected at most attention.stride = {}, got {}", options.stride, options.summary);
  }

 private:
  [[nodiscard]] int64_t columns() const { return summary_ + (first_too_ ? 1 : 0); }  // per block
  [[nodiscard]] Windows own(int64_t m) const { return Windows::own_block(m, stride_, causal_); }

  [[nodiscard]] at::Tensor attend(const Input& in, bool near, bool far) const override {
    const int64_t m = in.q.size(2), t = blocks(m);
    const bool training = is_training();
    if (!far || (near && t == 1))
      return window_attention(in.q, in.k, in.v, in.valid, own(m), dropout_, training, in.pinned);
    // The summary columns of all blocks: [b,h,m,d] -> [b,h,t c,d].
    const auto summary = [&](const at::Tensor& x) {
      const at::Tensor blocks = with_zeros_behind(x, 2, t * stride_ - m).unflatten(2, {t, stride_});
      const at::Tensor last = blocks.narrow(3, stride_ - summary_, summary_);
      return (first_too_ ? at::cat({blocks.narrow(3, 0, 1), last}, 3) : last).flatten(2, 3);
    };
    const auto numbers = in.q.options().dtype(at::kLong);
    const at::Tensor valid = in.valid.defined() ? in.valid : at::ones({1, m}, numbers.dtype(at::kBool));
    at::Tensor k = summary(in.k), v = summary(in.v), allowed = summary(valid.unsqueeze(1).unsqueeze(-1)).squeeze(-1);
    const int64_t p = in.pinned.k.defined() ? in.pinned.k.size(2) : 0;
    if (p > 0) {
      k = at::cat({in.pinned.k, k}, 2), v = at::cat({in.pinned.v, v}, 2);
      const at::Tensor seen = in.pinned.allowed.defined() ? in.pinned.allowed : at::ones({1, 1, p}, allowed.options());
      allowed = at::cat({seen, allowed}, 2);  // [b or 1,1,g]
    }
    if (near)
      return window_attention(in.q, in.k, in.v, in.valid, own(m), dropout_, training,
                              {k, v, allowed, elsewhere(t, p, in.q.device())});
    allowed = allowed.unsqueeze(2);
    if (causal_) {
      const at::Tensor earlier = tables_.get("earlier", {m, p}, in.q.device(), [&](const at::TensorOptions& places) {
        const at::Tensor row = at::arange(m, places);
        return at::cat({at::full({p}, -1, places), summary(row.view({1, 1, m, 1})).flatten()}).le(row.unsqueeze(1));
      });
      allowed = allowed.logical_and(earlier);  // [b or 1,1,m,g]
    }
    const at::Tensor q = kernels::in_float(in.q) / std::sqrt(static_cast<double>(in.q.size(-1)));
    const at::Tensor scores = kernels::batched_product(q, kernels::in_float(k).transpose(-1, -2));
    const PartialWeights part = partial_softmax(scores, allowed);
    probe("weights", part.weights);
    return kernels::batched_product(other_dropout_(part.weights, training), kernels::in_float(v));
  }

  // What rows of each block see beside it of p pinned keys and the summaries of t blocks [1,t,p + t c]: the
  // pinned ones and the summaries of other blocks, if causal of earlier ones; -1 for its own, which it has already.
  [[nodiscard]] at::Tensor elsewhere(int64_t t, int64_t p, const at::Device& device) const {
    return tables_.get("elsewhere", {t, p}, device, [&](const at::TensorOptions& numbers) {
      const at::Tensor row = at::arange(t, numbers).unsqueeze(1);  // [t,1]
      const at::Tensor block = row.expand({t, columns()}).flatten();
      const at::Tensor seen = causal_ ? block.lt(row) : block.ne(row);  // [t,t c]
      const at::Tensor places = at::where(seen, at::arange(p, p + t * columns(), numbers), -1);
      return at::cat({at::arange(p, numbers).expand({t, p}), places}, 1).unsqueeze(0);
    });
  }

  [[nodiscard]] Pairs pairs(int64_t m, int64_t p, bool near, bool far) const override {
    Pairs result;
    const Windows own = this->own(m);
    const int64_t t = blocks(m);
    const bool summaries = far && (!near || t > 1);
    if (near) result = {own.executed_pairs(), own.pattern_pairs()};
    result.executed += static_cast<double>(m * (p + (summaries ? t * columns() : 0)));
    if (!near) result.kept = result.executed;
    if (!summaries) return result;
    for (int64_t j = 0; j < m; ++j) {  // rows that see column j as a summary
      if (j % stride_ < stride_ - summary_ && !(first_too_ && j % stride_ == 0)) continue;
      const int64_t first = j / stride_ * stride_, last = std::min(first + stride_, m);  // the block of j
      if (near) result.pattern += static_cast<double>(causal_ ? m - last : m - (last - first));
      else result.pattern += static_cast<double>(causal_ ? m - j : m);
    }
    return result;
  }

  int64_t summary_;
  bool first_too_;
};

template <class Options>
Schema<Options> common_schema() {
  return Schema<Options>()
      .add(&Options::stride, "stride", "tokens per block or between two keys of the far set (l)", at_least(1))
      .add(&Options::head_split, "head_split", "near keys for the first half of the heads, far keys for the others");
}

const Schema<StridedOptions>& strided_schema() {
  static const Schema<StridedOptions> kSchema = common_schema<StridedOptions>();
  return kSchema;
}

const Schema<FixedOptions>& fixed_schema() {
  static const Schema<FixedOptions> kSchema =
      common_schema<FixedOptions>()
          .add(&FixedOptions::summary, "summary", "last tokens of each block that all see (c)", at_least(1))
          .add(&FixedOptions::summary_first, "summary_first", "the first token of each block is seen by all, too");
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor fixed;
  fixed.name = "sparse-fixed";
  fixed.title = "Sparse Transformer, fixed";
  fixed.paper = "Child, Gray, Radford, Sutskever: Generating Long Sequences with Sparse Transformers, 2019";
  fixed.method_class = "FP";
  fixed.summary = "Each token sees its block and the last tokens of all blocks; n sqrt n with blocks of sqrt n tokens.";
  fixed.complexity = Complexity::kRootN;
  fixed.traits = {.causal_ok = true};
  fixed.appended_padding = always_exact();
  fixed.options = fixed_schema().options();
  fixed.dense_limit = Json{{"stride", 1 << 30}};
  fixed.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<FixedCore>(fixed_schema().read(options), context);
  };

  Descriptor strided = fixed;
  strided.name = "sparse-strided";
  strided.title = "Sparse Transformer, strided";
  strided.summary = "Each token sees a window and every l-th token from itself; n sqrt n with l of sqrt n tokens.";
  strided.options = strided_schema().options();
  strided.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<StridedCore>(strided_schema().read(options), context);
  };
  return {fixed, strided};
}

}  // namespace xformer::attention::variants::sparse
