// Attention by alpha-entmax on the CPU: some rows at a time, whose scores of all keys stay in the cache while their
// thresholds are found.
#include "kernels/entmax_attention/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include "kernels/attention/score_rows.h"
#include "kernels/attention/weight_draws.h"
#include "kernels/cpu/tile_sums.h"
#include "kernels/cpu/units.h"
#include "kernels/entmax_attention/weight_rows.h"

namespace xformer::kernels {

namespace {

static_assert(kScoreLanes == kEntmaxLanes);

// What a worker computes in.
template <class Stored>
struct EntmaxScratch {
  using Value = Computed<Stored>;
  ScoreRoom<Stored> room;
  std::vector<Value> slopes, row, out, dk, dv;
  std::vector<Value> turned_dk, turned_dv;  // TileSums' room
  std::vector<Stored> factor;               // a tile as products take it
  std::vector<uint16_t> draws;
  std::vector<const uint16_t*> draws_at{nullptr};
  std::vector<PackedFactor<Stored>> turned_values, keys;  // of a head, by blocks
};

// The operands of a call, and what is done with some rows of one head.
template <class Stored>
class EntmaxHeads : public ScoreRows<Stored> {
  using Rows = ScoreRows<Stored>;
  using Rows::allowed, Rows::for_blocks, Rows::k, Rows::key_end, Rows::q, Rows::score;

 public:
  using Rows::block, Rows::sizes;
  using Value = Computed<Stored>;
  using Scratch = EntmaxScratch<Stored>;
  static constexpr Value kNoThreshold = std::numeric_limits<Value>::infinity();

  EntmaxHeads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& alpha,
              const EntmaxAttentionOptions& options)
      : Rows(q, k, head_sizes(q, k, v), options.rows),
        options_(options),
        draws_(options.rows.dropout, sizes),
        alpha_(alpha.defined() ? alpha.contiguous() : alpha),
        v_(reading<Stored>(v)) {}

  // The output of at most `block` rows, and thresholds [n].
  void forward(int64_t b, int64_t h, int64_t first, const Heads<Stored>& out, Value* thresholds, Scratch& mine) const {
    const int64_t rows = std::min(block, sizes.n - first), e = sizes.e, end = key_end(b, first, rows);
    const TileRows<Value> to = rows_for(out.at(b, h, first), out.stride, rows, e, mine.out);
    if (end == 0) {
      for (int64_t r = 0; r < rows; ++r) std::fill_n(to.data + r * to.stride, e, Value(0));
      std::fill_n(thresholds + first, rows, kNoThreshold);
    } else {
      pack(b, h, /*backward=*/false, mine);
      const int64_t line = score(b, h, first, rows, end, mine.room);
      for (int64_t r = 0; r < rows; ++r) {
        Value *const y = mine.room.scores.data() + r * line, &threshold = thresholds[first + r];
        threshold = kNoThreshold;
        if (allowed.query(b, first + r))
          threshold =
              entmax_weights(y, line, row_of(b, h, first + r, line, mine), grown(mine.row, line + kEntmaxLanes));
        else std::fill_n(y, line, Value(0));
      }
      const Stored* const weights = factor_of<Stored>(mine.room.scores.data(), rows * line, mine.factor);
      for_blocks(end, [&](int64_t key, int64_t count, size_t) {
        gemm(rows, e, count, Value(1), {weights + key, line}, {v_.at(b, h, key), v_.stride}, Value(key > 0), to.data,
             to.stride);
      });
    }
    store_rows(to, rows, e, out.at(b, h, first), out.stride);
  }

