// The feed-forward part (feed_forward.h) as a device program: a block takes 64 rows through both products, 64 columns
// of what lies between them at a time, while the sums of the second product stay in registers. Forwards that is
//   z = x W1^T + b1,  out = drop(gelu(z)) W2^T + b2,
// backwards, for the gradient of the input,
//   slope = drop(gradient W2) gelu'(z),  dx = slope W1,
// which writes the slope and the activation, made again from z, for the gradients of the weights
// (linear/weight_gradients.h).
#pragma once

#include <algorithm>

#include "kernels/gelu_dropout/program.h"
#include "kernels/linear/program.h"
#include "kernels/residual_norm/epilogue.h"

namespace xformer::kernels {

inline constexpr int64_t kFeedForwardWidest = 128;  // m and k; wider parts are three operators

struct FeedForwardArguments {
  ProductKind product = ProductKind::kFloat;
  const float *in_weight = nullptr, *in_bias = nullptr;    // [f, m], [f]
  const float *out_weight = nullptr, *out_bias = nullptr;  // [k, f], [k]
  int64_t rows = 0, m = 0, f = 0, k = 0;
  bool tanh = false;
  bool wide = false;  // all begins at sixteen bytes, and all widths are multiples of kRun
  DeviceDrop drop;
  const bool* needed = nullptr;            // [rows]; null: all are
  ElementType half = ElementType::kFloat;  // as LinearArguments has it; what lies between the products is stored so
  Stored x;                                // [rows, m]
  void* z = nullptr;                       // [rows, f], written forwards, read backwards, of tiles with a needed row
  StoredTo out;                            // [rows, k]; null where `residual` takes it up (kernels/branch)
  ResidualEpilogue residual;

  // Of the backward pass alone.
  Stored gradient;                           // [rows, k]
  void *active = nullptr, *slope = nullptr;  // [rows, f], of such tiles
  StoredTo x_gradient;                       // [rows, m]; null: not wanted
};

// What a block holds: two operands, what lies between the products in floats, and, where products take no floats, that
// once more as they take it, which makes a third operand.
[[nodiscard]] constexpr int feed_forward_operands(ElementType half) { return half == ElementType::kFloat ? 2 : 3; }
[[nodiscard]] constexpr LaunchGrid feed_forward_grid(int64_t rows, ElementType half = ElementType::kFloat) {
  return {tiles_of(rows), operand_bytes(half) * feed_forward_operands(half) + kTileFloats * 4};
}

// `kWidest`: of the second product's columns, 64 or 128.
template <ProductKind kKind, int kWidest, bool kBackward, class Half>
struct FeedForwardProgram {
  static constexpr int kThreads = kTileThreads;
  // Compilers read further ahead where a product is one instruction, and four blocks leave too few registers for that.
  static constexpr int kResident = kWidest > kTileSide ? 2 : kKind == ProductKind::kFloat ? 4 : 3;
  static constexpr int kTiles = kTileSide / kTileColumns;
  using Tile = OperandTile<kKind, Half>;
  static constexpr int kOperands = feed_forward_operands(kElementOf<Half>);
  FeedForwardArguments a;

  template <class Thread>
  XFORMER_DEVICE void operator()(const Thread& thread) const {
    auto* const memory = static_cast<char*>(thread.shared());
    const Tile rows(memory), weights(memory + Tile::kBytes), active(memory + 2 * Tile::kBytes);
    const auto floats = [&](int place) {
      return SharedRows{reinterpret_cast<float*>(memory + place), shared_stride(kTileSide)};
    };
    const SharedRows middle = floats(kOperands * Tile::kBytes);
    const int64_t first = thread.block() * kTileSide;
    if (tile_need<kTileSide>(thread, a.needed, first, a.rows) == TileNeed::kNone) return clear(thread, first);
    const int64_t from_width = kBackward ? a.k : a.m, to_width = kBackward ? a.m : a.k;
    const Stored from = kBackward ? a.gradient : a.x;
    const StoredTo to = kBackward ? a.x_gradient : a.out;
    const bool to_wanted = !kBackward || to.at != nullptr;
    float sum[kWidest / kTileColumns][4] = {};
    for (int64_t column = 0; column < a.f; column += kTileSide) {
      float z[kTiles][4] = {};
      for (int64_t place = 0; place < from_width; place += kTileSide) {
        thread.sync();
        if (column == 0 || from_width > kTileSide)
          with_stored<Half>(from, [&](const auto* matrix) {
            send(thread, matrix + place, from_width, from_width - place, first, a.rows, rows);
          });
        if constexpr (kBackward) send(thread, a.out_weight + column, a.f, a.f - column, place, a.k, weights);
        else send(thread, a.in_weight + place, a.m, a.m - place, column, a.f, weights);
        await_sent(thread);
        thread.sync();
        multiply(thread, rows, weights, z);
      }
      put_fragment(thread, z, warp_row(thread), middle);
      XFORMER_UNROLL
      for (int place = 0; place < kWidest; place += kTileSide) {
        thread.sync();
        // The second product's weights come while the block makes what they are multiplied with.
        if (to_wanted && place < to_width) {
          if constexpr (kBackward) send(thread, a.in_weight + place, a.m, a.m - place, column, a.f, weights);
          else send(thread, a.out_weight + column, a.f, a.f - column, place, a.k, weights);
        }
        if (place == 0) activate(thread, {first, column, a.rows, a.f}, middle, active);
        if (!to_wanted || place >= to_width) continue;
        await_sent(thread);
        thread.sync();
        multiply(thread, active, weights, sum + place / kTileColumns);
      }
    }
    if (!to_wanted) return;
    if constexpr (!kBackward) {
      if (a.residual.x != nullptr) {
        const TilePlace place{first, 0, a.rows, a.k};
        if constexpr (kWidest == kTileSide)
          store_residual<1>(thread, sum, a.out_bias, a.residual, a.needed, place, a.wide, {floats(0)});
        else
          store_residual<2>(thread, sum, a.out_bias, a.residual, a.needed, place, a.wide,
                            {floats(0), floats(kTileFloats * 4)});
        return;
      }
    }
    XFORMER_UNROLL
    for (int place = 0; place < kWidest; place += kTileSide)
      if (place < to_width)
        with_stored<Half>(to, [&](auto* matrix) {
          store_tile(thread, sum + place / kTileColumns, kBackward ? nullptr : a.out_bias,
                     {first, place, a.rows, to_width}, a.wide, floats(Tile::kBytes), matrix, a.needed);
        });
  }

