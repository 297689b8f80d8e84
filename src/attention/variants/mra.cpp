// MRA-2: Zeng, Pal, Kline, Fung, Singh, "Multi Resolution Analysis (MRA) for Approximate Self-Attention", ICML 2022,
// section 4, with two resolutions (block means and tokens). For blocks x of queries and y of keys:
//   c_xy = mean(q)_x . mean(k)_y / sqrt(d)                      coarse score, means over valid tokens
//   J    = the block pairs of greatest priority c_xy - max_y' c_xy', over the whole grid; no gradient
//   a_ij = exp(q_i k_j / sqrt(d))  for (x(i), y(j)) in J        o_i = sum_j a_ij v_j / sum_j a_ij
//   a_ij = exp(c_xy)               otherwise;   0 in mra2-s, the sparse form
// over valid keys j. There are three priors: the diagonal band, the first rows, the first columns. A pair with more of
// them goes before one with fewer, whatever its priority; pairs without tokens go last. Equal priorities, of which
// there are many, as each row's greatest is 0, are taken evenly over the grid. The maximum over y' is over all blocks,
// empty ones (c = 0) too. The published code adds 5000 for each prior and -10000 where there are no tokens, and 1e-6 to
// counts and denominators; among equals it takes what LibTorch's topk finds first. Here the order is exact, and a row's
// greatest term is 1, so that no denominator needs help and J = everything is softmax to rounding.
#include <algorithm>
#include <cmath>

#include "attention/descriptor.h"
#include "attention/shared/index_tables.h"
#include "kernels/batched_product/batched_product.h"
#include "kernels/picked_rows/picked_rows.h"
#include "tensor/parts.h"
#include "tensor/probe.h"

namespace xformer::attention::variants::mra {

constexpr int64_t kPatchHeight = 4, kPatchWidth = 8;  // pixels of an image that lie together
constexpr double kLowest = -1e30;                     // score of what is not there

// An order number holds, from its high bits: class (three priors, two, one, none, empty), priority, place in the queue
// of equals. Position p of the grid has the place p kStride mod 2^29, kStride being 2^29 over the golden ratio:
// whatever number of places comes first, their positions lie evenly over the grid. kBack brings places back to
// positions.
constexpr int kPlaceBits = 29, kClassShift = 60;
constexpr int64_t kPlaces = int64_t{1} << kPlaceBits, kStride = 331804471, kBack = 470808199;
static_assert(kStride * kBack % kPlaces == 1);

struct Options {
  int64_t block = 32;
  int64_t blocks_per_row = 8;
  double budget = 0;
  int64_t first = 1;
  int64_t diag = 0;
};

class MraCore : public AttentionCore {
 public:
  MraCore(const Options& options, bool sparse, const BuildContext& context)
      : options_(options),
        sparse_(sparse),
        grid_(context.grid),
        pinned_(context.pinned_tokens),
        fine_dropout_(context.make_dropout()),
        coarse_dropout_(context.make_dropout()) {}

  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask,
                     Carry&) override {
    const int64_t n = q.size(2);
    XF_ASSERT(k.size(2) == n, "mra2 needs as many keys ({}) as queries ({})", k.size(2), n);
    if (grid_ == 0 || grid_ % kPatchWidth != 0 || n <= pinned_ || (n - pinned_) % (grid_ * kPatchHeight) != 0)
      return attend(q, k, v, mask);
    const auto patches = [&](const at::Tensor& x, int64_t dim) { return reorder(x, dim, true); };
    const SequenceMask moved{mask.all_valid() ? at::Tensor() : patches(mask.key_valid, 1), mask.causal};
    return reorder(attend(patches(q, 2), patches(k, 2), patches(v, 2), moved), 2, false);
  }

