// Combiner-Fixed and Combiner-Logsparse: Ren, Dai, Dai, Yang, Leskovec, Schuurmans, Dai, "Combiner: Full Attention
// Transformer with Sparse Computation Cost", NeurIPS 2021, sections 3 and 4.1, 4.2, and its code (JAX and TensorFlow).
// Row i sees all tokens that it may see, in one softmax: some as they are, the others in disjoint sets through the
// summaries of attention/shared/summaries.h. Spans and blocks count from the first token.
//   combiner-fixed      its own span of s tokens, and a summary of every other span, if causal of every earlier one
//   combiner-logsparse  itself; for every bit l that is set in i the block of 2^l tokens left of its own block of that
//                       size. Bidirectional also, for every bit that is clear, the block right of it: the paper leaves
//                       these open, and so all blocks are of one pyramid and tile the sequence.
// Levels come from the length itself; the code takes one too few for 2 and for 2^m + 1 tokens. Pinned tokens (CLS)
// stand outside. With spans of one token, or one span, it is softmax attention.
#include <ATen/OpMathType.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "attention/shared/index_tables.h"
#include "attention/shared/summaries.h"
#include "kernels/listed_attention/listed_attention.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::combiner {

struct FixedOptions : SummaryOptions {
  int64_t block = 0;
};

// What both share: pooled sets that do not overlap, with their expectations.
class SetsCore : public AttentionCore {
 public:
  SetsCore(const SummaryOptions& options, const BuildContext& context)
      : frame_(context),
        pool_(*this, options, context),
        bias_(options.log_count_bias),
        dropout_(context.make_dropout()) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    return frame_.forward(q, k, v, mask, is_training(),
                          [&](const PinnedFrame::Tokens& in) { return std::vector<std::vector<Part>>{{attend(in)}}; });
  }

  [[nodiscard]] bool takes_bf16() const override { return true; }

 protected:
  using Tokens = PinnedFrame::Tokens;
  [[nodiscard]] virtual Part attend(const Tokens& in) const = 0;

  PinnedFrame frame_;
  Pool pool_;
  bool bias_;
  kernels::Dropout dropout_;  // of the joint softmax
};

class FixedCore : public SetsCore {
 public:
  FixedCore(const FixedOptions& options, const BuildContext& context)
      : SetsCore(options, context), set_dropout_(context.make_dropout()) {
    XF_ASSERT(context.max_len > 0, "combiner-fixed needs the longest length when it is built");
    const double root = std::sqrt(static_cast<double>(context.max_len - frame_.pinned(context.max_len)));
    span_ =
        options.block > 0 ? options.block : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::ceil(root))));
  }

  // Rows that read pinned tokens, too, do so whether or not they are padding.
  [[nodiscard]] bool zeroes_padding() const override { return frame_.pinned(1) == 0; }
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const int64_t n = shape.query_len, rows = n - frame_.pinned(n);
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    double pairs = frame_.executed_pairs(n), pattern = frame_.pattern_pairs(n), joint = 0, kept = 0, maps = 0;
    if (rows > 0) {
      const Windows own = this->own(rows);
      const int64_t t = spans(rows), sets = t == 1 ? 0 : t;
      joint = own.executed_pairs() + static_cast<double>(rows * sets);
      pairs += static_cast<double>(t == 1 ? 0 : rows);
      pattern += own.pattern_pairs() + static_cast<double>(t == 1 ? 0 : rows);
      for (int64_t a = 0; a < t; ++a)
        pattern += static_cast<double>(std::min(own.block, rows - a * own.block) * (frame_.causal() ? a : t - 1));
      maps = t == 1 ? 0 : pool_.flops(static_cast<double>(rows), d);
      // Of a set its query, key and value, and the log of its sum.
      kept = kept_of_windows(1, static_cast<double>(rows), d) + static_cast<double>(sets) * (3 * d + 1);
    }
    return {z * (4 * d * (pairs + joint) + maps), z * (4 * d * pattern + maps),
            z * (kept + 2 * frame_.executed_pairs(n))};
  }

 private:
  [[nodiscard]] int64_t spans(int64_t rows) const { return rows > 0 ? (rows + span_ - 1) / span_ : 0; }
  [[nodiscard]] Windows own(int64_t rows) const { return Windows::own_block(rows, span_, frame_.causal()); }

  [[nodiscard]] Part attend(const Tokens& in) const override {
    const int64_t n = in.q.size(2), t = spans(n);
    const Windows own = this->own(n);
    Part result;
    if (t == 1) {
      result.out = window_attention(in.q, in.k, in.v, in.valid, own, dropout_, is_training(), {}, &result.log_sum);
      return result;
    }
    const kernels::TokenSets sets{own.block, in.valid};
    const at::Tensor count = kernels::in_sets(in.valid.unsqueeze(1).unsqueeze(-1), sets).sum(3);  // [b,1,t,1]
    const at::Tensor k = pool_.of_sets(pool_.keys(in.k), sets, count);
    const at::Tensor q = pool_.of_sets(pool_.queries(in.q), sets, count);
    const at::Tensor v = [&] {
      const ProbeScope scope("sets");
      return kernels::set_attention(q, in.k, in.v, {sets, set_dropout_.place(is_training())});
    }();
    // Which spans rows of each span read [1,t,t]: the others, if causal the earlier ones.
    const at::Tensor places = tables_.get("places", {t}, in.q.device(), [&](const at::TensorOptions& numbers) {
      const at::Tensor place = at::arange(t, numbers), row = place.unsqueeze(1);
      return at::where(frame_.causal() ? place.lt(row) : place.ne(row), place, -1).unsqueeze(0);
    });
    const at::Tensor allowed = count.gt(0).squeeze(-1);                            // [b,1,t]
    const at::Tensor bias = bias_ ? pool_.bias(count).squeeze(-1) : at::Tensor();  // [b,1,t]
    result.out = window_attention(in.q, in.k, in.v, in.valid, own, dropout_, is_training(),
                                  {k, v, allowed, places, bias}, &result.log_sum);
    return result;
  }

  int64_t span_ = 1;
  kernels::Dropout set_dropout_;
  IndexTables tables_;
};

