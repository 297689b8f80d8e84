// Sinkhorn Transformer: Tay, Bahri, Yang, Metzler, Juan, "Sparse Sinkhorn Attention", ICML 2020, sections 3.1 to 3.4.
// Blocks of b tokens; block x attends, in one softmax, to itself and to a mixture of all blocks that a learned,
// nearly doubly stochastic matrix R [t, t] sorts to it, slot by slot over valid tokens M:
//   K~_x = sum_y R_xy M_y K_y,   O_x = softmax(Q_x [K~_x, K_x]^T / sqrt(d)) [V~_x, V_x]
//   R = exp(r), r = (S + Gumbel noise in training) / tau, then T times: rows, then columns less their log-sum-exp.
// Sort logits S_xy (x takes y) from sums and means over valid tokens of a block:
//   linear     (sum k)_y . w_x + c_x. Rows come first, so that c_x cancels: it has no effect and no gradient.
//   linear-qk  log(relu([sum q, sum k]_x . w_y) + 1e-6)
//   attention  log(relu(mean q_x . mean k_y / sqrt(d)) + 1e-6)
// Blocks without a valid token are no sources and have no row, so that R stays doubly stochastic over the others and
// appended padding changes nothing. Slots with sum_y R_xy M_y <= 1e-6 are no keys.
// sort_mean divides K~ and V~ by sum_y R_xy M_y, which the paper does not: rows of R sum to one only nearly, and to
// less where slots are empty. Causal: x takes only y < x; sums and means give way to the mean up to the first token of
// the block; a column is normalised over the rows up to the one at hand; block 0 gets a learned null key; the own block
// is triangular. SortCut: all queries attend to the first c sorted blocks instead.
#include <algorithm>
#include <cmath>

#include "attention/decoding.h"
#include "attention/shared/windows.h"
#include "kernels/batched_product/batched_product.h"
#include "tensor/closed_keys.h"
#include "tensor/parts.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::sinkhorn {

constexpr double kSmallest = 1e-6;  // of a slot's mass, and in the logarithm
constexpr int64_t kCoins = 16;      // random bits of one Gumbel number

struct Options {
  int64_t block = 50;
  std::string sort_net = "linear";
  double sort_temperature = 0.75;
  int64_t sort_rounds = 7;
  int64_t sort_cut = 0;
  bool sort_mean = false;
};

class SinkhornCore : public AttentionCore, public DecodingCore {
 public:
  SinkhornCore(const Options& options, const BuildContext& context)
      : options_(options),
        causal_(context.causal),
        heads_(context.heads),
        least_(std::min(options.block, context.max_len)),
        dropout_(context.make_dropout()),
        coins_(0.5, context.dropout_stream) {
    XF_ASSERT(context.max_len > 0, "sinkhorn needs the longest length when it is built");
    XF_CHECK(!causal_ || options.sort_cut == 0, UserError,
             "attention.sort_cut: sinkhorn has no causal form of it, as all queries would see the first sorted blocks");
    const int64_t h = context.heads, d = context.head_dim;
    max_blocks_ = (context.max_len + options.block - 1) / options.block;
    if (options.sort_net != "attention") {
      const int64_t width = options.sort_net == "linear" ? d : 2 * d;
      const double bound = std::sqrt(6.0 / static_cast<double>(width + max_blocks_));
      weight_ = register_parameter("sort_weight",
                                   context.init.uniform("sort_weight", {h, max_blocks_, width}, -bound, bound));
    }
    if (options.sort_net == "linear") bias_ = register_parameter("sort_bias", at::zeros({h, max_blocks_}));
    if (causal_) null_ = register_parameter("null", context.init.normal("null", {h, 1, 2 * d}, 1));
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    const int64_t batch = q.size(0), n = q.size(2), d = k.size(-1);
    XF_ASSERT(mask.causal == causal_ && k.size(2) == n, "sinkhorn attends within one sequence, causal {}", causal_);
    const Windows windows = Windows::own_block(n, options_.block, causal_);
    XF_CHECK(!weight_.defined() || windows.blocks <= max_blocks_, UserError,
             "sinkhorn was built for at most {} blocks of {} tokens, got {}", max_blocks_, options_.block,
             windows.blocks);
    const at::Tensor valid = mask.all_valid() ? at::ones({1, 1, n, 1}, q.options()) : mask.as_factor(q.scalar_type());
    const auto split = [&](const at::Tensor& x) { return windows.rows(x).squeeze(2); };  // [b,h,t,c,d]
    const at::Tensor slots = split(valid);                                               // [b or 1,1,t,c,1]
    const at::Tensor kv = split(at::cat({k, v}, -1) * valid);
    at::Tensor sort = balanced(logits(split(q * valid), kv.narrow(-1, 0, d), slots), slots);  // R [b,h,t,t]
    probe("sort", sort);

    const int64_t c = windows.block, t = rows(windows.blocks);
    sort = sort.narrow(2, 0, t);
    const at::Tensor mass = at::matmul(sort, slots.squeeze(-1)).unsqueeze(-1);  // [b,h,t,c,1]
    at::Tensor sorted = kernels::batched_product(sort, kv.flatten(3)).view({batch, heads_, t, c, -1});
    if (options_.sort_mean) sorted = sorted / mass.clamp_min(kSmallest);
    at::Tensor usable = mass.gt(kSmallest);
    if (causal_) {  // the null key of block 0, for samples that have a token
      sorted = at::cat({null_.unsqueeze(1).expand({batch, -1, 1, c, -1}), sorted.narrow(2, 1, t - 1)}, 2);
      const at::Tensor any = slots.flatten(1).amax(1).gt(0).view({-1, 1, 1, 1, 1});
      usable = at::cat({any.expand({batch, heads_, 1, c, 1}), usable.narrow(2, 1, t - 1)}, 2);
    }
    const at::Tensor sorted_k = sorted.narrow(-1, 0, d), sorted_v = sorted.narrow(-1, d, v.size(-1));
    if (options_.sort_cut > 0) return cut(q, sorted_k, sorted_v, usable);
    const at::Tensor places = tables_.numbers(t * c, q.device()).view({1, t, c});
    return window_attention(q, k, v, mask.key_valid, windows, dropout_, is_training(),
                            {sorted_k.flatten(2, 3), sorted_v.flatten(2, 3), usable.flatten(2), places});
  }