  // Scores and mixing of the chosen pairs, and over block means (in the sparse form scores alone). Kept are weights,
  // the dropout's output, and the gathered blocks of q, k and v.
  [[nodiscard]] Cost cost(const Shape& shape) const override {
    const Sizes sizes = sizes_of(shape.query_len);
    const double z = static_cast<double>(shape.batch * shape.heads), d = static_cast<double>(shape.head_dim);
    const double gathered = static_cast<double>(sizes.chosen * sizes.block),
                 pairs = gathered * static_cast<double>(sizes.block),
                 grid = static_cast<double>(sizes.blocks * sizes.blocks);
    const double flops = z * d * (4 * pairs + (sparse_ ? 2 : 4) * grid);
    return {flops, flops, z * (2 * pairs + 3 * gathered * d + 3 * grid)};
  }

 private:
  struct Sizes {
    int64_t block = 0, blocks = 0, chosen = 0;  // c tokens in each of g blocks; m pairs of blocks
  };

  [[nodiscard]] Sizes sizes_of(int64_t n) const {
    const int64_t block = std::min(options_.block, n), blocks = (n + block - 1) / block, grid = blocks * blocks;
    const int64_t wanted = options_.budget > 0 ? std::llround(options_.budget * static_cast<double>(grid))
                                               : std::min(options_.blocks_per_row, blocks) * blocks;
    return {block, blocks, std::clamp<int64_t>(wanted, 1, grid)};
  }

  // Rows of pixels to patches of 4 x 8 and back, behind the pinned tokens.
  [[nodiscard]] at::Tensor reorder(const at::Tensor& x, int64_t dim, bool to_patches) const {
    const int64_t pixels = x.size(dim) - pinned_, down = pixels / (grid_ * kPatchHeight), across = grid_ / kPatchWidth;
    const at::Tensor image = x.narrow(dim, pinned_, pixels);
    const at::Tensor split = to_patches ? image.unflatten(dim, {down, kPatchHeight, across, kPatchWidth})
                                        : image.unflatten(dim, {down, across, kPatchHeight, kPatchWidth});
    const at::Tensor moved = split.transpose(dim + 1, dim + 2).flatten(dim, dim + 3);
    return pinned_ == 0 ? moved : at::cat({x.narrow(dim, 0, pinned_), moved}, dim);
  }

  // coarse [b,h,g,g], count [b or 1,1,g] -> order numbers [b,h,g g], all different; the smallest are chosen. So neither
  // the device nor the batch has a say in ties.
  [[nodiscard]] at::Tensor order_of(const at::Tensor& coarse, const at::Tensor& count) const {
    const int64_t blocks = coarse.size(-1);
    const auto table = [&](const char* name, const auto& of) {  // of(row [g,1], column [g]) [g,g]
      return tables_.get(name, {blocks}, coarse.device(), [&](const at::TensorOptions& numbers) {
        const at::Tensor column = at::arange(blocks, numbers);
        return of(column.unsqueeze(1), column);
      });
    };
    const at::Tensor classes = table("classes", [&](const at::Tensor& row, const at::Tensor& column) {
      const auto yes = [](const at::Tensor& condition) { return condition.to(at::kLong); };
      const at::Tensor priors = yes(row < options_.first) + yes(column < options_.first);
      return 3 - (options_.diag > 0 ? priors + yes((row - column).abs() <= options_.diag / 2) : priors);
    });
    const at::Tensor place = table("places", [&](const at::Tensor& row, const at::Tensor& column) {
      return ((row * blocks + column) * kStride).bitwise_and(kPlaces - 1);
    });
    const at::Tensor present = count > 0, both = present.unsqueeze(-1).logical_and(present.unsqueeze(-2));
    const at::Tensor rank = at::where(both, classes, int64_t{4});
    // The bits of floats that are not negative rise with their values.
    const at::Tensor behind = (coarse.amax(-1, /*keepdim=*/true) - coarse).to(at::kFloat).view(at::kInt).to(at::kLong);
    return (rank.bitwise_left_shift(kClassShift) + behind.bitwise_left_shift(kPlaceBits) + place).flatten(2);
  }

