// Routed features on the CPU: of a block of a sample's tokens those of one resolution at a time, gathered, go through
// its map, features, table and division while they are in the cache.
#include "kernels/routed_features/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/part_tables.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/hashed_attention/token_rows.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kRoutedTokens = 512;  // of a block

// Operands without gaps, and how the tokens are divided.
struct RoutedPass {
  at::Tensor q, maps, tables, chosen, gate;
  int64_t b, n, d, resolutions, sub_heads, w, blocks;  // the last: of a sample

  RoutedPass(const at::Tensor& q_in, const at::Tensor& maps_in, const at::Tensor& tables_in,
             const at::Tensor& chosen_in, const at::Tensor& gate_in)
      : q(q_in.contiguous()),
        maps(maps_in.defined() ? maps_in.contiguous() : maps_in),
        tables(tables_in.contiguous()),
        chosen(chosen_in.expand({q.size(0), -1, -1}).contiguous()),
        gate(gate_in.defined() ? gate_in.contiguous() : gate_in),
        b(q.size(0)),
        n(q.size(1)),
        d(q.size(2)),
        resolutions(chosen.size(2)),
        sub_heads(tables.size(1)),
        w(tables.size(3) - 1),
        blocks((n + kRoutedTokens - 1) / kRoutedTokens) {}

  [[nodiscard]] int64_t map_elements() const { return maps.defined() ? maps.numel() : 0; }
  [[nodiscard]] int64_t table_elements() const { return sub_heads * resolutions * w * (w + 1); }  // of a sample
  // Where a sample's tables have that of a resolution and a sub-head.
  [[nodiscard]] int64_t table_at(int64_t resolution, int64_t sub_head) const {
    return (sub_head * resolutions + resolution) * w * (w + 1);
  }
  [[nodiscard]] int64_t block_work() const { return kRoutedTokens * d * ((maps.defined() ? d : 0) + w); }
};

// The tokens of a block by resolution.
struct RoutedBlock {
  std::vector<int64_t> places, nowhere;  // of the sample; those of a resolution behind those of the one before
  std::vector<int64_t> ends;             // of each resolution in `places`

  void sort(const bool* chosen, int64_t resolutions, int64_t first, int64_t count) {
    places.clear(), nowhere.clear(), ends.clear();
    for (int64_t h = 0; h < resolutions; ++h) {
      for (int64_t i = first; i < first + count; ++i)
        if (chosen[i * resolutions + h]) places.push_back(i);
      ends.push_back(static_cast<int64_t>(places.size()));
    }
    if (static_cast<int64_t>(places.size()) == count) return;
    for (int64_t i = first; i < first + count; ++i)
      if (std::none_of(chosen + i * resolutions, chosen + (i + 1) * resolutions, [](bool own) { return own; }))
        nowhere.push_back(i);
  }
};

// The maps of all resolutions as products take them, and, backwards, transposed.
template <class Value>
struct RoutedMaps {
  std::vector<PackedFactor<Value>> forward, backward;

  RoutedMaps(const RoutedPass& pass, bool both)
      : forward(static_cast<size_t>(pass.maps.defined() ? pass.resolutions : 0)), backward(both ? forward.size() : 0) {
    const int64_t d = pass.d, rows = pass.b * pass.n;
    for (size_t h = 0; h < forward.size(); ++h) {
      const Value* const map = pass.maps.const_data_ptr<Value>() + static_cast<int64_t>(h) * d * d;
      forward[h].pack(rows, d, d, Value(1), {map, d, true});
      if (both) backward[h].pack(rows, d, d, Value(1), {map, d});
    }
  }
};

template <class Value>
struct RoutedRoom {
  RoutedBlock block;
  std::vector<Value> q, features, slopes, feature_slopes, sums, x_slopes;  // of gathered tokens
};

// Rows of [n,d] at these places, one behind the other.
template <class Value>
const Value* gathered(const Value* rows, int64_t d, const int64_t* places, int64_t count, std::vector<Value>& room) {
  const int64_t bytes = d * static_cast<int64_t>(sizeof(Value));
  gather_rows(rows, bytes, bytes, places, count, grown(room, count * d));
  return room.data();
}

// phi of what a resolution's map makes of gathered rows.
template <class Value>
Value* features_of(const RoutedPass& pass, const RoutedMaps<Value>& maps, size_t resolution, const Value* q,
                   int64_t count, FeatureMap map, std::vector<Value>& room) {
  Value* const features = grown(room, count * pass.d);
  if (maps.forward.empty()) std::copy_n(q, count * pass.d, features);
  else gemm(count, {q, pass.d}, maps.forward[resolution], Value(0), features, pass.d);
  make_features(map, features, count * pass.d);
  return features;
}