  // A block is no longer than the sequence, and block 0 has as many null keys as a block has tokens: what runs again is
  // a block at least, as in the sequences of training.
  at::Tensor decode(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const DecodingStep& step,
                    State& kept) override {
    const auto all = [&](const char* name, const at::Tensor& rows) {
      const at::Tensor found = keep(kept, name, rows, step);
      return with_zeros_behind(found, 2, std::max<int64_t>(0, least_ - found.size(2)));
    };
    Carry carry;
    return forward(all("queries", q), all("keys", k), all("values", v), {{}, /*causal=*/true}, carry)
        .narrow(2, step.first, q.size(2));
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const Windows windows = Windows::own_block(shape.query_len, options_.block, causal_);
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const double n = static_cast<double>(shape.query_len), c = static_cast<double>(windows.block);
    const double t = static_cast<double>(windows.blocks), width = options_.sort_net == "linear-qk" ? 2 * d : d;
    const double sorted = static_cast<double>(rows(windows.blocks));
    double executed = windows.executed_pairs() + n * c, pattern = windows.pattern_pairs() + n * c;
    if (options_.sort_cut > 0) executed = pattern = n * c * sorted;
    double sorting = 2 * t * (t * width + sorted * c * (2 * d + 1));  // S; K~, V~ and the mass of slots
    double least = 2 * t * (t * width + sorted * c * 2 * d);
    if (causal_) {
      sorting += 2 * t * t * ((options_.sort_net == "linear" ? d : 2 * d) + 1);  // means up to a token
      least *= (t - 1) / (2 * t);
    }
    return {z * (4 * d * executed + sorting), z * (4 * d * pattern + least), 2 * z * executed};
  }

 private:
  // Sorted blocks that are read, of t.
  [[nodiscard]] int64_t rows(int64_t t) const { return options_.sort_cut > 0 ? std::min(options_.sort_cut, t) : t; }

  // S [b,h,t,t] with its temperature and noise. q, k [b,h,t,c,d], zero where slots [b or 1,1,t,c,1] are.
  [[nodiscard]] at::Tensor logits(const at::Tensor& q, const at::Tensor& k, const at::Tensor& slots) const {
    const int64_t t = k.size(2), d = k.size(-1);
    const bool linear = options_.sort_net == "linear", dot = options_.sort_net == "attention";
    const at::Tensor tokens = linear ? k : at::cat({q, k}, -1);
    at::Tensor summary = tokens.sum(3), count = slots.sum(3);  // [b,h,t,d or 2d], [b or 1,1,t,1]
    if (causal_) {                                             // of the blocks before and the first token, as a mean
      const at::Tensor both = at::cat({summary, count.expand({summary.size(0), heads_, -1, -1})}, -1);
      const at::Tensor earlier = tables_.get("earlier", {t}, k.device(), [&](const at::TensorOptions& numbers) {
        return at::ones({t, t}, numbers.dtype(at::kFloat)).tril(-1);
      });
      const at::Tensor before = at::matmul(earlier.to(both.scalar_type()), both);
      summary = before.narrow(-1, 0, tokens.size(-1)) + tokens.select(3, 0);
      count = before.narrow(-1, tokens.size(-1), 1) + slots.select(3, 0);
    }
    if (causal_ || dot) summary = summary / count.clamp_min(1);
    at::Tensor result;
    if (linear) {
      result = at::matmul(weight_.narrow(1, 0, t), summary.transpose(-1, -2)) + bias_.narrow(1, 0, t).unsqueeze(-1);
    } else if (dot) {
      const double scale = 1 / std::sqrt(static_cast<double>(d));
      result = at::matmul(summary.narrow(-1, 0, d) * scale, summary.narrow(-1, d, d).transpose(-1, -2));
    } else {
      result = at::matmul(summary, weight_.narrow(1, 0, t).transpose(-1, -2));
    }
    if (!linear) result = at::log(at::relu(result) + kSmallest);
    if (is_training()) result = result + gumbel(result);
    return result / options_.sort_temperature;
  }