  // Gradients by rows from .. to - 1: their own dq, alpha's part of each (nullptr: none), and their share of dk [m,d]
  // and dv [m,e].
  void backward(int64_t b, int64_t h, int64_t from, int64_t to, const Heads<const Stored>& gradient,
                const Value* thresholds, const Heads<Stored>& dq, Value* alpha_rows, const TileRows<Value>& dk,
                const TileRows<Value>& dv, Scratch& mine) const {
    const int64_t d = sizes.d;
    const TileSums<Stored> k_sums(dk, sizes.m, d, scale(), mine.turned_dk),
        v_sums(dv, sizes.m, sizes.e, Value(1), mine.turned_dv);
    k_sums.clear();
    v_sums.clear();
    for (int64_t first = from; first < to; first += block) {
      const int64_t rows = std::min(block, to - first), end = key_end(b, first, rows);
      const TileRows<Value> into = rows_for(dq.at(b, h, first), dq.stride, rows, d, mine.out);
      if (end == 0) {
        for (int64_t r = 0; r < rows; ++r) std::fill_n(into.data + r * into.stride, d, Value(0));
        if (alpha_rows != nullptr) std::fill_n(alpha_rows + first, rows, Value(0));
        store_rows(into, rows, d, dq.at(b, h, first), dq.stride);
        continue;
      }
      pack(b, h, /*backward=*/true, mine);
      const int64_t line = score(b, h, first, rows, end, mine.room);
      Value* const slopes = grown(mine.slopes, rows * line);
      for_blocks(end, [&](int64_t key, int64_t, size_t place) {
        gemm(rows, {gradient.at(b, h, first), gradient.stride}, mine.turned_values[place], Value(0), slopes + key,
             line);
      });
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t i = first + r;
        Value *const y = mine.room.scores.data() + r * line, *const slope = slopes + r * line, of_alpha = 0;
        std::fill(slope + end, slope + line, Value(0));
        if (thresholds[i] == kNoThreshold) {
          std::fill_n(y, line, Value(0));
          std::fill_n(slope, line, Value(0));
        } else {
          of_alpha =
              entmax_gradients(y, slope, line, row_of(b, h, i, line, mine), thresholds[i], grown(mine.row, line));
        }
        if (alpha_rows != nullptr) alpha_rows[i] = of_alpha;
      }
      const Stored* const factor = factor_of<Stored>(slopes, rows * line, mine.factor);
      for_blocks(end, [&](int64_t key, int64_t count, size_t place) {
        v_sums.add(key, count, rows, mine.room.scores.data() + key, line, {gradient.at(b, h, first), gradient.stride},
                   false);
        k_sums.add(key, count, rows, slopes + key, line, {q.at(b, h, first), q.stride}, false);
        gemm(rows, {factor + key, line}, mine.keys[place], Value(key > 0), into.data, into.stride);
      });
      store_rows(into, rows, d, dq.at(b, h, first), dq.stride);
    }
    k_sums.finish();
    v_sums.finish();
  }

 private:
  [[nodiscard]] Value scale() const { return static_cast<Value>(options_.rows.scale); }
  [[nodiscard]] Value b_of(int64_t h) const {
    return (alpha_.defined() ? alpha_.const_data_ptr<Value>()[h] : static_cast<Value>(options_.alpha)) - 1;
  }

  // The head's factors of many products.
  void pack(int64_t b, int64_t h, bool backward, Scratch& mine) const {
    if (!Rows::pack(b, h, b_of(h) * scale(), mine.room) || !backward) return;
    mine.turned_values.resize(mine.room.turned_keys.size()), mine.keys.resize(mine.room.turned_keys.size());
    for_blocks(allowed.key_end(b), [&](int64_t key, int64_t count, size_t place) {
      mine.turned_values[place].pack(sizes.n, sizes.e, count, Value(1), {v_.at(b, h, key), v_.stride, true});
      mine.keys[place].pack(sizes.n, count, sizes.d, scale(), {k.at(b, h, key), k.stride});
    });
  }

  [[nodiscard]] EntmaxRow<Value> row_of(int64_t b, int64_t h, int64_t i, int64_t line, Scratch& mine) const {
    mine.draws.resize(draws_.room(1, line));
    draws_.draw(b, h, i, 1, 0, line, mine.draws, mine.draws_at);
    return {entmax_power(options_.alpha), b_of(h), mine.draws_at[0], draws_.threshold(),
            static_cast<Value>(draws_.keep())};
  }

  const EntmaxAttentionOptions& options_;
  WeightDraws draws_;
  at::Tensor alpha_;
  Heads<const Stored> v_;
};

}  // namespace

int64_t entmax_attention_pairs(int64_t n, int64_t m, bool causal) { return score_row_pairs(n, m, causal); }

EntmaxAttentionForward entmax_attention_forward_cpu(const at::Tensor& q_in, const at::Tensor& k_in,
                                                    const at::Tensor& v_in, const at::Tensor& alpha,
                                                    const EntmaxAttentionOptions& options) {
  const at::Tensor q = with_rows(q_in), k = with_rows(k_in), v = with_rows(v_in);
  EntmaxAttentionForward result{new_heads(q, q.size(2), v.size(3)),
                                at::empty({q.size(0), q.size(1), q.size(2)}, computed_options(q))};
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "entmax_attention", [&] {
    const EntmaxHeads<scalar_t> heads(q, k, v, alpha, options);
    const HeadSizes& sizes = heads.sizes;
    const int64_t blocks = (sizes.n + heads.block - 1) / heads.block, units = sizes.b * sizes.h * blocks;
    std::vector<EntmaxScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(units)));
    const auto out = writing<scalar_t>(result.out);
    auto* const thresholds = result.thresholds.mutable_data_ptr<Computed<scalar_t>>();
    for_units(units, std::min(heads.block, sizes.n) * sizes.m * (sizes.d + sizes.e), [&](int64_t unit, int64_t worker) {
      const int64_t z = unit / blocks;
      heads.forward(z / sizes.h, z % sizes.h, unit % blocks * heads.block, out, thresholds + z * sizes.n,
                    scratch[static_cast<size_t>(worker)]);
    });
  });
  return result;
}

