// Blockwise attention (BlockBERT): Qiu, Ma, Levy, Yih, Wang, Tang, "Blockwise Self-Attention for Long Document
// Understanding", 2020, section 3. The sequence is cut into t blocks; head h has a permutation of them, and the queries
// of block a read the keys of block pi_h(a) alone:
//   O_a = softmax(Q_a K_pi(a)^T / sqrt(d)) V_pi(a),   pi_h(a) = a + s_h mod t
// Shifts s >= 1 have max(1, round(h / 6)) heads each, as far as one is left for the identity, which has the others: 10
// and 2 of 12 heads for two blocks, 8, 2 and 2 for three. Fewer heads than blocks take the first shifts, one each.
// Causal (attention-more 13): pi(a) = a - s, no keys where there is no such block, and the identity's blocks are
// triangular. A block without a valid token gives the rows that read it zero. Blocks have ceil(n / t) tokens of the
// sequence at hand. Pinned tokens stand outside: they see all and are seen by all.
#include <algorithm>
#include <cmath>

#include "attention/descriptor.h"
#include "attention/shared/index_tables.h"
#include "attention/shared/parts.h"
#include "attention/shared/pinned.h"
#include "attention/shared/windows.h"
#include "kernels/attention/attention.h"
#include "tensor/parts.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::blockwise {

struct Options {
  int64_t blocks = 2;
};

// Heads of each shift, 0 first.
std::vector<int64_t> heads_of_shifts(int64_t blocks, int64_t heads) {
  const int64_t shifts = std::min(blocks, heads);
  std::vector<int64_t> result(static_cast<size_t>(shifts), 1);
  if (shifts > 1) {
    const auto sixth = static_cast<int64_t>(std::lround(static_cast<double>(heads) / 6));
    const int64_t each = std::max<int64_t>(1, std::min(sixth, (heads - 1) / (shifts - 1)));
    std::fill(result.begin() + 1, result.end(), each);
    result[0] = heads - each * (shifts - 1);
  } else {
    result[0] = heads;
  }
  return result;
}

