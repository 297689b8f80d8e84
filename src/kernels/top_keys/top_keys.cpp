#include "kernels/top_keys/top_keys.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <cmath>

#include "kernels/attention/score_rows.h"
#include "kernels/cpu/units.h"
#include "kernels/fused.h"
#include "kernels/top_keys/rows.h"
#include "tensor/closed_keys.h"

namespace xformer::kernels {

namespace {

template <class Value>
struct TopScratch {
  ScoreRoom<Value> room;
  std::vector<Value> row;
  std::vector<int32_t> places;
  int64_t most = 0;  // of a row's keys so far
};

// Lists of at most `block` rows [rows, width], of which each has its first `width` keys.
template <class Value>
void find_top(const ScoreRows<Value>& scores, const TopKeysOptions& options, int64_t b, int64_t h, int64_t first,
              int64_t width, int64_t* lists, TopScratch<Value>& mine) {
  const int64_t rows = std::min(scores.block, scores.sizes.n - first), end = scores.key_end(b, first, rows);
  std::fill_n(lists, rows * width, -1);
  if (end == 0) return;
  scores.pack(b, h, Value(1), mine.room);
  const int64_t line = scores.score(b, h, first, rows, end, mine.room);
  Value* const room = grown(mine.row, line + 16);
  int32_t* const places = grown(mine.places, line + 16);
  for (int64_t r = 0; r < rows; ++r) {
    if (!scores.allowed.query(b, first + r)) continue;
    const Value* const row = mine.room.scores.data() + r * line;
    const int64_t open = options.top_fraction > 0 ? open_scores(row, line) : end;
    if (open == 0) continue;
    const int64_t found = top_of_row(row, line, options.kept(open), room, places);
    std::copy_n(places, std::min(found, width), lists + r * width);
    mine.most = std::max(mine.most, found);
  }
}

at::Tensor top_keys_cpu(const at::Tensor& q_in, const at::Tensor& k_in, const TopKeysOptions& options) {
  const at::Tensor q = with_rows(q_in), k = with_rows(k_in);
  const HeadSizes sizes = head_sizes(q, k, k);
  at::Tensor result;
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "top_keys", [&] {
    const ScoreRows<scalar_t> scores(q, k, sizes, {1, options.mask, options.query_valid, {}});
    const int64_t blocks = (sizes.n + scores.block - 1) / scores.block, units = sizes.b * sizes.h * blocks;
    // Once more where some scores are alike, and a row keeps more than it has to.
    for (int64_t width = 0, most = std::max<int64_t>(1, options.kept(sizes.m)); width < most;) {
      width = most;
      result = at::empty({sizes.b, sizes.h, sizes.n, width}, q.options().dtype(at::kLong));
      auto* const lists = result.mutable_data_ptr<int64_t>();
      std::vector<TopScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(units)));
      for_units(units, std::min(scores.block, sizes.n) * sizes.m * sizes.d, [&](int64_t unit, int64_t worker) {
        const int64_t z = unit / blocks, first = unit % blocks * scores.block;
        find_top(scores, options, z / sizes.h, z % sizes.h, first, width, lists + (z * sizes.n + first) * width,
                 scratch[static_cast<size_t>(worker)]);
      });
      for (const auto& one : scratch) most = std::max(most, one.most);
    }
  });
  return result;
}

const Operator<top_keys_cpu> top_keys_operator{"top_keys"};

// Scores, the lowest number of keys that a row may not see.
at::Tensor scores_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& closed) {
  at::Tensor scores = at::matmul(q, k.transpose(-1, -2));
  return closed.defined() ? scores.masked_fill_(closed, lowest_score(scores.scalar_type())) : scores;
}
// k_i of each row, given how many keys it may see.
at::Tensor kept_of(const at::Tensor& keys, const TopKeysOptions& options) {
  return at::ceil(keys.to(at::kDouble) * options.top_fraction - 1e-9).to(at::kLong).clamp_min(options.top_k);
}