  // -log(-log(u)), u from coins of the dropout stream: a function of (seed, step, site, element), as dropout is.
  [[nodiscard]] at::Tensor gumbel(const at::Tensor& like) const {
    auto shape = like.sizes().vec();
    shape.push_back(kCoins);
    const at::Tensor coins = coins_(at::ones(shape, like.options()), /*training=*/true);  // 0 or 2
    const at::Tensor place = tables_.get("halves", {}, like.device(), [](const at::TensorOptions& numbers) {
      return at::exp2(-at::arange(2, kCoins + 2, numbers.dtype(at::kFloat)));  // exact
    });
    const at::Tensor noise = -at::log(-at::log((coins * place).sum(-1) + std::exp2(-kCoins - 1)));
    probe("gumbel", noise);
    return noise;
  }

  // exp of r after all rounds; zero where there is no link.
  [[nodiscard]] at::Tensor balanced(at::Tensor r, const at::Tensor& slots) const {
    const at::Tensor full = slots.flatten(3).amax(3).gt(0);  // [b or 1,1,t]
    at::Tensor linked = full.unsqueeze(-1).logical_and(full.unsqueeze(-2));
    if (causal_) linked = linked.tril(-1);
    const at::Tensor apart = linked.logical_not();
    const at::Tensor lowest = at::full({}, lowest_score(r.scalar_type()), r.options());
    for (int64_t round = 0; round < options_.sort_rounds; ++round) {
      r = at::where(apart, lowest, r);
      r = at::where(apart, lowest, r - at::logsumexp(r, -1, /*keepdim=*/true));
      r = r - (causal_ ? at::logcumsumexp(r, -2) : at::logsumexp(r, -2, /*keepdim=*/true));
    }
    return at::where(apart, 0, at::exp(at::where(apart, lowest, r)));
  }

  // All queries [b,h,n,d] on all of these sorted keys and values [b,h,t,c,d], usable [b,h,t,c,1].
  [[nodiscard]] at::Tensor cut(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& usable) const {
    const at::Tensor closed = usable.flatten(2, 3).transpose(-1, -2).logical_not();  // [b,h,1,g]
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    const at::Tensor scores = kernels::batched_product(q * scale, k.flatten(2, 3).transpose(-1, -2));
    const at::Tensor weights = closed_softmax(scores, closed);
    probe("weights", weights);
    return kernels::batched_product(dropout_(weights, is_training()), v.flatten(2, 3));
  }

  Options options_;
  bool causal_;
  int64_t heads_, least_, max_blocks_ = 1;  // least_: tokens that decoding runs over
  kernels::Dropout dropout_, coins_;
  IndexTables tables_;
  at::Tensor weight_, bias_;  // w [h, T, d or 2d], c [h, T]
  at::Tensor null_;           // [h, 1, 2d], key and value
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::block, "block", "tokens per block (b)", at_least(1))
          .add(&Options::sort_net, "sort_net",
               "what sorts blocks: linear (map of summed keys), linear-qk (of summed queries and keys, rectified), "
               "attention (product of means, rectified; no parameters)",
               one_of({"linear", "linear-qk", "attention"}))
          .add(&Options::sort_temperature, "sort_temperature", "what sort logits are divided by (tau)", above(0))
          .add(&Options::sort_rounds, "sort_rounds", "times that rows and columns of the sort are normalised (T)",
               at_least(1))
          .add(&Options::sort_cut, "sort_cut",
               "sorted blocks that all queries attend to, instead of the own block and its sorted one; 0: off",
               at_least(0))
          .add(&Options::sort_mean, "sort_mean",
               "divide sorted keys and values by the sum of their weights, so that a constant stays one; the paper "
               "does not")
          .added(true);
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "sinkhorn";
  result.title = "Sparse Sinkhorn attention";
  result.paper = "Tay, Bahri, Yang, Metzler, Juan: Sparse Sinkhorn Attention, 2020";
  result.method_class = "LP";
  result.summary = "Each block of tokens sees itself and a block that a learned, nearly doubly stochastic sort brings.";
  result.complexity = Complexity::kQuadratic;
  result.traits = {.causal_ok = true, .stochastic = true, .fixed_length = true};
  result.appended_padding = always_exact();
  result.options = schema().options();
  result.tensors = {
      {"sort_weight", "w: of the sort logits, a row for each block [h, T, d], with linear-qk [h, T, 2 d]"},
      {"sort_bias", "c: of the sort logits; cancels, as rows are normalised first [h, T]"},
      {"null", "key and value side by side that block 0 of a causal sequence sees as sorted [h, 1, 2 d]"}};
  result.dense_limit = Json{{"block", 1 << 30}};
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<SinkhornCore>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::sinkhorn
