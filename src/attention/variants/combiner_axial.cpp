// Combiner-Axial, vertical and horizontal, and Combiner-Mixture: Ren, Dai, Dai, Yang, Leskovec, Schuurmans, Dai,
// "Combiner: Full Attention Transformer with Sparse Computation Cost", NeurIPS 2021, sections 3 and 4.3, its appendix
// and code. Tokens are the places (r, c) of a grid, row by row. Row (r, c) sees its row and its column as they are and
// all other tokens in disjoint sets through the summaries of attention/shared/summaries.h, in one softmax:
//   vertical    of every other column c' the places above row r; bidirectional also those below
//   horizontal  of every other row r', if causal of every earlier one, the places left of c and those right of c
//   mixture     the mean of both (average), or one softmax over the direct tokens and the sets of both (joint)
// If causal, the own row up to c and the own column above r. The appendix has whole columns for the bidirectional
// vertical form, which would hold direct tokens again; hence two sets. The code's sums in place of running maxima, and
// its empty sets that count, are faults. With one row or one column it is softmax attention. Pinned tokens (CLS) stand
// outside.
#include "attention/shared/grid.h"
#include "attention/shared/grid_windows.h"
#include "attention/shared/summaries.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::combiner_axial {

struct Options : SummaryOptions {
  int64_t columns = 0;
};

struct MixtureOptions : Options {
  std::string mixture = "average";
};

enum class Sets { kVertical, kHorizontal, kAverage, kJoint };

class AxialCore : public AttentionCore {
 public:
  AxialCore(const Options& options, Sets sets, const BuildContext& context)
      : sets_(sets), columns_(grid_columns(options.columns, context)), frame_(context), pool_(*this, options, context) {
    for (size_t i = 0; i < kDirect + kTables * kReads; ++i) dropouts_.push_back(context.make_dropout());
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    return frame_.forward(q, k, v, mask, is_training(),
                          [&](const PinnedFrame::Tokens& in) { return attend(in.without_padding()); });
  }

  [[nodiscard]] bool takes_bf16() const override { return true; }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const int64_t n = shape.query_len, tokens = n - frame_.pinned(n);
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    double plain = frame_.executed_pairs(n), pattern = frame_.pattern_pairs(n), maps = 0, frames = 4;
    const auto add = [&](const Windows& windows) {
      plain += windows.executed_pairs();
      pattern += windows.pattern_pairs();
    };
    if (tokens > 0) {
      const Grid grid(tokens, columns_);
      add(grid.row(tokens, frame_.causal()));
      if (grid.rows > 1) {
        for (const bool behind : sides()) add(one_side(grid.column(tokens, !behind), behind));
        for (const Table& table : tables()) {
          add(expected_over(grid, table));
          for (const Windows& windows : readers(grid, table)) add(windows);
          frames += 9;
        }
        maps = pool_.flops(static_cast<double>(tokens), d);
      }
    }
    return {z * (4 * d * plain + maps), z * (4 * d * pattern + maps),
            z * (2 * frame_.executed_pairs(n) + static_cast<double>(tokens) * d * frames)};
  }

 private:
  static constexpr size_t kDirect = 3, kTables = 4, kReads = 3;  // places of dropout: at most so many of each

  // Sets of the places of a row's column above it or below it, or of its row left of it or right of it.
  struct Table {
    const char* name;
    bool vertical, behind;
  };
  [[nodiscard]] std::vector<Table> tables() const {
    std::vector<Table> result;
    if (sets_ != Sets::kHorizontal) {
      result.push_back({"above", true, false});
      if (!frame_.causal()) result.push_back({"below", true, true});
    }
    if (sets_ != Sets::kVertical) result.insert(result.end(), {{"left", false, false}, {"right", false, true}});
    return result;
  }
  // Where keys of the own column, and of its rows, stand: before a token, and behind it.
  [[nodiscard]] std::vector<bool> sides() const {
    return frame_.causal() ? std::vector<bool>{false} : std::vector<bool>{false, true};
  }

  // The windows of the sets of a table, and of those who read it: a row reads the sets of other columns that end at it,
  // a column those of other rows.
  [[nodiscard]] static Windows expected_over(const Grid& grid, const Table& table) {
    const int64_t n = grid.padded();
    return one_side(table.vertical ? grid.column(n, !table.behind) : grid.row(n, !table.behind), table.behind);
  }
  [[nodiscard]] std::vector<Windows> readers(const Grid& grid, const Table& table) const {
    const int64_t n = grid.padded();
    std::vector<Windows> result;
    for (const bool behind : table.vertical ? std::vector<bool>{false, true} : sides())
      result.push_back(one_side(table.vertical ? grid.row(n, !behind) : grid.column(n, !behind), behind));
    return result;
  }

  [[nodiscard]] std::vector<std::vector<Part>> attend(const PinnedFrame::Tokens& in) const {
    const int64_t n = in.q.size(2);
    const Grid grid(n, columns_);
    const auto read = [&](const std::string& name, size_t site, const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v, const at::Tensor& valid, const Windows& windows,
                          const at::Tensor& bias) {
      const ProbeScope scope(name.c_str());
      Part part;
      part.out = window_attention(q, k, v, valid, windows, dropouts_[site], is_training(), {}, &part.log_sum, bias);
      return part;
    };
    std::vector<Part> direct{read("row", 0, in.q, in.k, in.v, in.valid, grid.row(n, frame_.causal()), {})};
    if (grid.rows == 1) return {direct};
    for (const bool behind : sides())
      direct.push_back(read(behind ? "column_behind" : "column_before", behind ? 2 : 1, in.q, in.k, in.v, in.valid,
                            one_side(grid.column(n, !behind), behind), {}));

    const at::Tensor cell_valid = grid.cells(in.valid.unsqueeze(1).unsqueeze(-1));  // [b,1,R,C,1]
    const at::Tensor pooled_q = grid.cells(pool_.queries(in.q)), pooled_k = grid.cells(pool_.keys(in.k));
    const at::Tensor all = at::ones({in.q.size(0), grid.padded()}, in.valid.options());
    const at::Tensor q = grid.whole(in.q), k = grid.whole(in.k), v = grid.whole(in.v);
    const at::Tensor no_padding = none_unless(cell_valid.flatten(2));  // [b,1,R C]
    std::vector<Part> vertical = direct, horizontal = direct;
    size_t site = kDirect;
    for (const Table& table : tables()) {
      const int64_t along = table.vertical ? 2 : 3;
      const auto before = [&](const at::Tensor& x) {
        return pool_.before(x, cell_valid, along, table.behind).flatten(2, 3);
      };
      const at::Tensor bias = pool_.bias(count_before(cell_valid, along, table.behind)).flatten(2);
      const std::string name = table.name;
      at::Tensor values;
      {
        const ProbeScope scope((name + "_sets").c_str());
        values = window_attention(before(pooled_q), k, v, all, expected_over(grid, table), dropouts_[site],
                                  is_training(), {}, nullptr, no_padding);
      }
      const at::Tensor keys = before(pooled_k);
      int64_t reader = 0;
      for (const Windows& windows : readers(grid, table)) {
        ++reader;
        (table.vertical ? vertical : horizontal)
            .push_back(read(name + std::to_string(reader), site + static_cast<size_t>(reader), q, keys, values, all,
                            windows, bias));
      }
      site += kReads;
    }
    if (sets_ == Sets::kVertical) return {vertical};
    if (sets_ == Sets::kHorizontal) return {horizontal};
    if (sets_ == Sets::kAverage) return {vertical, horizontal};
    vertical.insert(vertical.end(), horizontal.begin() + static_cast<int64_t>(direct.size()), horizontal.end());
    return {vertical};
  }

  Sets sets_;
  int64_t columns_;
  PinnedFrame frame_;
  Pool pool_;
  std::vector<kernels::Dropout> dropouts_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>().add(&Options::columns, "columns", kColumnsHelp, at_least(0)).include(summary_schema());
  return kSchema;
}