// What is held of lists, as which of two scores is the larger one may hang on how they are rounded: the least of each,
// and that there are k_i.
variable_list held_of(const at::Tensor& lists, const at::Tensor& scores, const TopKeysOptions& options) {
  const at::Tensor keys = scores.le(lowest_score(scores.scalar_type())).logical_not().sum(-1, /*keepdim=*/true);
  const at::Tensor there = lists.ge(0), of_lists = scores.gather(-1, lists.clamp_min(0));
  const at::Tensor least = of_lists.masked_fill(there.logical_not(), -lowest_score(scores.scalar_type())).amin(-1);
  return {
      least.masked_fill(there.any(-1).logical_not(), 0),
      at::minimum(there.sum(-1, /*keepdim=*/true), at::minimum(keys, kept_of(keys, options))).to(scores.scalar_type())};
}

}  // namespace

int64_t TopKeysOptions::kept(int64_t keys) const {
  // Whole keys of a fraction, however it is rounded in binary.
  const auto share = static_cast<int64_t>(std::ceil(top_fraction * static_cast<double>(keys) - 1e-9));
  return std::min(keys, std::max(top_k, share));
}

bool top_keys_runs_fused(const at::Tensor& q, const at::Tensor& k) {
  return top_keys_operator.runs_on(q) && fit_kernels({q, k});
}

int64_t top_keys_pairs(int64_t n, int64_t m, bool causal) { return score_row_pairs(n, m, causal); }

at::Tensor top_threshold(const at::Tensor& scores, const at::Tensor& closed, const TopKeysOptions& options) {
  const int64_t keys = scores.size(-1), least = std::min(options.top_k, keys), most = options.kept(keys);
  const at::Tensor sorted = std::get<0>(at::topk(scores, most, -1));
  if (most == least || !closed.defined()) return sorted.narrow(-1, most - 1, 1);
  const at::Tensor rank = kept_of(closed.logical_not().sum(-1, /*keepdim=*/true), options).clamp_max(most) - 1;
  return sorted.gather(-1, rank.expand({scores.size(0), scores.size(1), scores.size(2), 1}));
}

at::Tensor top_keys_reference(const at::Tensor& q, const at::Tensor& k, const TopKeysOptions& options) {
  const at::Tensor closed = closed_keys(options.mask, q.size(2), k.size(2), q), scores = scores_of(q, k, closed);
  at::Tensor stays = scores.lt(top_threshold(scores, closed, options)).logical_not();
  if (closed.defined()) stays = stays.logical_and(closed.logical_not());
  if (options.query_valid.defined()) stays = stays.logical_and(options.query_valid.unsqueeze(1).unsqueeze(-1));
  const int64_t m = scores.size(-1);
  const int64_t width = std::max({int64_t{1}, options.kept(m), stays.sum(-1).max().item<int64_t>()});
  const at::Tensor places = at::where(stays, at::arange(m, scores.options().dtype(at::kLong)), m);
  const at::Tensor first = std::get<0>(at::sort(places, -1)).narrow(-1, 0, width);
  return at::where(first.lt(m), first, -1);
}

at::Tensor top_keys(const at::Tensor& q_in, const at::Tensor& k_in, const TopKeysOptions& options) {
  const at::Tensor q = q_in.detach(), k = k_in.detach();
  static CallCounts& counts = calls_of("top_keys");
  const bool fused = top_keys_runs_fused(q, k);
  counts.count(q, fused);
  if (!fused) return top_keys_reference(q, k, options);
  const at::Tensor result = top_keys_operator(q, k, options);
  if (policy() == Policy::kCheck) {
    const at::Tensor scores = scores_of(q, k, closed_keys(options.mask, q.size(2), k.size(2), q));
    check_forward("top_keys", held_of(result, scores, options),
                  [&] { return held_of(top_keys_reference(q, k, options), scores, options); });
  }
  return result;
}

}  // namespace xformer::kernels
