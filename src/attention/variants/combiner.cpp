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
#include <algorithm>
#include <bit>
#include <cmath>

#include "attention/shared/index_tables.h"
#include "attention/shared/summaries.h"
#include "tensor/parts.h"
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

 protected:
  using Tokens = PinnedFrame::Tokens;
  [[nodiscard]] virtual Part attend(const Tokens& in) const = 0;

  struct Sets {
    at::Tensor k, v, count;  // [b,h,t,d], [b,1,t,1] valid tokens
  };
  // Of blocks of so many tokens; the last one may have fewer.
  [[nodiscard]] Sets sets_of(const Tokens& in, const at::Tensor& pooled_q, const at::Tensor& pooled_k, int64_t size,
                             const kernels::Dropout& dropout) const {
    const kernels::TokenSets sets{size, in.valid};
    const at::Tensor count = kernels::in_sets(in.valid.unsqueeze(1).unsqueeze(-1), sets).sum(3);
    const at::Tensor q = pool_.of_sets(pooled_q, sets, count), k = pool_.of_sets(pooled_k, sets, count);
    return {k, kernels::set_attention(q, in.k, in.v, {sets, dropout.place(is_training())}), count};
  }

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
    const Sets sets = sets_of(in, pool_.queries(in.q), pool_.keys(in.k), own.block, set_dropout_);
    // Which spans rows of each span read [1,t,t]: the others, if causal the earlier ones.
    const at::Tensor places = tables_.get("places", {t}, in.q.device(), [&](const at::TensorOptions& numbers) {
      const at::Tensor place = at::arange(t, numbers), row = place.unsqueeze(1);
      return at::where(frame_.causal() ? place.lt(row) : place.ne(row), place, -1).unsqueeze(0);
    });
    const at::Tensor allowed = sets.count.gt(0).squeeze(-1);                            // [b,1,t]
    const at::Tensor bias = bias_ ? pool_.bias(sets.count).squeeze(-1) : at::Tensor();  // [b,1,t]
    result.out = window_attention(in.q, in.k, in.v, in.valid, own, dropout_, is_training(),
                                  {sets.k, sets.v, allowed, places, bias}, &result.log_sum);
    return result;
  }

  int64_t span_ = 1;
  kernels::Dropout set_dropout_;
  IndexTables tables_;
};

constexpr int64_t kFine = 8, kFineLevels = 3;     // tokens of a group, whose levels 0 to 2 lie inside it
constexpr int64_t kFineKeys = kFine + 8 + 4 + 2;  // its tokens, and the blocks of these levels

// Rows go in groups of eight. The three lowest levels lie inside a group and are read by a small dense product under a
// mask; of the higher levels all rows of a group read the same blocks, laid beside them.
class LogsparseCore : public SetsCore {
 public:
  LogsparseCore(const SummaryOptions& options, const BuildContext& context) : SetsCore(options, context) {
    XF_ASSERT(context.max_len > 0, "combiner-logsparse needs the longest length when it is built");
    for (int64_t level = 1; level < levels(padded(context.max_len)); ++level)
      set_dropouts_.push_back(context.make_dropout());
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const int64_t n = shape.query_len, rows = n - frame_.pinned(n), length = padded(rows);  // 0 of pinned tokens alone
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    int64_t local = 0, least = 0, joint = 0;
    if (rows > 0) {
      local = (levels(length) - 1) * rows;
      joint = length * (kFineKeys + levels(length) - kFineLevels);
      for (int64_t level = 0; (int64_t{1} << level) < rows; ++level) least += level == 0 ? 0 : rows;
      for (int64_t i = 0; i < rows; ++i) least += keys(i, rows);
    }
    const double executed = frame_.executed_pairs(n) + static_cast<double>(local + joint);
    const double pattern = frame_.pattern_pairs(n) + static_cast<double>(least);
    return {z * (4 * d * executed + pool_.flops(static_cast<double>(length), d)),
            z * (4 * d * pattern + pool_.flops(static_cast<double>(rows), d)),
            z * (2 * (frame_.executed_pairs(n) + static_cast<double>(joint)) + 16 * static_cast<double>(length) * d)};
  }

 private:
  static int64_t padded(int64_t rows) { return (rows + kFine - 1) / kFine * kFine; }
  // Blocks of a level, of a padded length; levels that have two or more, at least the lowest three.
  static int64_t blocks(int64_t length, int64_t level) { return (length + (int64_t{1} << level) - 1) >> level; }
  static int64_t levels(int64_t length) { return std::bit_width(static_cast<uint64_t>(length - 1)); }
  // Terms of row i of n: itself and the blocks that it reads.
  [[nodiscard]] int64_t keys(int64_t i, int64_t n) const {
    int64_t result = 1;
    for (int64_t level = 0; (int64_t{1} << level) < n; ++level) {
      const int64_t block = i >> level;
      if (block % 2 == 1 || (!frame_.causal() && (block + 1) << level < n)) ++result;
    }
    return result;
  }