EntmaxAttentionGradients entmax_attention_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& q_in,
                                                       const at::Tensor& k_in, const at::Tensor& v_in,
                                                       const at::Tensor& alpha, const EntmaxAttentionForward& forward,
                                                       const EntmaxAttentionOptions& options) {
  const at::Tensor q = with_rows(q_in), k = with_rows(k_in), v = with_rows(v_in), gradient = with_rows(gradient_in);
  EntmaxAttentionGradients result{
      new_heads(q, q.size(2), q.size(3)), new_heads(k, k.size(2), k.size(3)), new_heads(v, v.size(2), v.size(3)), {}};
  const at::Tensor alpha_rows = alpha.defined() ? at::empty_like(forward.thresholds) : at::Tensor();
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "entmax_attention_backward", [&] {
    using Value = Computed<scalar_t>;
    const EntmaxHeads<scalar_t> all(q, k, v, alpha, options);
    const HeadSizes& sizes = all.sizes;
    // Where samples and heads are fewer than threads, their rows are dealt out in parts, each with sums of its own.
    const int64_t heads = sizes.b * sizes.h, blocks = (sizes.n + all.block - 1) / all.block;
    const int64_t parts = std::clamp<int64_t>((at::get_num_threads() + heads - 1) / std::max<int64_t>(heads, 1), 1,
                                              std::max<int64_t>(blocks, 1));
    const int64_t rows = (blocks + parts - 1) / parts * all.block;
    const auto shares_of = [&](int64_t width) {
      return parts == 1 ? at::Tensor() : at::empty({parts, sizes.b, sizes.h, sizes.m, width}, computed_options(q));
    };
    const at::Tensor k_shares = shares_of(sizes.d), v_shares = shares_of(sizes.e);
    std::vector<EntmaxScratch<scalar_t>> scratch(static_cast<size_t>(workers_for(heads * parts)));
    const auto slopes = reading<scalar_t>(gradient);
    const auto dq = writing<scalar_t>(result.q), dk = writing<scalar_t>(result.k), dv = writing<scalar_t>(result.v);
    const auto* const thresholds = forward.thresholds.const_data_ptr<Value>();
    auto* const of_alpha = alpha.defined() ? alpha_rows.mutable_data_ptr<Value>() : nullptr;
    for_units(heads * parts, sizes.n * sizes.m * (sizes.d + sizes.e) / parts, [&](int64_t unit, int64_t worker) {
      EntmaxScratch<scalar_t>& mine = scratch[static_cast<size_t>(worker)];
      const int64_t z = unit / parts, part = unit % parts, b = z / sizes.h, h = z % sizes.h;
      const auto sums = [&](const Heads<scalar_t>& to, const at::Tensor& shares, int64_t width,
                            std::vector<Value>& room) -> TileRows<Value> {
        if (parts == 1) return rows_for(to.at(b, h), to.stride, sizes.m, width, room);
        return {shares.mutable_data_ptr<Value>() + (part * heads + z) * sizes.m * width, width};
      };
      const TileRows<Value> k_sums = sums(dk, k_shares, sizes.d, mine.dk),
                            v_sums = sums(dv, v_shares, sizes.e, mine.dv);
      all.backward(b, h, std::min(sizes.n, part * rows), std::min(sizes.n, (part + 1) * rows), slopes,
                   thresholds + z * sizes.n, dq, of_alpha == nullptr ? nullptr : of_alpha + z * sizes.n, k_sums, v_sums,
                   mine);
      if (parts > 1) return;
      store_rows(k_sums, sizes.m, sizes.d, dk.at(b, h), dk.stride);
      store_rows(v_sums, sizes.m, sizes.e, dv.at(b, h), dv.stride);
    });
    if (parts > 1) {
      result.k.copy_(k_shares.sum(0));
      result.v.copy_(v_shares.sum(0));
    }
  });
  if (alpha.defined()) result.alpha = alpha_rows.sum(at::IntArrayRef({0, 2}));
  return result;
}

}  // namespace xformer::kernels
