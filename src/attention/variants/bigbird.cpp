// BigBird: Zaheer, Guruganesh, Dubey, Ainslie, Alberti, Ontanon, Pham, Ravula, Wang, Yang, Ahmed, "Big Bird:
// Transformers for Longer Sequences", NeurIPS 2020, section 2 and appendix D: softmax attention (equation 1) over a
// graph of blocks of b tokens. Global tokens see and are seen by all; of the other blocks, counted 0 to t - 1, block x
// sees
//   x - 1, x, x + 1 and R_x: r of the blocks not named so far, drawn evenly per layer and head and kept.
// `bigbird-itc`: the first and the last block are global. `bigbird-etc`: g tokens of their own are, put in front by the
// model; tokens pinned there (CLS) count among them.
// Edge: clip (block 0 has no left neighbour), as in the authors' code; wrap (its left neighbour is block t - 1), as
// pictured in "Effective transformers", where only the first block is global.
// Fewer than 3 + r blocks that are not global have no such graph: then it is softmax over everything, as backend()
// says.
#include <algorithm>
#include <cmath>

#include "attention/descriptor.h"
#include "attention/shared/global_window.h"
#include "attention/shared/index_tables.h"
#include "attention/shared/windows.h"
#include "kernels/attention/attention.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::bigbird {

struct ItcOptions {
  int64_t block = 32, random_blocks = 2;
  std::string edge = "clip";
};

struct EtcOptions {
  int64_t block = 32, random_blocks = 0, global_tokens = 64;
  std::string edge = "clip";
};

// What of n tokens is global, and the blocks of the others.
struct Layout {
  int64_t front = 0, back = 0;     // global tokens at both ends
  int64_t middle = 0, blocks = 0;  // the tokens between, and their blocks, the last one ragged
  [[nodiscard]] int64_t global() const { return front + back; }
};

// For each head and each of `blocks` blocks a rank for every block, from 0 to blocks - 1: [h, t, t]. Of those that are
// not yet linked the r with the highest ranks are its random ones, however many blocks there are.
at::Tensor draw_ranks(Stream numbers, int64_t heads, int64_t blocks) {
  at::Tensor ranks = at::empty({heads, blocks, blocks}, at::kInt);
  int32_t* row = ranks.data_ptr<int32_t>();
  for (int64_t i = 0; i < heads * blocks; ++i, row += blocks)
    for (int64_t y = 0; y < blocks; ++y) {  // Fisher and Yates, inside out
      const auto other = static_cast<int64_t>(numbers.next_below(static_cast<uint64_t>(y) + 1));
      row[y] = row[other];
      row[other] = static_cast<int32_t>(y);
    }
  return ranks;
}

std::string fault_in_ranks(const at::Tensor& ranks) {
  const at::Tensor whole = at::arange(ranks.size(-1), at::kLong);
  const at::Tensor right = std::get<0>(ranks.cpu().to(at::kLong).sort(-1)).eq(whole).all(-1);  // [h,T]
  if (right.all().item<bool>()) return "";
  const auto row = right.logical_not().nonzero()[0];
  return fmt::format("expected each row to rank all blocks, with every number from 0 to {} once; row [{},{}] does not",
                     ranks.size(-1) - 1, row[0].item<int64_t>(), row[1].item<int64_t>());
}