  // The block of a higher level that the rows of each group read [g], -1: none.
  [[nodiscard]] at::Tensor beside(int64_t length, int64_t level, const at::TensorOptions& numbers) const {
    const at::Tensor own = at::arange(length / kFine, numbers).div(int64_t{1} << (level - kFineLevels), "floor");
    const at::Tensor odd = own.remainder(2), block = own + 1 - 2 * odd;
    at::Tensor link = block.lt(blocks(length, level));
    if (frame_.causal()) link = link.logical_and(odd.eq(1));
    return at::where(link, block, -1);
  }
  // Which of the keys beside it each row of a group reads, bool [g,8,L]: tokens, blocks of the lowest levels, one of
  // each higher level.
  [[nodiscard]] at::Tensor links(int64_t length, const at::TensorOptions& numbers) const {
    const int64_t groups = length / kFine;
    const at::Tensor row = at::arange(kFine, numbers).unsqueeze(1);
    std::vector<at::Tensor> result{at::arange(kFine, numbers).eq(row)};
    for (int64_t level = 0; level < kFineLevels; ++level) {
      const at::Tensor own = row.div(int64_t{1} << level, "floor"), odd = own.remainder(2);
      const at::Tensor link = at::arange(kFine >> level, numbers).eq(own + 1 - 2 * odd);
      result.push_back(frame_.causal() ? link.logical_and(odd.eq(1)) : link);
    }
    for (at::Tensor& link : result) link = link.expand({groups, kFine, -1});
    for (int64_t level = kFineLevels; level < levels(length); ++level)
      result.push_back(beside(length, level, numbers).ge(0).view({groups, 1, 1}).expand({-1, kFine, -1}));
    return at::cat(result, 2);
  }

  [[nodiscard]] Part attend(const Tokens& given) const override {
    const int64_t n = given.q.size(2), length = padded(n), groups = length / kFine, top = levels(length);
    const at::Device device = given.q.device();
    const Tokens clean = given.without_padding();
    const auto longer = [&](const at::Tensor& x) { return with_zeros_behind(x, 2, length - n); };
    const Tokens in{longer(clean.q), longer(clean.k), longer(clean.v), with_zeros_behind(clean.valid, 1, length - n),
                    clean.padded};
    const at::Tensor pooled_q = pool_.queries(in.q), pooled_k = pool_.keys(in.k);
    const auto grouped = [&](const at::Tensor& x) { return x.unflatten(2, {groups, -1}); };
    const at::Tensor token_valid = in.valid.unsqueeze(1).unsqueeze(-1);  // [b,1,n,1]

    // Beside each group [b,h,g,L,d]: its tokens, blocks of the lowest levels, one block of every higher level.
    std::vector<at::Tensor> k{grouped(in.k)}, v{grouped(in.v)}, count{grouped(token_valid.to(at::kLong))};
    for (int64_t level = 0; level < top; ++level) {
      Sets sets{pooled_k, in.v, token_valid.to(at::kLong)};
      if (level > 0) {
        const size_t site = std::min(static_cast<size_t>(level), set_dropouts_.size()) - 1;
        sets = sets_of(in, pooled_q, pooled_k, int64_t{1} << level, set_dropouts_[site]);
      }
      if (level < kFineLevels) {
        k.push_back(grouped(sets.k)), v.push_back(grouped(sets.v)), count.push_back(grouped(sets.count));
        continue;
      }
      const at::Tensor place = tables_.get("place", {length, level}, device, [&](const at::TensorOptions& numbers) {
        return beside(length, level, numbers).clamp_min(0);
      });
      const auto take = [&](const at::Tensor& x) { return x.index_select(2, place).unsqueeze(3); };
      k.push_back(take(sets.k)), v.push_back(take(sets.v)), count.push_back(take(sets.count));
    }
    const at::Tensor read = tables_.get("links", {length}, device,
                                        [&](const at::TensorOptions& numbers) { return links(length, numbers); });
    const at::Tensor counts = at::cat(count, 3).transpose(-1, -2);  // [b,1,g,1,L]
    const at::Tensor allowed = read.logical_and(counts.gt(0));      // [b,1,g,8,L]
    const Part part = explicit_part(grouped(in.q), at::cat(k, 3), at::cat(v, 3), allowed,
                                    bias_ ? at::where(counts.gt(0), pool_.bias(counts), 0) : at::Tensor(),
                                    dropout_.place(is_training()));
    const auto back = [&](const at::Tensor& x) { return part_of(x.flatten(2, 3), 2, 0, n); };
    return {back(part.out), back(part.log_sum)};
  }

  std::vector<kernels::Dropout> set_dropouts_;  // by level, from 1 on, of the longest length
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