  struct Choice {
    at::Tensor refined;        // [b,h,g,g]: whether a pair is in J
    at::Tensor rows, columns;  // [b,h,m]: of the chosen pairs, the numbers of their blocks
  };

  [[nodiscard]] Choice choose(const at::Tensor& coarse, const at::Tensor& count, int64_t chosen) const {
    const int64_t b = coarse.size(0), h = coarse.size(1), g = coarse.size(2);
    const at::Tensor order = order_of(coarse, count),
                     smallest = std::get<0>(at::topk(order, chosen, -1, /*largest=*/false));
    const at::Tensor position = (smallest.bitwise_and(kPlaces - 1) * kBack).bitwise_and(kPlaces - 1),
                     row = position.floor_divide(g);
    return {(order <= smallest.narrow(-1, chosen - 1, 1)).view({b, h, g, g}), row, position - row * g};
  }

  // Fine blocks are picked into [b h m, c, ..]; a row of blocks owns any number of them, so their parts are summed up
  // into [b,h,g,c ..].
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const SequenceMask& mask) {
    const int64_t b = q.size(0), h = q.size(1), n = q.size(2), d = q.size(3);
    const auto [block, blocks, chosen] = sizes_of(n);
    const int64_t c = block, g = blocks, missing = g * c - n;
    at::Tensor there;  // [b or 1,1,g,c], 1 for a token and 0 for none; undefined when every block is full
    if (missing > 0 || !mask.all_valid()) {
      const at::Tensor tokens = mask.all_valid() ? at::ones({1, n}, q.options().dtype(at::kBool)) : mask.key_valid;
      there = with_zeros_behind(tokens, 1, missing).reshape({-1, 1, g, c}).to(q.scalar_type());
    }
    const at::Tensor valid = mask.all_valid() ? at::Tensor() : mask.as_factor(q.scalar_type());
    const auto split = [&](const at::Tensor& x) {  // [b,h,n,d] -> [b,h,g,c,d]; padded rows are zero
      const at::Tensor rows = mask.all_valid() ? x : x * valid;
      return with_zeros_behind(rows, 2, missing).reshape({b, h, g, c, d});
    };
    const at::Tensor q_blocks = split(q * (1 / std::sqrt(static_cast<double>(d)))), k_blocks = split(k),
                     v_blocks = split(v);
    const at::Tensor count = there.defined() ? there.sum(-1) : at::full({1, 1, g}, static_cast<double>(c), q.options());
    // In the sparse form the coarse scores only choose.
    const auto mean = [&](const at::Tensor& x) {
      return (sparse_ ? x.detach() : x).sum(3) / count.clamp_min(1).unsqueeze(-1);
    };
    at::Tensor coarse = at::matmul(mean(q_blocks), mean(k_blocks).transpose(-1, -2));  // [b,h,g,g]
    const auto [refined, rows, columns] = choose(coarse.detach(), count, chosen);
    probe("coarse_scores", coarse), probe("refined", refined);

    const auto pick = [&](const at::Tensor& x, const at::Tensor& places) {  // [b,h,g,c,d] -> [b h m,c,d]
      return kernels::picked_rows(x.flatten(3), places).view({-1, c, d});
    };
    const auto total = [&](const at::Tensor& x) {  // [b h m,c,..] -> [b,h,g,c ..]
      return kernels::summed_rows(x.reshape({b, h, chosen, -1}), rows, g);
    };
    at::Tensor scores =
        kernels::batched_product(pick(q_blocks, rows), pick(k_blocks, columns).transpose(1, 2));  // [b h m,c,c]
    if (there.defined())  // what is none is -infinity
      scores = scores + kernels::picked_rows(there.log().expand({b, h, g, c}), columns).view({-1, 1, c});
    // The largest score of each row, fine or coarse; it cancels, so it takes no gradient.
    const at::Tensor peaks = scores.detach().amax(-1).view({b, h, chosen, c});
    at::Tensor largest = at::full({b, h, g, c}, kLowest, q.options())
                             .scatter_reduce(2, rows.unsqueeze(-1).expand({-1, -1, -1, c}), peaks, "amax");
    at::Tensor coarse_largest;  // [b,h,g,1]
    if (!sparse_) {
      coarse = coarse.masked_fill(refined.logical_or(count.unsqueeze(2) == 0), kLowest);
      coarse_largest = coarse.detach().amax(-1, /*keepdim=*/true).clamp_min(kLowest / 2);
      largest = at::maximum(largest, coarse_largest);
    }
    largest = largest.clamp_min(kLowest / 2);  // a row without any key: all its terms vanish
    const at::Tensor weights = at::exp(scores - kernels::picked_rows(largest, rows).view({-1, c, 1}));
    const at::Tensor dropped = fine_dropout_(weights.view({b, -1}), is_training()).view_as(weights);
    at::Tensor sums = total(kernels::batched_product(dropped, pick(v_blocks, columns))).view({b, h, g, c, d});
    at::Tensor totals = total(weights.sum(-1));
    if (!sparse_) {
      const at::Tensor block_weights = at::exp(coarse - coarse_largest);  // [b,h,g,g], of each of the block's tokens
      const at::Tensor mixed = at::matmul(coarse_dropout_(block_weights, is_training()), v_blocks.sum(3));
      const at::Tensor factor = at::exp(coarse_largest - largest);  // [b,h,g,c]
      sums = sums + factor.unsqueeze(-1) * mixed.unsqueeze(3);
      totals = totals + factor * (block_weights * count.unsqueeze(2)).sum(-1, /*keepdim=*/true);
    }
    // Zero only for rows without any key, whose sums are zero too.
    const at::Tensor out = sums / totals.masked_fill(totals == 0, 1).unsqueeze(-1);
    return part_of(out.flatten(2, 3), 2, 0, n);
  }

  Options options_;
  bool sparse_;
  int64_t grid_, pinned_;
  kernels::Dropout fine_dropout_, coarse_dropout_;
  IndexTables tables_;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      Schema<Options>()
          .add(&Options::block, "block", "tokens per block (b)", at_least(1))
          .add(&Options::blocks_per_row, "blocks_per_row",
               "pairs of blocks computed exactly, for each block of queries on average", at_least(1))
          .add(&Options::budget, "budget",
               "share of all pairs of blocks that is computed exactly; 0 goes by blocks_per_row", between(0, 1))
          .add(&Options::first, "first",
               "first blocks whose rows and columns are computed exactly before all others; with diag, pairs that both "
               "name come first",
               at_least(0))
          .add(&Options::diag, "diag", "width of the diagonal band of blocks computed exactly before all others",
               at_least(0));
  return kSchema;
}