// Tokens and the blocks of all levels are rows of one table; each row reads its own short list of them.
class LogsparseCore : public SetsCore {
 public:
  LogsparseCore(const SummaryOptions& options, const BuildContext& context) : SetsCore(options, context) {
    XF_ASSERT(context.max_len > 0, "combiner-logsparse needs the longest length when it is built");
    for (int64_t level = 1; level < std::max<int64_t>(2, levels(context.max_len)); ++level)
      set_dropouts_.push_back(context.make_dropout());
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const int64_t n = shape.query_len, rows = n - frame_.pinned(n);
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    int64_t pairs = 0, summaries = 0;
    if (rows > 0) {
      for (int64_t level = 1; level < levels(rows); ++level) {
        pairs += rows;  // of tokens with their own blocks
        summaries += blocks(rows, level);
      }
      for (int64_t i = 0; i < rows; ++i)
        for (const int64_t place : places_of(i, rows)) pairs += place >= 0 ? 1 : 0;
    }
    const double flops = z * (4 * d * (frame_.pattern_pairs(n) + static_cast<double>(pairs)) +
                              pool_.flops(static_cast<double>(rows), d));
    const double executed = z * 4 * d * (frame_.executed_pairs(n) - frame_.pattern_pairs(n)) + flops;
    // Queries, keys, values, outputs, the table of keys and values, and of each block its query, key and value.
    const double table = static_cast<double>(rows * (pool_.prepares() ? 2 : 1) + summaries);
    return {executed, flops,
            z * (kept_of_windows(1, static_cast<double>(rows), d) + 2 * table * d +
                 static_cast<double>(summaries) * (3 * d + 1) + 2 * frame_.executed_pairs(n))};
  }

