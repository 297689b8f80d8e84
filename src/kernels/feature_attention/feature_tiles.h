// From the y of a tile's rows to their features and back, as products take them: by passes over the tile (tiles.h), or,
// where FeaturePass::paired, in registers (feature_rows.h).
#pragma once

#include "kernels/feature_attention/pass.h"

namespace xformer::kernels {

// Rows x whose y are in the tile, `stride` apart; `valid` nullptr: all count.
template <class Stored>
struct FeatureTile {
  const Stored* x;
  int64_t stride, rows;
  const bool* valid;

  [[nodiscard]] by_512::FeatureRows in_registers(const FeaturePass<Stored>& pass, Computed<Stored> floor,
                                                 const FeatureScratch<Stored>& scratch) const {
    const float* const y = pass.omega == nullptr ? nullptr : scratch.tile.data();  // without omega it is x
    return {pass.options.map, rows, pass.f, y, x, stride, scratch.shift.data(), valid, floor};
  }
};

// Features of keys, as FeaturePass::add_to_table() takes them; `sums` [f] gains theirs.
template <class Stored>
void key_features(const FeaturePass<Stored>& pass, const FeatureTile<Stored>& tile, Computed<Stored> floor,
                  Computed<Stored>* sums, FeatureScratch<Stored>& scratch) {
  if constexpr (kConverts<Stored>)
    if (pass.paired) {
      scratch.features.reset(tile.rows, pass.f);
      return by_512::key_features(tile.in_registers(pass, floor, scratch), scratch.features, sums);
    }
  features_of_keys(pass.options.map, scratch.tile.data(), tile.rows, pass.f, scratch.shift.data(), tile.valid, floor,
                   sums);
}

// Features [rows,f] of queries; scratch.dots are their products with `sums` [f].
template <class Stored>
const Stored* query_features(const FeaturePass<Stored>& pass, const FeatureTile<Stored>& tile,
                             const Computed<Stored>* sums, FeatureScratch<Stored>& scratch) {
  if constexpr (kConverts<Stored>)
    if (pass.paired) {
      Stored* const to = grown(scratch.tile_factor, tile.rows * pass.f);
      by_512::query_features(tile.in_registers(pass, pass.floor(), scratch), sums, to, scratch.dots.data());
      return to;
    }
  features_of_queries(pass.options.map, scratch.tile.data(), tile.rows, pass.f, scratch.shift.data(), pass.floor(),
                      sums, scratch.dots.data());
  return factor_of<Stored>(scratch.tile.data(), tile.rows * pass.f, scratch.tile_factor);
}

// From the gradient of out = numerator / divisor to that of the numerator [rows,e]; scratch.dots gets the divisor's.
template <class Stored>
const Stored* numerator_gradients(const FeaturePass<Stored>& pass, TileRows<const Stored> gradient,
                                  TileRows<const Stored> out, int64_t rows, const Computed<Stored>* divisor,
                                  const bool* valid, FeatureScratch<Stored>& scratch) {
  const int64_t e = pass.e;
  if constexpr (kConverts<Stored>)
    if (pass.paired) {
      Stored* const to = grown(scratch.numerator_factor, rows * e);
      by_512::quotient_gradients(gradient.data, gradient.stride, out.data, out.stride, rows, e, divisor, valid, to,
                                 scratch.dots.data());
      return to;
    }
  const auto slopes = loaded_rows(gradient.data, gradient.stride, rows, e, scratch.first_room),
             outs = loaded_rows(out.data, out.stride, rows, e, scratch.second_room);
  gradients_of_quotient(slopes.data, slopes.stride, outs.data, outs.stride, rows, e, divisor, valid,
                        scratch.numerator.data(), scratch.dots.data());
  return factor_of<Stored>(scratch.numerator.data(), rows * e, scratch.numerator_factor);
}

// Where the rounded gradient of y goes: to that of x, or where FeaturePass::through_scores() takes it.
template <class Stored>
TileRows<Stored> place_of_gradient(const FeaturePass<Stored>& pass, TileRows<Stored> x_gradient, int64_t rows,
                                   FeatureScratch<Stored>& scratch) {
  if (pass.omega == nullptr) return x_gradient;
  return {grown(scratch.gradient_factor, rows * pass.f), pass.f};
}

// From scratch.gradient, that of queries' features but for scratch.dots[row] sums [f], to that of their y, and features
// as FeaturePass::add_to_table() takes them; d_sums [f] gains scratch.dots[row] times these.
template <class Stored>
void query_gradients(const FeaturePass<Stored>& pass, const FeatureTile<Stored>& tile, const Computed<Stored>* sums,
                     Computed<Stored>* d_sums, TileRows<Stored> x_gradient, FeatureScratch<Stored>& scratch) {
  auto* const slope = scratch.gradient.data();
  const auto* const times = scratch.dots.data();
  const int64_t* const winners = pass.softmax ? scratch.winners.data() : nullptr;
  if constexpr (kConverts<Stored>)
    if (pass.paired) {
      const TileRows<Stored> to = place_of_gradient(pass, x_gradient, tile.rows, scratch);
      scratch.features.reset(tile.rows, pass.f);
      return by_512::query_gradients(tile.in_registers(pass, pass.floor(), scratch),
                                     {slope, sums, times, winners, scratch.sums.data(), to.data, to.stride},
                                     scratch.features, d_sums);
    }
  gradients_of_features(pass.options.map, scratch.tile.data(), slope, tile.rows, pass.f, scratch.shift.data(),
                        tile.valid, pass.floor(), sums, times, d_sums, scratch.sums.data());
  for (int64_t r = 0; winners != nullptr && r < tile.rows; ++r)
    if (winners[r] >= 0) slope[r * pass.f + winners[r]] -= scratch.sums[static_cast<size_t>(r)];
}

// The same of keys, whose features [rows,f] it returns; scratch.gradient is that of them but for sums [f].
template <class Stored>
const Stored* key_gradients(const FeaturePass<Stored>& pass, const FeatureTile<Stored>& tile,
                            const Computed<Stored>* sums, TileRows<Stored> x_gradient,
                            FeatureScratch<Stored>& scratch) {
  using Value = Computed<Stored>;
  if constexpr (kConverts<Stored>)
    if (pass.paired) {
      const TileRows<Stored> to = place_of_gradient(pass, x_gradient, tile.rows, scratch);
      Stored* const features = grown(scratch.tile_factor, tile.rows * pass.f);
      by_512::key_gradients(tile.in_registers(pass, pass.floor(), scratch),
                            {scratch.gradient.data(), sums, nullptr, nullptr, scratch.sums.data(), to.data, to.stride},
                            features);
      return features;
    }
  gradients_of_features(pass.options.map, scratch.tile.data(), scratch.gradient.data(), tile.rows, pass.f,
                        scratch.shift.data(), tile.valid, pass.floor(), sums, static_cast<const Value*>(nullptr),
                        static_cast<Value*>(nullptr), scratch.sums.data());
  return factor_of<Stored>(scratch.tile.data(), tile.rows * pass.f, scratch.tile_factor);
}

}  // namespace xformer::kernels