// visit(resolution, places, count) for the resolutions that a block's tokens go to; rows of the others in [n,d] are 0.
template <class Value, class Visit>
void for_resolutions(const RoutedPass& pass, RoutedBlock& block, int64_t sample, int64_t first, Value* rows,
                     const Visit& visit) {
  block.sort(pass.chosen.const_data_ptr<bool>() + sample * pass.n * pass.resolutions, pass.resolutions, first,
             std::min(kRoutedTokens, pass.n - first));
  for (const int64_t place : block.nowhere) std::fill_n(rows + place * pass.d, pass.d, Value(0));
  int64_t begin = 0;
  for (size_t h = 0; h < block.ends.size(); begin = block.ends[h++])
    if (block.ends[h] > begin) visit(h, block.places.data() + begin, block.ends[h] - begin);
}

}  // namespace

at::Tensor routed_features_forward_cpu(const at::Tensor& q, const at::Tensor& maps, const at::Tensor& tables,
                                       const at::Tensor& chosen, const at::Tensor& gate,
                                       const RoutedFeaturesOptions& options) {
  const RoutedPass pass(q, maps, tables, chosen, gate);
  const int64_t d = pass.d, w = pass.w;
  at::Tensor out = at::empty_like(pass.q);
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "routed_features", [&] {
    const RoutedMaps<scalar_t> factors(pass, /*both=*/false);
    const int64_t units = pass.b * pass.blocks;
    std::vector<RoutedRoom<scalar_t>> rooms(static_cast<size_t>(workers_for(units)));
    const auto epsilon = static_cast<scalar_t>(options.epsilon);
    for_units(units, pass.block_work(), [&](int64_t unit, int64_t worker) {
      RoutedRoom<scalar_t>& room = rooms[static_cast<size_t>(worker)];
      const int64_t sample = unit / pass.blocks, rows = sample * pass.n * d;
      const scalar_t* const table_rows = pass.tables.const_data_ptr<scalar_t>() + sample * pass.table_elements();
      const scalar_t* const gates =
          pass.gate.defined() ? pass.gate.const_data_ptr<scalar_t>() + sample * pass.n : nullptr;
      scalar_t* const to = out.mutable_data_ptr<scalar_t>() + rows;
      for_resolutions(
          pass, room.block, sample, unit % pass.blocks * kRoutedTokens, to,
          [&](size_t resolution, const int64_t* places, int64_t count) {
            const scalar_t* const own = gathered(pass.q.const_data_ptr<scalar_t>() + rows, d, places, count, room.q);
            const scalar_t* const features =
                features_of(pass, factors, resolution, own, count, options.map, room.features);
            scalar_t* const sums = grown(room.sums, count * (w + 1));
            for (int64_t s = 0; s < pass.sub_heads; ++s) {
              const scalar_t* const table = table_rows + pass.table_at(static_cast<int64_t>(resolution), s);
              gemm(count, w + 1, w, scalar_t(1), {features + s * w, d}, {table, w + 1}, scalar_t(0), sums, w + 1);
              divide_sums(RoutedSums<scalar_t>{sums, count, w, places, gates, epsilon}, to + s * w, d);
            }
          });
    });
  });
  return out;
}