std::vector<Descriptor> describe() {
  Descriptor full;
  full.name = "mra2";
  full.title = "MRA-2";
  full.paper =
      "Zeng, Pal, Kline, Fung, Singh: Multi Resolution Analysis (MRA) for Approximate Self-Attention, ICML 2022";
  full.method_class = "MR";
  full.summary =
      "Attention between block means, refined to tokens for the pairs of blocks that matter most; linear in the length "
      "but for the block means, of which there are (n / block)^2.";
  full.complexity = Complexity::kQuadratic;
  full.options = schema().options();
  full.appended_padding = {"with budget=1", [](const Json& options) { return options["budget"] == 1; }};
  full.dense_limit = Json{{"budget", 1.0}};
  full.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<MraCore>(schema().read(options), false, context);
  };

  Descriptor sparse = full;
  sparse.name = "mra2-s";
  sparse.title = "MRA-2-s";
  sparse.summary = "The sparse form of MRA-2: only the pairs of blocks that matter most, found by their means.";
  // Every row of blocks has a pair.
  for (OptionInfo& option : sparse.options)
    if (option.name == "diag") option.fallback = 1;
  sparse.build_core = [](const Json& options, const BuildContext& context) {
    return std::make_shared<MraCore>(schema().read(options), true, context);
  };
  return {full, sparse};
}

}  // namespace xformer::attention::variants::mra
