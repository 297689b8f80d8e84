// What both passes of feature attention share: sizes, tiles, and how a tile of rows becomes scores y.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/feature_attention/cpu.h"
#include "kernels/feature_attention/feature_rows.h"
#include "kernels/feature_attention/tiles.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

// Sums over a sequence are made a part at a time and added in the order of parts, so that the result does not depend on
// the threads; a part's rows go through in tiles. Two tiles of 128 KiB of floats, S and omega fit into the second-level
// cache.
constexpr int64_t kPartRows = 1024, kTileElements = 32768, kLeastTileRows = 16, kMostTileRows = 256;

// What a worker computes in.
template <class Stored>
struct FeatureScratch {
  using Value = Computed<Stored>;
  explicit FeatureScratch(int64_t rows, int64_t f, int64_t e)
      : tile(static_cast<size_t>(rows * f)),
        gradient(tile.size()),
        numerator(static_cast<size_t>(rows * e)),
        largest(static_cast<size_t>(rows)),
        shift(largest.size()),
        sums(largest.size()),
        dots(largest.size()),
        winners(largest.size()) {}

  std::vector<Value> tile, gradient;              // [rows,f]
  std::vector<Value> numerator;                   // [rows,e]
  std::vector<Value> largest, shift, sums, dots;  // [rows]
  std::vector<int64_t> winners;
  std::vector<Value> x_room, first_room, second_room, result_room;                   // rows that are stored otherwise
  std::vector<Stored> tile_factor, gradient_factor, numerator_factor, table_factor;  // as products take them
  PackedFactor<Stored> table, turned_table;
  PairedFactor features;         // FeaturePass::paired
  std::vector<Value> sums_room;  // FeaturePass::table_sums()
};

