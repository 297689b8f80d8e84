// Axial attention: Ho, Kalchbrenner, Weissenborn, Salimans, "Axial Attention in Multidimensional Transformers", 2019,
// section 3. The sequence is a grid of m columns, row by row; softmax(q k^T / sqrt(d)) v over
//   rows     A(i) = {j: floor(j / m) = floor(i / m)}        columns   A(i) = {j: j mod m = i mod m}
// Three forms (attention-more 9): `alternate` has rows in even layers and columns in odd ones, so that two layers see
// all; `union` has one softmax over both sets, the own token once; `sum` adds a layer of each, with projections of
// their own. Causal: of these sets only j <= i. That is exact, but columns of earlier rows to the right are never seen;
// the paper's decoder, two stacks whose second reads a shifted first, is a model and not an attention.
// Pinned tokens stand outside of the grid: they see all and are seen by all.
#include <algorithm>

#include "attention/descriptor.h"
#include "attention/multi_head.h"
#include "attention/shared/grid.h"
#include "attention/shared/pinned.h"
#include "attention/shared/windows.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::axial {

struct Options {
  std::string axes = "alternate";
  int64_t columns = 0;
};

enum class Axes { kRows, kColumns, kBoth };

class AxialCore : public AttentionCore {
 public:
  AxialCore(Axes axes, int64_t columns, const BuildContext& context)
      : axes_(axes),
        columns_(grid_columns(columns, context)),
        causal_(context.causal),
        pinned_(context),
        dropout_(context.make_dropout()),
        column_dropout_(context.make_dropout()) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    XF_ASSERT(mask.causal == causal_, "axial was built with causal {}", causal_);
    return pinned_.forward(q, k, v, mask, is_training(), [&](const PinnedTokens::Rest& rest) {
      const int64_t places = rest.q.size(2);
      const auto attend = [&](const Windows& windows, at::Tensor* log_sum) {
        return window_attention(rest.q, rest.k, rest.v, rest.valid, windows, dropout_, is_training(), rest.pinned,
                                log_sum);
      };
      if (axes_ == Axes::kColumns) return attend(column_windows(places), nullptr);
      if (!unites(places)) return attend(row_windows(places), nullptr);
      at::Tensor log_sum;
      const at::Tensor rows = attend(row_windows(places), &log_sum);
      return with_residues({rows, log_sum}, rest.q, rest.k, rest.v, rest.valid, column_windows(places), column_dropout_,
                           is_training(), tables_);
    });
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const int64_t n = shape.query_len, p = pinned_.of(n), places = n - p;
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    double executed = pinned_.executed_pairs(n), pattern = pinned_.pattern_pairs(n), kept = 0;
    if (places > 0) {
      const Windows own = axes_ == Axes::kColumns ? column_windows(places) : row_windows(places);
      executed += own.executed_pairs() + static_cast<double>(places * p);
      pattern += own.pattern_pairs() + static_cast<double>(places * p);
      if (unites(places)) {
        kept = column_windows(places).explicit_pairs();
        executed += kept;
        pattern += column_windows(places).pattern_pairs() - static_cast<double>(places);
      }
    }
    return {4 * z * d * executed, 4 * z * d * pattern, kept_of_windows(z, static_cast<double>(n), d) + 2 * z * kept};
  }

  [[nodiscard]] bool zeroes_padding() const override { return axes_ != Axes::kBoth; }
  [[nodiscard]] bool takes_bf16() const override { return true; }

 private:
  [[nodiscard]] Windows row_windows(int64_t places) const { return Windows::own_block(places, columns_, causal_); }
  [[nodiscard]] Windows column_windows(int64_t places) const {
    const int64_t columns = std::min(columns_, places);
    return Windows::own_block(places, (places + columns - 1) / columns, causal_, columns);
  }
  // Of one row, a column is the token itself.
  [[nodiscard]] bool unites(int64_t places) const { return axes_ == Axes::kBoth && places > columns_; }

  Axes axes_;
  int64_t columns_;
  bool causal_;
  PinnedTokens pinned_;
  kernels::Dropout dropout_, column_dropout_;
  IndexTables tables_;
};

// row(x) + column(x).
class SumMixer : public SequenceMixer {
 public:
  SumMixer(int64_t columns, const BuildContext& context) {
    const auto one = [&](const char* name, Axes axes) {
      BuildContext own = context;
      own.init = context.init.child(name);
      return register_module(name,
                             std::make_shared<MultiHeadMixer>(own, std::make_shared<AxialCore>(axes, columns, own)));
    };
    row_ = one("row", Axes::kRows);
    column_ = one("column", Axes::kColumns);
  }

  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry& carry) override {
    const at::Tensor rows = probed("row", [&] { return row_->forward(x, mask, carry); });
    return rows + probed("column", [&] { return column_->forward(x, mask, carry); });
  }

  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    Cost result = row_->cost(batch, length);
    result += column_->cost(batch, length);
    return result;
  }

  [[nodiscard]] std::string backend() const override { return ""; }

 private:
  std::shared_ptr<MultiHeadMixer> row_, column_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::axes, "axes",
               "alternate: rows of the grid in even layers, columns in odd ones; union: both in one softmax; sum: a "
               "layer of each, with projections of their own",
               one_of({"alternate", "union", "sum"}))
          .add(&Options::columns, "columns", kColumnsHelp, at_least(0));
  return kSchema;
}

// Refuses options that leave no core.
void check_core(const Options& options) {
  XF_CHECK(options.axes != "sum", UserError,
           "attention.axes=sum: axial then owns two sets of projections, and there is no bare core that mrs- or a "
           "caller with its own q, k and v could use");
}

std::shared_ptr<AttentionCore> build_core(const Json& options, const BuildContext& context) {
  const Options own = schema().read(options);
  check_core(own);
  const Axes axes = own.axes == "union" ? Axes::kBoth : context.layer % 2 == 0 ? Axes::kRows : Axes::kColumns;
  return std::make_shared<AxialCore>(axes, own.columns, context);
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "axial";
  result.title = "Axial attention";
  result.paper = "Ho, Kalchbrenner, Weissenborn, Salimans: Axial Attention in Multidimensional Transformers, 2019";
  result.method_class = "FP";
  result.summary = "The sequence is a grid; each token attends within its row or its column; n sqrt n for a square.";
  result.complexity = Complexity::kRootN;
  result.traits = {.causal_ok = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.dense_limit = Json{{"columns", 1 << 30}};
  result.check = [](const Json& options, int64_t heads) {
    if (heads == 0) check_core(schema().read(options));
  };
  result.build_core = build_core;
  result.build_mixer = [](const Json& options, const BuildContext& context) -> std::shared_ptr<SequenceMixer> {
    const Options own = schema().read(options);
    if (own.axes == "sum") return std::make_shared<SumMixer>(own.columns, context);
    return std::make_shared<MultiHeadMixer>(context, build_core(options, context));
  };
  return {result};
}

}  // namespace xformer::attention::variants::axial