 private:
  // Blocks of a level; levels that have two or more.
  static int64_t blocks(int64_t rows, int64_t level) { return (rows + (int64_t{1} << level) - 1) >> level; }
  static int64_t levels(int64_t rows) { return std::bit_width(static_cast<uint64_t>(rows - 1)); }
  // Where in the table what row i of so many reads is: itself, and beside its own block of every level one, or -1.
  [[nodiscard]] std::vector<int64_t> places_of(int64_t i, int64_t rows) const {
    std::vector<int64_t> result{i};
    int64_t first = pool_.prepares() ? rows : 0;  // of the blocks of one token
    for (int64_t level = 0; level < levels(rows); first += blocks(rows, level), ++level) {
      const int64_t own = i >> level;
      if (own % 2 == 1) result.push_back(first + own - 1);
      else result.push_back(!frame_.causal() && own + 1 < blocks(rows, level) ? first + own + 1 : -1);
    }
    return result;
  }
  // Of all rows [1,1,n,L], behind so many pinned tokens, which all read.
  [[nodiscard]] at::Tensor places(int64_t rows, int64_t pinned, const at::TensorOptions& numbers) const {
    std::vector<int64_t> result;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t token = 0; token < pinned; ++token) result.push_back(token);
      for (const int64_t place : places_of(i, rows)) result.push_back(place < 0 ? place : pinned + place);
    }
    return host_table(at::tensor(result, at::kLong).view({1, 1, rows, -1}), numbers.device());
  }

  [[nodiscard]] Part attend(const Tokens& given) const override {
    // Kernels do not read padding, but a map's gradient would.
    const Tokens in = pool_.prepares() ? given.without_padding() : given;
    const int64_t b = in.q.size(0), h = in.q.size(1), n = in.q.size(2);
    const int64_t pinned = in.pinned_k.defined() ? in.pinned_k.size(2) : 0;
    std::vector<at::Tensor> k, v, count;  // [b,h,t,d], [b,t]
    if (pinned > 0) k.push_back(in.pinned_k), v.push_back(in.pinned_v), count.push_back(in.pinned_valid.to(at::kLong));
    k.push_back(in.k), v.push_back(in.v), count.push_back(in.valid.to(at::kLong));
    if (levels(n) > 0) {
      // Of a level's blocks, which are pairs of those below: what is pooled of queries and keys, and tokens that count.
      at::Tensor level_q = pool_.queries(in.q), level_k = pool_.keys(in.k);
      at::Tensor tokens = in.valid.to(at::kLong).unsqueeze(1).unsqueeze(-1);  // [b,1,t,1]
      std::vector<at::Tensor> queries;
      kernels::NestedSetsOptions blocks;
      blocks.valid = in.valid;
      if (pool_.prepares()) k.push_back(level_k), v.push_back(in.v), count.push_back(count.back());
      for (int64_t level = 1; level < levels(n); ++level) {
        const kernels::TokenSets pairs{2, tokens.gt(0).flatten(1)};
        level_q = pool_.gathered(level_q, pairs), level_k = pool_.gathered(level_k, pairs);
        tokens = kernels::in_sets(tokens, pairs).sum(3);
        const size_t site = std::min(static_cast<size_t>(level), set_dropouts_.size()) - 1;
        k.push_back(pool_.finished(level_k, tokens).to(in.k.scalar_type())), count.push_back(tokens.flatten(1));
        queries.push_back(pool_.finished(level_q, tokens));
        blocks.dropout = set_dropouts_[site].place(is_training());
        blocks.sizes.push_back(int64_t{1} << level), blocks.sites.push_back(blocks.dropout.site);
      }
      if (!queries.empty())
        for (const at::Tensor& values : kernels::nested_set_attention(queries, in.k, in.v, blocks)) v.push_back(values);
    }
    const at::Tensor list = tables_.get("places", {n, pinned}, in.q.device(),
                                        [&](const at::TensorOptions& numbers) { return places(n, pinned, numbers); });
    const at::Tensor counts = at::cat(count, 1);
    at::Tensor bias;
    if (bias_) {
      const at::Tensor of_keys =
          at::where(counts.gt(0), pool_.bias(counts), 0).to(at::toOpMathType(in.q.scalar_type()));
      const at::Tensor of_rows = of_keys.index_select(1, list.clamp_min(0).flatten()).view({b, 1, n, -1});
      bias = of_rows.expand({b, h, n, -1}).contiguous();
    }
    return {kernels::listed_attention(in.q, at::cat(k, 2), at::cat(v, 2),
                                      {list, {}, counts.gt(0), in.valid, dropout_.place(is_training())}, bias),
            {}};
  }

  std::vector<kernels::Dropout> set_dropouts_;  // by level, from 1 on, of the longest length; of longer ones the last
  IndexTables tables_;
};

const Schema<FixedOptions>& fixed_schema() {
  static const Schema<FixedOptions> kSchema =
      Schema<FixedOptions>()
          .add(&FixedOptions::block, "block", "tokens per block (b)", at_least(0))
          .include(summary_schema());
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor fixed;
  fixed.name = "combiner-fixed";
  fixed.title = "Combiner, fixed spans";
  fixed.paper =
      "Ren, Dai, Dai, Yang, Leskovec, Schuurmans, Dai: Combiner: Full Attention Transformer with Sparse Computation "
      "Cost, 2021";
  fixed.method_class = "FP";
  fixed.summary =
      "Each token sees its span and summaries of all others in one softmax; block=0 are spans of the power of two "
      "above the root of the longest length.";
  fixed.complexity = Complexity::kRootN;
  fixed.traits = {.causal_ok = true};
  fixed.appended_padding = always_exact();
  fixed.options = fixed_schema().options();
  fixed.tensors = summary_meanings();
  fixed.dense_limit = Json{{"block", 1 << 30}};
  fixed.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<FixedCore>(fixed_schema().read(options), context);
  };

  Descriptor logsparse = fixed;
  logsparse.name = "combiner-logsparse";
  logsparse.title = "Combiner, logarithmic";
  logsparse.summary = "Each token sees itself and summaries of blocks of 1, 2, 4, ... tokens that tile the rest.";
  logsparse.complexity = Complexity::kLinearithmic;
  logsparse.options = summary_schema().options();
  logsparse.dense_limit = std::nullopt;
  logsparse.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<LogsparseCore>(summary_schema().read(options), context);
  };
  return {fixed, logsparse};
}

}  // namespace xformer::attention::variants::combiner