 private:
  // What others read of a tile that nobody needs.
  template <class Thread>
  XFORMER_DEVICE void clear(const Thread& thread, int64_t first) const {
    const int64_t width = kBackward ? a.m : a.k;
    const StoredTo made = kBackward ? a.x_gradient : a.out;
    if constexpr (!kBackward)
      if (a.residual.x != nullptr) return leave_tile(thread, a.residual, {first, 0, a.rows, width}, a.wide);
    if (made.at == nullptr) return;
    for (int64_t place = 0; place < width; place += kTileSide)
      with_stored<Half>(made, [&](auto* to) { clear_tile(thread, {first, place, a.rows, width}, a.wide, to); });
  }

  template <class Thread>
  [[nodiscard]] XFORMER_DEVICE static int warp_row(const Thread& thread) {
    return thread.anew(thread.index()) / kWarp * kTileRows;
  }

  template <class Thread, class Value>
  XFORMER_DEVICE void send(const Thread& thread, const Value* matrix, int64_t stride, int64_t width, int64_t first,
                           int64_t count, const Tile& into) const {
    const int none = thread.anew(0);  // places are found again each time, and take no registers during products
    Tile own = into;
    own.memory += none;
    own.send(thread, matrix + none, {stride, a.wide}, static_cast<int>(width), first, count);
  }

  // Forwards weights lie as rows of the result's columns, backwards as rows of the places that are summed over.
  template <class Thread>
  XFORMER_DEVICE void multiply(const Thread& thread, const Tile& left, const Tile& right, float (*c)[4]) const {
    const int first = warp_row(thread);
    if constexpr (kBackward) left.template by_columns</*kTurned=*/false, kTileSide>(thread, first, right, c);
    else left.by_rows(thread, first, right, c);
  }

  // What lies between the products: z without its bias to the activation, or the gradient of the activation to the
  // slope; of floats in place.
  template <class Thread>
  XFORMER_DEVICE void activate(const Thread& thread, const TilePlace& place, const SharedRows& tile,
                               const Tile& into) const {
    const DeviceDraws draws(a.drop);  // here, for there are no registers for it during products
    for_runs(thread, tile, [&](int row, int column, float* values) {
      const int count = place.count(row, column);
      const int64_t element = place.element(row, column);
      float z[kRun], active[kRun];
      if constexpr (kBackward) {
        load_run(thread, static_cast<const Half*>(a.z) + element, count, a.wide, z);
      } else {
        load_run(thread, a.in_bias + place.column + column, count, a.wide, z);
        XFORMER_UNROLL
        for (int i = 0; i < kRun; ++i) z[i] += values[i];
        store_run(thread, z, count, a.wide, static_cast<Half*>(a.z) + element);
      }
      XFORMER_UNROLL
      for (int i = 0; i < kRun; ++i) {
        const DeviceGelu<float> gelu(z[i], a.tanh);
        active[i] = gelu.value;
        if constexpr (kBackward) values[i] *= gelu.slope;
      }
      if constexpr (kBackward) {
        if (count > 0) draws.apply(element, active, values);
        store_run(thread, active, count, a.wide, static_cast<Half*>(a.active) + element);
        store_run(thread, values, count, a.wide, static_cast<Half*>(a.slope) + element);
        into.put(thread, values, row, column);
      } else {
        if (count > 0) draws.apply(element, active);
        into.put(thread, active, row, column);
      }
    });
  }
};

template <ProductKind kKind, bool kBackward, class Half, class Launch>
auto run_feed_forward_pass(const FeedForwardArguments& a, const Launch& launch) {
  const LaunchGrid grid = feed_forward_grid(a.rows, a.half);
  return (kBackward ? a.m : a.k) <= kTileSide
             ? launch(grid, FeedForwardProgram<kKind, kTileSide, kBackward, Half>{a})
             : launch(grid, FeedForwardProgram<kKind, 2 * kTileSide, kBackward, Half>{a});
}

// launch(grid, program) for one of the passes.
template <class Types, class Launch>
auto run_feed_forward(const FeedForwardArguments& a, bool backward, const Launch& launch) {
  return with_products<Types>(a.product, a.half, [&](auto kind, auto half) {
    return backward ? run_feed_forward_pass<kind(), true, decltype(half)>(a, launch)
                    : run_feed_forward_pass<kind(), false, decltype(half)>(a, launch);
  });
}

}  // namespace xformer::kernels