class BigBirdCore : public AttentionCore {
 public:
  // global_tokens -1: blocks are global.
  BigBirdCore(int64_t block, int64_t random_blocks, int64_t global_tokens, bool wrap, const BuildContext& context)
      : block_(block),
        random_(random_blocks),
        global_tokens_(global_tokens < 0 ? -1 : std::max(global_tokens, context.pinned_tokens)),
        wrap_(wrap),
        max_len_(context.max_len),
        dropout_(context.make_dropout()),
        global_dropout_(context.make_dropout()) {
    XF_ASSERT(max_len_ > 0, "bigbird needs the longest length when it is built");
    const Layout longest = layout(max_len_);
    if (random_ > 0 && has_graph(longest))
      ranks_ = register_buffer("ranks", draw_ranks(context.init.stream("ranks"), context.heads, longest.blocks));
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    const int64_t n = q.size(2);
    XF_ASSERT(!mask.causal && k.size(2) == n, "bigbird attends within one bidirectional sequence");
    XF_CHECK(random_ == 0 || n <= max_len_, UserError, "bigbird was built for at most {} tokens, got {}", max_len_, n);
    const Layout parts = layout(n);
    whole_ = !has_graph(parts);
    if (whole_) return full_attention(q, k, v, mask, mask.key_valid, dropout_);

    const auto middle = [&](const at::Tensor& x) { return x.narrow(2, parts.front, parts.middle); };
    const auto global = [&](const at::Tensor& x) {  // [b,h,f,d]
      const at::Tensor front = x.narrow(2, 0, parts.front);
      return parts.back == 0 ? front : at::cat({front, x.narrow(2, n - parts.back, parts.back)}, 2);
    };
    const at::Tensor middle_valid =
        mask.all_valid() ? at::Tensor() : mask.key_valid.narrow(1, parts.front, parts.middle);
    const at::Tensor counted = mask.all_valid() ? at::Tensor() : mask.key_valid.unsqueeze(1);
    const ExtraKeys extra{k, v, counted, known_places(parts, n, q)};
    const at::Tensor local =
        window_attention(middle(q), middle(k), middle(v), middle_valid, windows(parts), dropout_, is_training(), extra);
    if (parts.global() == 0) return local;
    const ProbeScope scope("global");
    at::Tensor global_valid;
    if (!mask.all_valid()) global_valid = global(mask.key_valid.unsqueeze(1).unsqueeze(-1)).flatten(1);
    const at::Tensor rows = full_attention(global(q), k, v, mask, global_valid, global_dropout_);
    return join_rows({rows.narrow(2, 0, parts.front), local, rows.narrow(2, parts.front, parts.back)});
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const double z = static_cast<double>(shape.batch * shape.heads), n = static_cast<double>(shape.query_len);
    const double d = static_cast<double>(shape.head_dim), flops = 4 * z * d, kept = kept_of_windows(z, n, d);
    const Layout parts = layout(shape.query_len);
    if (!has_graph(parts)) return {flops * n * n, flops * n * n, kept};
    const auto g = static_cast<double>(parts.global());
    const Windows window = windows(parts);
    const double others = g + static_cast<double>(extra_blocks() * block_);  // extra keys of each row
    const double executed = g * n + window.executed_pairs() + static_cast<double>(parts.middle) * others;
    // A ragged block among the random and wrapped ones counts whole.
    const double pattern = g * n + window.pattern_pairs() + static_cast<double>(parts.middle) * others;
    return {flops * executed, flops * pattern, kept};
  }

  [[nodiscard]] bool zeroes_padding() const override { return true; }
  [[nodiscard]] bool takes_bf16() const override { return true; }
  [[nodiscard]] bool takes_half_on_devices(const at::Tensor& q) const override {
    return kernels::window_attention_runs_fused(q);
  }
  [[nodiscard]] std::string backend() const override { return whole_ ? "explicit, softmax over all" : "explicit"; }

 private:
  [[nodiscard]] Layout layout(int64_t n) const {
    Layout result;
    if (global_tokens_ >= 0) {
      result.front = std::min(global_tokens_, n);
    } else {
      result.front = std::min(block_, n);
      const int64_t rest = n - result.front;
      if (!wrap_ && rest > 0) result.back = (rest - 1) % block_ + 1;
    }
    result.middle = n - result.global();
    result.blocks = (result.middle + block_ - 1) / block_;
    return result;
  }

  [[nodiscard]] bool has_graph(const Layout& parts) const { return parts.blocks >= 3 + random_; }
  // Blocks that come as extra keys: random ones, and both neighbours where they wrap.
  [[nodiscard]] int64_t extra_blocks() const { return random_ + (wrap_ ? 2 : 0); }
  [[nodiscard]] Windows windows(const Layout& parts) const {
    return wrap_ ? Windows::own_block(parts.middle, block_, false)
                 : Windows::neighbour_blocks(parts.middle, block_, false);
  }