class BlockwiseCore : public AttentionCore {
 public:
  BlockwiseCore(const Options& options, const BuildContext& context)
      : blocks_(options.blocks), causal_(context.causal), pinned_(context) {
    int64_t first = 0, shift = 0;
    for (const int64_t heads : heads_of_shifts(blocks_, context.heads)) {
      groups_.push_back({shift++, first, heads, context.make_dropout()});
      first += heads;
    }
  }

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    XF_ASSERT(mask.causal == causal_, "blockwise was built with causal {}", causal_);
    return pinned_.forward(q, k, v, mask, is_training(), [&](const PinnedTokens::Rest& rest) {
      std::vector<at::Tensor> parts;
      for (const Group& group : groups_) {
        const ProbeScope scope("shift", group.shift);
        const auto take = [&](const at::Tensor& x) { return x.defined() ? x.narrow(1, group.first, group.heads) : x; };
        const PinnedTokens::Rest part{take(rest.q),
                                      take(rest.k),
                                      take(rest.v),
                                      rest.valid,
                                      {take(rest.pinned.k), take(rest.pinned.v), rest.pinned.allowed}};
        parts.push_back(shift_of(group.shift, rest.q.size(2)) == 0 ? own_blocks(part, group) : shifted(part, group));
      }
      return parts.size() == 1 ? parts.front() : at::cat(parts, 1);
    });
  }

  [[nodiscard]] bool takes_bf16() const override { return true; }
  [[nodiscard]] bool takes_half_on_devices(const at::Tensor& q) const override {
    return kernels::window_attention_runs_fused(q);
  }

  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const int64_t n = shape.query_len, p = pinned_.of(n), places = n - p;
    const double heads = static_cast<double>(shape.heads);
    double executed = heads * pinned_.executed_pairs(n), pattern = heads * pinned_.pattern_pairs(n);
    if (places > 0)
      for (const Group& group : groups_) {
        const double own = static_cast<double>(group.heads), to_pinned = static_cast<double>(places * p);
        if (shift_of(group.shift, places) == 0) {
          const Windows windows = own_windows(places);
          executed += own * (windows.executed_pairs() + to_pinned);
          pattern += own * (windows.pattern_pairs() + to_pinned);
          continue;
        }
        const int64_t c = tokens(places), t = (places + c - 1) / c;
        for (int64_t a = 0; a < t; ++a) {
          const int64_t read = read_by(a, group.shift, t);
          const int64_t rows = std::min(c, places - a * c), keys = read < 0 ? 0 : std::min(c, places - read * c);
          executed += own * static_cast<double>(c * (p + keys));  // rows behind the last token, too
          pattern += own * static_cast<double>(rows * (p + keys));
        }
      }
    const double b = static_cast<double>(shape.batch), d = static_cast<double>(shape.head_dim);
    return {4 * b * d * executed, 4 * b * d * pattern, kept_of_windows(b * heads, static_cast<double>(n), d)};
  }

 private:
  struct Group {  // heads of one shift, side by side
    int64_t shift, first, heads;
    kernels::Dropout dropout;
  };

  [[nodiscard]] int64_t tokens(int64_t places) const { return (places + blocks_ - 1) / blocks_; }
  [[nodiscard]] Windows own_windows(int64_t places) const {
    return Windows::own_block(places, tokens(places), causal_);
  }
  // Short sequences have fewer blocks.
  [[nodiscard]] int64_t shift_of(int64_t shift, int64_t places) const {
    const int64_t c = tokens(places), t = (places + c - 1) / c;
    return causal_ ? shift : shift % t;
  }
  // The block whose keys block a of t reads, -1 for none.
  [[nodiscard]] int64_t read_by(int64_t a, int64_t shift, int64_t t) const {
    return causal_ ? std::max<int64_t>(-1, a - shift) : (a + shift) % t;
  }

  [[nodiscard]] at::Tensor own_blocks(const PinnedTokens::Rest& in, const Group& group) const {
    return window_attention(in.q, in.k, in.v, in.valid, own_windows(in.q.size(2)), group.dropout, is_training(),
                            in.pinned);
  }

  // Blocks as samples of a batch, each with the keys of the block that it reads behind the pinned ones.
  [[nodiscard]] at::Tensor shifted(const PinnedTokens::Rest& in, const Group& group) const {
    const int64_t b = in.q.size(0), h = in.q.size(1), places = in.q.size(2), c = tokens(places);
    const int64_t t = (places + c - 1) / c, p = in.pinned.k.defined() ? in.pinned.k.size(2) : 0;
    const int64_t back = causal_ ? group.shift : t - group.shift % t;  // the block read, so many blocks before, in turn
    const auto blocks = [&](const at::Tensor& x) {                     // [b,h,places,d] -> [b,t,h,c,d]
      return with_zeros_behind(x, 2, t * c - places).unflatten(2, {t, c}).transpose(1, 2);
    };
    const auto keys = [&](const at::Tensor& x, const at::Tensor& pinned) {  // [b t,h,p + c,d]
      at::Tensor read = blocks(x).roll(back, 1);
      if (p > 0) read = at::cat({pinned.unsqueeze(1).expand({b, t, h, p, -1}), read}, 3);
      return read.flatten(0, 1);
    };
    const auto flags = in.q.options().dtype(at::kBool);
    const at::Tensor valid = in.valid.defined() ? in.valid : at::ones({b, places}, flags);
    at::Tensor open = with_zeros_behind(valid, 1, t * c - places).reshape({b, t, c}).roll(back, 1);
    if (causal_) {
      const auto behind = [&](const at::TensorOptions& numbers) { return at::arange(t, numbers).ge(group.shift); };
      open = open.logical_and(tables_.get("behind", {t, group.shift}, in.q.device(), behind).unsqueeze(-1));
    }
    if (p > 0) {
      const at::Tensor pinned =
          in.pinned.allowed.defined() ? in.pinned.allowed.expand({b, t, p}) : at::ones({b, t, p}, flags);
      open = at::cat({pinned, open}, 2);
    }
    kernels::AttentionOptions options;
    options.scale = 1 / std::sqrt(static_cast<double>(in.q.size(-1)));
    options.mask.key_valid = open.flatten(0, 1);
    options.dropout = place_of_parts(group.dropout.place(is_training()), t);
    const at::Tensor out =
        kernels::attention(blocks(in.q).flatten(0, 1), keys(in.k, in.pinned.k), keys(in.v, in.pinned.v), options);
    return part_of(out.unflatten(0, {b, t}).transpose(1, 2).flatten(2, 3), 2, 0, places);
  }

  int64_t blocks_;
  bool causal_;
  PinnedTokens pinned_;
  IndexTables tables_;
  std::vector<Group> groups_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>().add(&Options::blocks, "blocks", "blocks that the sequence is cut into (t)", at_least(1));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor result;
  result.name = "blockwise";
  result.aliases = {"blockbert"};
  result.title = "Blockwise attention (BlockBERT)";
  result.paper = "Qiu, Ma, Levy, Yih, Wang, Tang: Blockwise Self-Attention for Long Document Understanding, 2020";
  result.method_class = "FP";
  result.summary = "The sequence is cut into a few blocks; in each head a block attends to one block, its own in most.";
  result.complexity = Complexity::kQuadratic;
  result.traits = {.causal_ok = true};
  result.appended_padding = {"with blocks=1",
                             [](const Json& options) { return options["blocks"].get<int64_t>() == 1; }};
  result.options = schema().options();
  result.dense_limit = Json{{"blocks", 1}};
  result.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<BlockwiseCore>(schema().read(options), context);
  };
  return {result};
}

}  // namespace xformer::attention::variants::blockwise