const Schema<MixtureOptions>& mixture_schema() {
  static const Schema<MixtureOptions> kSchema = Schema<MixtureOptions>().include(schema()).add(
      &MixtureOptions::mixture, "mixture",
      "average: the mean of the vertical and the horizontal form; joint: one softmax over the sets of both",
      one_of({"average", "joint"}));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor vertical;
  vertical.name = "combiner-axial-vertical";
  vertical.title = "Combiner, axial, vertical";
  vertical.paper =
      "Ren, Dai, Dai, Yang, Leskovec, Schuurmans, Dai: Combiner: Full Attention Transformer with Sparse Computation "
      "Cost, 2021";
  vertical.method_class = "FP";
  vertical.summary = "On a grid each token sees its row and column, and summaries of other columns above and below.";
  vertical.complexity = Complexity::kRootN;
  vertical.traits = {.causal_ok = true};
  vertical.appended_padding = always_exact();
  vertical.options = schema().options();
  vertical.tensors = summary_meanings();
  vertical.dense_limit = Json{{"columns", 1 << 30}};
  vertical.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<AxialCore>(schema().read(options), Sets::kVertical, context);
  };

  Descriptor horizontal = vertical;
  horizontal.name = "combiner-axial-horizontal";
  horizontal.title = "Combiner, axial, horizontal";
  horizontal.summary =
      "On a grid each token sees its row and column, and summaries of other rows left and right of it.";
  horizontal.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<AxialCore>(schema().read(options), Sets::kHorizontal, context);
  };

  Descriptor mixture = vertical;
  mixture.name = "combiner-mixture";
  mixture.title = "Combiner, mixture";
  mixture.summary = "The mean of Combiner's vertical and horizontal attention on a grid, or both in one softmax.";
  mixture.options = mixture_schema().options();
  mixture.build_core = [](const Json& options, const BuildContext& context) {
    const MixtureOptions read = mixture_schema().read(options);
    return std::make_shared<AxialCore>(read, read.mixture == "joint" ? Sets::kJoint : Sets::kAverage, context);
  };
  return {vertical, horizontal, mixture};
}

}  // namespace xformer::attention::variants::combiner_axial