template <class Stored>
struct FeaturePass {
  using Value = Computed<Stored>;
  FeaturePass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const FeatureAttentionOptions& choice)
      : options(choice),
        b(q.size(0)),
        h(q.size(1)),
        n(q.size(2)),
        m(k.size(2)),
        d(q.size(3)),
        e(v.size(3)),
        f(choice.omega.defined() ? choice.omega.size(0) : d),
        tile_rows(std::clamp(kTileElements / std::max<int64_t>(f, 1), kLeastTileRows, kMostTileRows)),
        query_parts(parts_of(n)),
        key_parts(parts_of(m)),
        by_sum(choice.divisor <= 0),
        softmax(choice.map == FeatureMap::kSoftmax),
        q_rows(q),
        k_rows(k),
        v_rows(v),
        omega_rows(choice.omega),
        queries(reading<Stored>(q_rows)),
        keys(reading<Stored>(k_rows)),
        values(reading<Stored>(v_rows)),
        valid_keys(choice.mask.key_valid, m),
        valid_queries(choice.query_valid, n) {
    if constexpr (kConverts<Stored>)
      paired = !choice.mask.causal &&
               pairs_possible({nullptr, std::max({queries.stride, keys.stride, values.stride, e})}, f);
    if (!omega_rows.defined()) return;
    // Where it is rounded all the same, omega has the scale in it; else products have.
    omega_scale = kConverts<Stored> ? Value(1) : static_cast<Value>(options.scale);
    if (kConverts<Stored>) omega_rows = omega_rows * options.scale;
    omega_rows = omega_rows.to(q.scalar_type()).contiguous();
    omega = omega_rows.const_data_ptr<Stored>();
    to_scores.pack(b * h * std::max(n, m), d, f, omega_scale, {omega, d, true});
    from_scores.pack(b * h * std::max(n, m), f, d, omega_scale, {omega, d});
  }

  [[nodiscard]] static int64_t parts_of(int64_t length) {
    return std::max<int64_t>(1, (length + kPartRows - 1) / kPartRows);
  }
  [[nodiscard]] std::vector<FeatureScratch<Stored>> scratch_for(int64_t workers) const {
    std::vector<FeatureScratch<Stored>> result;
    for (int64_t worker = 0; worker < workers; ++worker) result.emplace_back(tile_rows, f, e);
    return result;
  }

  // y of rows x into the tile, and for kSoftmax |x'|^2 / 2 into `shift` and each row's largest y into `largest`, if
  // wanted with the first feature that has it. Returns the rows to compute with, as long as scratch.x_room holds them.
  enum class Finds { kNothing, kLargest, kWinner };
  TileRows<const Value> scores(const Stored* x, int64_t stride, int64_t rows, FeatureScratch<Stored>& scratch,
                               Finds finds = Finds::kLargest) const {
    Value* const tile = scratch.tile.data();
    if (omega != nullptr) {
      gemm(rows, {x, stride}, to_scores, Value(0), tile, f);
      fetch_next_rows(x, stride, rows, d);
    }
    if (!softmax && (omega != nullptr || paired)) return {};
    const TileRows<const Value> wide = loaded_rows(x, stride, rows, d, scratch.x_room);
    if (omega == nullptr)
      for (int64_t r = 0; r < rows; ++r) std::copy_n(wide.data + r * wide.stride, d, tile + r * d);
    if (!softmax) return wide;
    if (finds != Finds::kNothing)
      largest_of_rows(tile, rows, f, scratch.largest.data(),
                      finds == Finds::kWinner ? scratch.winners.data() : nullptr);
    squares_of_rows(wide.data, wide.stride, rows, d, static_cast<Value>(options.scale * options.scale / 2),
                    scratch.shift.data());
    return wide;
  }

  // A table's sums over rows x [rows,e], x^T with the features, which are in the tile or `paired`: begun, added to and
  // finished into the table [e,f]. In between they lie turned over, [f,e], but in bf16: features are the factor then
  // that need not be packed.
  static constexpr bool kTurnsSums = !kConverts<Stored>;
  [[nodiscard]] Value* table_sums(Value* table, FeatureScratch<Stored>& scratch) const {
    return kTurnsSums ? grown(scratch.sums_room, e * f) : table;
  }
  void add_to_table(int64_t rows, Operand<Stored> x, Value* table, FeatureScratch<Stored>& scratch) const {
    const Value* const tile = scratch.tile.data();
    Value* const sums = table_sums(table, scratch);
    x.transposed = !kTurnsSums;
    if constexpr (kTurnsSums) gemm(f, e, rows, Value(1), {tile, f, true}, x, Value(1), sums, e);
    else if (paired) gemm(e, x, scratch.features, Value(1), sums, f);
    else gemm_rounding<Stored>(e, f, rows, x, {tile, f}, Value(1), sums, f);
  }
  void finish_table(Value* table, FeatureScratch<Stored>& scratch) const {
    if constexpr (kTurnsSums) pack_transposed(e, f, Value(1), table_sums(table, scratch), e, table, f);
  }

  // From the gradient of y in scratch.gradient to that of rows x, or where `paired` from where place_of_gradient() let
  // it be rounded. kSoftmax: scratch.sums has its sum over each row.
  void through_scores(const TileRows<const Value>& x, int64_t rows, Stored* into, int64_t into_stride,
                      FeatureScratch<Stored>& scratch) const {
    const auto scale = static_cast<Value>(options.scale);
    const Value* const gradient = scratch.gradient.data();
    if (omega == nullptr && paired) return;
    const TileRows<Value> to = rows_for(into, into_stride, rows, d, scratch.result_room);
    const auto factor = [&] {
      return paired ? scratch.gradient_factor.data() : factor_of<Stored>(gradient, rows * f, scratch.gradient_factor);
    };
    if (omega == nullptr)
      for (int64_t r = 0; r < rows; ++r) std::copy_n(gradient + r * d, d, to.data + r * to.stride);
    else gemm(rows, {factor(), f}, from_scores, Value(0), to.data, to.stride);
    // The share of |x'|^2 / 2.
    if (softmax) add_rows(to.data, to.stride, x.data, x.stride, rows, d, scratch.sums.data(), -scale * scale);
    store_rows(to, rows, d, into, into_stride);
  }

  // y of a feature for a row, in an order of summation that comes out the same for equal rows wherever they stand in a
  // tile, as products need not.
  [[nodiscard]] double score_of(const Stored* row, int64_t feature) const {
    const Stored* const direction = omega + feature * d;
    double score = 0;
    for (int64_t i = 0; i < d; ++i) score += static_cast<double>(row[i]) * static_cast<double>(direction[i]);
    return score;
  }
  // Keys whose largest y is not below this may be as large as `largest` by score_of().
  [[nodiscard]] static Value nearly(Value largest) { return largest - std::abs(largest) * static_cast<Value>(1e-5); }

  // Flags of a tile's rows; nullptr where all of them count.
  [[nodiscard]] static const bool* flags(const ValidRows& valid, int64_t b, int64_t first, int64_t rows) {
    return valid.all(b, first, first + rows) ? nullptr : valid.flags(b) + first;
  }

  // Products of a vector with a tile, which are no call of gemm's: sums of features, and features times those.
  void count_sums(int64_t rows) const {
    if (by_sum) add_executed_flops(2 * rows * f);
  }

  [[nodiscard]] Value floor() const { return static_cast<Value>(options.floor); }

  const FeatureAttentionOptions& options;
  int64_t b, h, n, m, d, e, f, tile_rows, query_parts, key_parts;
  bool by_sum, softmax;
  bool paired = false;  // rows of features are made in registers (feature_tiles.h)
  at::Tensor q_rows, k_rows, v_rows, omega_rows;
  Heads<const Stored> queries, keys, values;
  const Stored* omega = nullptr;  // as products take it
  Value omega_scale = 1;          // what is not in it
  PackedFactor<Stored> to_scores, from_scores;
  ValidRows valid_keys, valid_queries;
};

}  // namespace xformer::kernels