RoutedFeaturesGradients routed_features_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& q,
                                                     const at::Tensor& maps, const at::Tensor& tables,
                                                     const at::Tensor& chosen, const at::Tensor& gate,
                                                     const RoutedFeaturesOptions& options) {
  const RoutedPass pass(q, maps, tables, chosen, gate);
  const at::Tensor gradient = gradient_in.contiguous();
  const int64_t d = pass.d, w = pass.w;
  // Parts of a sample's blocks, each with sums of its own for maps and tables.
  const int64_t wanted = RowParts(pass.b * pass.n, d, pass.map_elements() + pass.table_elements()).parts;
  const int64_t most =
      std::max<int64_t>(1, std::min(pass.blocks, (wanted + pass.b - 1) / std::max<int64_t>(1, pass.b)));
  const int64_t part_blocks = (pass.blocks + most - 1) / most, parts = (pass.blocks + part_blocks - 1) / part_blocks;
  const at::Tensor map_sums = at::empty({pass.b * parts, pass.map_elements()}, pass.q.options()),
                   table_sums = at::empty({pass.b, parts, pass.table_elements()}, pass.q.options());
  RoutedFeaturesGradients result;
  result.q = at::empty_like(pass.q);
  if (pass.gate.defined()) result.gate = at::zeros_like(pass.gate);
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "routed_features_backward", [&] {
    const RoutedMaps<scalar_t> factors(pass, /*both=*/true);
    const int64_t units = pass.b * parts;
    std::vector<RoutedRoom<scalar_t>> rooms(static_cast<size_t>(workers_for(units)));
    const auto epsilon = static_cast<scalar_t>(options.epsilon);
    for_units(units, part_blocks * pass.block_work() * 4, [&](int64_t unit, int64_t worker) {
      RoutedRoom<scalar_t>& room = rooms[static_cast<size_t>(worker)];
      const int64_t sample = unit / parts, rows = sample * pass.n * d, first_block = unit % parts * part_blocks;
      const scalar_t* const table_rows = pass.tables.const_data_ptr<scalar_t>() + sample * pass.table_elements();
      const scalar_t* const gates =
          pass.gate.defined() ? pass.gate.const_data_ptr<scalar_t>() + sample * pass.n : nullptr;
      scalar_t* const gate_slopes =
          pass.gate.defined() ? result.gate.mutable_data_ptr<scalar_t>() + sample * pass.n : nullptr;
      scalar_t* const of_maps = map_sums.mutable_data_ptr<scalar_t>() + unit * pass.map_elements();
      scalar_t* const of_tables = table_sums.mutable_data_ptr<scalar_t>() + unit * pass.table_elements();
      std::fill_n(of_maps, pass.map_elements(), scalar_t(0));
      std::fill_n(of_tables, pass.table_elements(), scalar_t(0));
      scalar_t* const to = result.q.mutable_data_ptr<scalar_t>() + rows;
      for (int64_t block = first_block; block < std::min(pass.blocks, first_block + part_blocks); ++block)
        for_resolutions(pass, room.block, sample, block * kRoutedTokens, to,
                        [&](size_t resolution, const int64_t* places, int64_t count) {
                          const scalar_t* const own =
                              gathered(pass.q.const_data_ptr<scalar_t>() + rows, d, places, count, room.q);
                          const scalar_t* const slopes =
                              gathered(gradient.const_data_ptr<scalar_t>() + rows, d, places, count, room.slopes);
                          const scalar_t* const features =
                              features_of(pass, factors, resolution, own, count, options.map, room.features);
                          scalar_t* const of_features = grown(room.feature_slopes, count * d);
                          scalar_t* const sums = grown(room.sums, count * (w + 1));
                          for (int64_t s = 0; s < pass.sub_heads; ++s) {
                            const int64_t at = pass.table_at(static_cast<int64_t>(resolution), s);
                            gemm(count, w + 1, w, scalar_t(1), {features + s * w, d}, {table_rows + at, w + 1},
                                 scalar_t(0), sums, w + 1);
                            divided_gradients(RoutedSums<scalar_t>{sums, count, w, places, gates, epsilon},
                                              slopes + s * w, d, gate_slopes);
                            gemm(w, w + 1, count, scalar_t(1), {features + s * w, d, true}, {sums, w + 1}, scalar_t(1),
                                 of_tables + at, w + 1);
                            gemm(count, w, w + 1, scalar_t(1), {sums, w + 1}, {table_rows + at, w + 1, true},
                                 scalar_t(0), of_features + s * w, d);
                          }
                          feature_gradients(options.map, features, count * d, of_features);
                          const scalar_t* of_q = of_features;
                          if (!factors.backward.empty()) {
                            gemm(d, d, count, scalar_t(1), {of_features, d, true}, {own, d}, scalar_t(1),
                                 of_maps + static_cast<int64_t>(resolution) * d * d, d);
                            scalar_t* const made = grown(room.x_slopes, count * d);
                            gemm(count, {of_features, d}, factors.backward[resolution], scalar_t(0), made, d);
                            of_q = made;
                          }
                          for (int64_t i = 0; i < count; ++i) std::copy_n(of_q + i * d, d, to + places[i] * d);
                        });
    });
  });
  if (pass.maps.defined()) result.maps = sum_of_tables(map_sums).view(pass.maps.sizes());
  result.tables = (parts == 1 ? table_sums.squeeze(1) : table_sums.sum(1)).view(pass.tables.sizes());
  return result;
}

}  // namespace xformer::kernels
