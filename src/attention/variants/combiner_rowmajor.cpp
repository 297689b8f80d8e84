// Combiner-Axial, row-major: Ren, Dai, Dai, Yang, Leskovec, Schuurmans, Dai, "Combiner: Full Attention Transformer with
// Sparse Computation Cost", NeurIPS 2021, section 4.3, appendix and code, which calls this form axial. Tokens are the
// places (r, c) of a grid, row by row. Row (r, c) sees its row as it is, if causal up to c, and every other row r', if
// causal every earlier one, as a whole by a summary of column c, in one softmax:
//   value  what attention within row r' gives the query at (r', c)
//   key    proj: W_k norm(x + drop(W_o value)) at (r', c), all heads together; none: the k there; wsum: what attention
//          within the row gives of its keys
// Padding inside a row asks as a zero query, so that rows with any token are seen by all. With one row it is softmax
// attention. Pinned tokens (CLS) stand outside.
#include "attention/descriptor.h"
#include "attention/shared/full_precision.h"
#include "attention/shared/grid.h"
#include "attention/shared/grid_windows.h"
#include "attention/shared/summaries.h"
#include "kernels/residual_norm/residual_norm.h"
#include "tensor/parts.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::combiner_rowmajor {

struct Options : SummaryOptions {
  int64_t columns = 0;
  std::string row_summary = "proj";
};

class RowmajorMixer : public SequenceMixer {
 public:
  RowmajorMixer(const Options& options, const BuildContext& context)
      : options_(options),
        model_dim_(context.model_dim),
        heads_(context.heads),
        head_dim_(context.head_dim),
        columns_(grid_columns(options.columns, context)),
        frame_(context),
        pool_(*this, {"max", options.log_count_bias}, context) {
    const int64_t inner = heads_ * head_dim_;
    const auto linear = [&](const char* name, int64_t in, int64_t out, bool bias) {
      return register_module(name,
                             std::make_shared<Linear>(in, out, bias, context.init_scheme, context.init.child(name)));
    };
    query_ = linear("query", model_dim_, inner, context.bias);
    key_ = linear("key", model_dim_, inner, context.bias);
    value_ = linear("value", model_dim_, inner, context.bias);
    out_ = linear("out", inner, model_dim_, context.bias);
    if (options.row_summary == "proj") {
      summary_out_ = linear("summary_out", inner, model_dim_, false);
      norm_.weight = register_parameter("summary_norm_weight", at::ones({model_dim_}));
      norm_.bias = register_parameter("summary_norm_bias", at::zeros({model_dim_}));
      summary_key_ = linear("summary_key", model_dim_, inner, false);
    }
    for (kernels::Dropout* one : {&row_dropout_, &set_dropout_, &branch_dropout_, &before_dropout_, &behind_dropout_})
      *one = context.make_dropout();
  }

  at::Tensor forward(const at::Tensor& x, const SequenceMask& mask, Carry&) override {
    const int64_t b = x.size(0), n = x.size(1);
    const std::vector<at::Tensor> projected = kernels::linear(x, {query_->map(), key_->map(), value_->map()});
    at::Tensor mixed;
    {
      const FullPrecision full(x.device().type(), /*takes_bf16=*/true);
      const auto split = [&](const at::Tensor& rows) { return heads(full(rows)); };
      const at::Tensor q = split(projected[0]), k = split(projected[1]), v = split(projected[2]);
      probe("q", q), probe("k", k), probe("v", v);
      mixed = frame_.forward(q, k, v, mask, is_training(), [&](const PinnedFrame::Tokens& given) {
        const PinnedFrame::Tokens in = given.without_padding();
        return std::vector<std::vector<Part>>{attend(in, full(x).narrow(1, frame_.pinned(n), in.q.size(2)))};
      });
      mixed = mask.zero_padding(mixed);
    }
    probe("mixed", mixed);
    return out_->forward(mixed.transpose(1, 2).reshape({b, n, heads_ * head_dim_}));
  }

  [[nodiscard]] Cost cost(int64_t batch, int64_t length) const override {
    const int64_t tokens = length - frame_.pinned(length);
    const auto inner = static_cast<double>(heads_ * head_dim_), m = static_cast<double>(model_dim_);
    const double z = static_cast<double>(batch * heads_), d = static_cast<double>(head_dim_);
    const double projections = 8 * static_cast<double>(batch * length) * m * inner;
    double flops = 4 * d * frame_.executed_pairs(length), pattern = 4 * d * frame_.pattern_pairs(length), maps = 0;
    if (tokens > 0) {
      const Grid grid(tokens, columns_);
      const Windows row = grid.row(tokens, frame_.causal());
      flops += 4 * d * row.executed_pairs();
      pattern += 4 * d * row.pattern_pairs();
      if (grid.rows > 1) {
        const Windows all = grid.row(grid.padded(), false);
        const double width = options_.row_summary == "wsum" ? 2 * d : d;
        flops += 2 * (d + width) * all.executed_pairs();
        pattern += 2 * (d + width) * all.pattern_pairs();
        for (const Windows& windows : readers(grid)) {
          flops += 4 * d * windows.executed_pairs();
          pattern += 4 * d * windows.pattern_pairs();
        }
        if (summary_key_) maps = 4 * static_cast<double>(batch * grid.padded()) * m * inner;
      }
    }
    const double kept = static_cast<double>(batch * length) * (9 * inner + (summary_key_ ? 2 * m : 0));
    return {projections + maps + z * flops, projections + maps + z * pattern,
            kept + 2 * z * frame_.executed_pairs(length)};
  }