  at::Tensor full_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                            const at::Tensor& query_valid, const kernels::Dropout& dropout) const {
    kernels::AttentionOptions options;
    options.scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    options.mask = mask;
    options.query_valid = query_valid;
    options.dropout = dropout.place(is_training());
    return kernels::attention(q, k, v, options);
  }

  // On a device kept until other ranks are loaded (by copy_: a tensor counts its versions), for there they are sixteen
  // launches. A CPU makes them anew, however the ranks were changed.
  [[nodiscard]] at::Tensor known_places(const Layout& parts, int64_t n, const at::Tensor& q) const {
    const auto make = [&](const at::TensorOptions& numbers) { return places(parts, n, q.size(1), numbers); };
    if (random_ > 0 && q.is_cpu()) return make(q.options().dtype(at::kLong));
    const int64_t loaded = ranks_.defined() ? static_cast<int64_t>(ranks_._version()) : 0;
    return tables_.get("places", {n, q.size(1), loaded}, q.device(), make);
  }

  // The tokens, of n, that each block sees beside its neighbours [h or 1,t,g]: the global ones, then those of blocks
  // from elsewhere; -1 behind the last token of a ragged one.
  [[nodiscard]] at::Tensor places(const Layout& parts, int64_t n, int64_t heads,
                                  const at::TensorOptions& numbers) const {
    const int64_t t = parts.blocks;
    const at::Tensor index = at::arange(t, numbers);
    // [h or 1,t,r] blocks -> [h or 1,t,r c] tokens
    const auto tokens_of = [&](const at::Tensor& blocks) {
      const at::Tensor all = (blocks.unsqueeze(-1) * block_ + at::arange(block_, numbers)).flatten(2);
      return at::where(all < parts.middle, all + parts.front, -1);
    };
    std::vector<at::Tensor> pieces{
        at::cat({at::arange(parts.front, numbers), at::arange(n - parts.back, n, numbers)}).expand({1, t, -1})};
    if (wrap_) pieces.push_back(tokens_of(at::stack({(index + t - 1) % t, (index + 1) % t}, 1).unsqueeze(0)));
    if (random_ > 0) {
      const at::Tensor distance = (index - index.unsqueeze(1)).abs();
      const at::Tensor linked = wrap_ ? distance.le(1).logical_or(distance.ge(t - 1)) : distance.le(1);  // [t,t]
      const at::Tensor ranks = ranks_.narrow(1, 0, t).narrow(2, 0, t).masked_fill(linked, -1);
      pieces.push_back(tokens_of(std::get<1>(ranks.topk(random_, -1))));
      for (at::Tensor& piece : pieces) piece = piece.expand({heads, t, -1});
    }
    return at::cat(pieces, 2);
  }

  int64_t block_, random_, global_tokens_;
  bool wrap_;
  int64_t max_len_;
  kernels::Dropout dropout_, global_dropout_;
  at::Tensor ranks_;  // [h, T, T]
  IndexTables tables_;
  bool whole_ = false;
};

template <class Options>
Schema<Options> common_schema() {
  return Schema<Options>()
      .add(&Options::block, "block", "tokens per block (b)", at_least(1))
      .add(&Options::random_blocks, "random_blocks", "random blocks that each block sees (r)", at_least(0))
      .add(&Options::edge, "edge",
           "neighbours of the first and the last block: clip (those that exist), wrap (each other, and only the first "
           "block is global)",
           one_of({"clip", "wrap"}));
}

const Schema<ItcOptions>& itc_schema() {
  static const Schema<ItcOptions> kSchema = common_schema<ItcOptions>();
  return kSchema;
}

const Schema<EtcOptions>& etc_schema() {
  static const Schema<EtcOptions> kSchema =
      common_schema<EtcOptions>().add(&EtcOptions::global_tokens, "global_tokens", kGlobalTokensHelp, at_least(0));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor itc;
  itc.name = "bigbird-itc";
  itc.aliases = {"bigbird"};
  itc.title = "BigBird, internal global blocks";
  itc.paper =
      "Zaheer, Guruganesh, Dubey, Ainslie, Alberti, Ontanon, Pham, Ravula, Wang, Yang, Ahmed: Big Bird: Transformers "
      "for "
      "Longer Sequences, 2020";
  itc.method_class = "FP+M";
  itc.summary =
      "Each block of tokens sees its neighbours, a few random blocks and the first and last block, which see all.";
  itc.complexity = Complexity::kLinear;
  itc.traits = {.fixed_length = true};
  itc.options = itc_schema().options();
  itc.tensors = {
      {"ranks",
       "[i, x, y] is the rank, from 0, of block y for block x of head i: the random blocks of x are those of "
       "highest rank that it does not see anyway [h, T, T]",
       fault_in_ranks}};
  itc.dense_limit = Json{{"block", 1 << 30}};
  itc.build_core = [](const Json& json, const BuildContext& context) {
    const ItcOptions options = itc_schema().read(json);
    return std::make_shared<BigBirdCore>(options.block, options.random_blocks, -1, options.edge == "wrap", context);
  };

  Descriptor etc = itc;
  etc.name = "bigbird-etc";
  etc.aliases.clear();
  etc.title = "BigBird, external global tokens";
  etc.summary = "Each block of tokens sees its neighbours, a few random blocks and tokens put in front, which see all.";
  // Which blocks are random, and who wraps to whom, goes by how many there are.
  etc.appended_padding = {"with random_blocks=0 and edge=clip", [](const Json& options) {
                            return options["random_blocks"] == 0 && options["edge"] == "clip";
                          }};
  etc.options = etc_schema().options();
  etc.prefix_tokens = [](const Json& options) { return etc_schema().read(options).global_tokens; };
  etc.build_core = [](const Json& json, const BuildContext& context) {
    const EtcOptions options = etc_schema().read(json);
    return std::make_shared<BigBirdCore>(options.block, options.random_blocks, options.global_tokens,
                                         options.edge == "wrap", context);
  };
  return {itc, etc};
}

}  // namespace xformer::attention::variants::bigbird