 private:
  [[nodiscard]] at::Tensor heads(const at::Tensor& rows) const {  // [b,n,h d] -> [b,h,n,d]
    return rows.view({rows.size(0), rows.size(1), heads_, head_dim_}).transpose(1, 2);
  }
  // The column of a place, without its own row: earlier rows, and later ones.
  [[nodiscard]] std::vector<Windows> readers(const Grid& grid) const {
    std::vector<Windows> result{one_side(grid.column(grid.padded(), true), false)};
    if (!frame_.causal()) result.push_back(one_side(grid.column(grid.padded(), false), true));
    return result;
  }

  // x [b,n,m] behind the pinned tokens.
  [[nodiscard]] std::vector<Part> attend(const PinnedFrame::Tokens& in, const at::Tensor& x) const {
    const int64_t n = in.q.size(2);
    const Grid grid(n, columns_);
    const bool training = is_training();
    const auto read = [&](const char* name, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& valid, const Windows& windows, const kernels::Dropout& dropout,
                          const at::Tensor& bias) {
      const ProbeScope scope(name);
      Part part;
      part.out = window_attention(q, k, v, valid, windows, dropout, training, {}, &part.log_sum, bias);
      return part;
    };
    std::vector<Part> parts{read("row", in.q, in.k, in.v, in.valid, grid.row(n, frame_.causal()), row_dropout_, {})};
    if (grid.rows == 1) return parts;

    const at::Tensor cell_valid = grid.cells(in.valid.unsqueeze(1).unsqueeze(-1));  // [b,1,R,C,1]
    const at::Tensor all = at::ones({in.q.size(0), grid.padded()}, in.valid.options());
    const at::Tensor q = grid.whole(in.q), k = grid.whole(in.k), v = grid.whole(in.v);
    const bool wsum = options_.row_summary == "wsum";
    const at::Tensor made = read("sets", q, k, wsum ? at::cat({v, k}, -1) : v, all, grid.row(grid.padded(), false),
                                 set_dropout_, none_unless(cell_valid.flatten(2)))
                                .out;
    const at::Tensor values = made.narrow(-1, 0, head_dim_);
    const at::Tensor keys = wsum           ? made.narrow(-1, head_dim_, head_dim_)
                            : summary_key_ ? projected(values, x, in, grid)
                                           : k;
    const at::Tensor count = cell_valid.sum(3, /*keepdim=*/true).expand({-1, -1, -1, grid.columns, -1});
    const at::Tensor bias = pool_.bias(count).flatten(2);  // [b,1,R C]
    const auto add = [&](const char* name, const Windows& windows, const kernels::Dropout& dropout) {
      parts.push_back(read(name, q, keys, values, all, windows, dropout, bias));
    };
    const std::vector<Windows> columns = readers(grid);
    add("rows_before", columns[0], before_dropout_);
    if (columns.size() > 1) add("rows_behind", columns[1], behind_dropout_);
    return parts;
  }

  // W_k norm(x + drop(W_o value)) of every place of the grid, [b,h,R C,d].
  [[nodiscard]] at::Tensor projected(const at::Tensor& values, const at::Tensor& x, const PinnedFrame::Tokens& in,
                                     const Grid& grid) const {
    const int64_t b = x.size(0), places = grid.padded();
    const at::Tensor rows = with_zeros_behind(at::where(in.valid.unsqueeze(-1), x, 0), 1, places - grid.length);
    const at::Tensor branch = summary_out_->forward(values.transpose(1, 2).reshape({b, places, heads_ * head_dim_}));
    const at::Tensor normed = kernels::residual_norm(rows, branch, branch_dropout_.place(is_training()), norm_).normed;
    return heads(summary_key_->forward(normed));
  }

  Options options_;
  int64_t model_dim_, heads_, head_dim_, columns_;
  PinnedFrame frame_;
  Pool pool_;  // its biases
  kernels::Dropout row_dropout_, set_dropout_, branch_dropout_, before_dropout_, behind_dropout_;
  std::shared_ptr<Linear> query_, key_, value_, out_, summary_out_, summary_key_;
  kernels::NormWeights norm_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::columns, "columns", kColumnsHelp, at_least(0))
          .add(&Options::row_summary, "row_summary",
               "key of a row's summary: proj (two maps and a norm of what attention in the row gives), none (the own "
               "key there), wsum (attention in the row, of its keys)",
               one_of({"proj", "none", "wsum"}))
          .include(summary_schema(), {"log_count_bias"});
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "combiner-axial-rowmajor";
  result.aliases = {"combiner-axial"};
  result.title = "Combiner, axial, row-major";
  result.paper =
      "Ren, Dai, Dai, Yang, Leskovec, Schuurmans, Dai: Combiner: Full Attention Transformer with Sparse Computation "
      "Cost, 2021";
  result.method_class = "FP";
  result.summary = "On a grid each token sees its row, and every other row by a summary that its column asks for.";
  result.complexity = Complexity::kRootN;
  result.traits = {.causal_ok = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.tensors = projection_meanings();
  result.tensors.push_back({"summary_out.weight", "W_o of a row summary's key, of row_summary=proj [m, h d]"});
  result.tensors.push_back({"summary_norm_weight", "scale of the norm of a row summary's key [m]"});
  result.tensors.push_back({"summary_norm_bias", "shift of the norm of a row summary's key [m]"});
  result.tensors.push_back({"summary_key.weight", "W_k of a row summary's key [h d, m]"});
  result.dense_limit = Json{{"columns", 1 << 30}};
  result.build_mixer = [](const Json& options, const BuildContext& context) {
    return std::make_shared<RowmajorMixer>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::combiner_rowmajor
