#include "kernels/picked_rows/picked_rows.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "kernels/cpu/add_rows.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/fused.h"
#include "kernels/hashed_attention/token_rows.h"
#include "kernels/picked_rows/device.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kPickedRows = 256;  // of a unit of work

void require_places(const at::Tensor& places, const at::Tensor& x, int64_t rows) {
  XF_ASSERT(x.dim() == 4 && places.scalar_type() == at::kLong &&
                places.sizes() == at::IntArrayRef({x.size(0), x.size(1), rows}),
            "rows of a head are picked by int64 places [b,h,m]");
}

void require_below(int64_t n, const int64_t* places, int64_t count) {
  for (int64_t i = 0; i < count; ++i) XF_ASSERT(places[i] < n, "place {} of {} rows", places[i], n);
}

at::Tensor pick(const at::Tensor& x_in, const at::Tensor& places_in) {
  const at::Tensor x = with_rows(x_in), places = places_in.contiguous();
  const int64_t b = x.size(0), h = x.size(1), n = x.size(2), d = x.size(3), m = places.size(2);
  at::Tensor result = at::empty({b, h, m, d}, x.options());
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "picked_rows", [&] {
    const auto from = reading<scalar_t>(x);
    auto* const to = result.mutable_data_ptr<scalar_t>();
    const int64_t blocks = (m + kPickedRows - 1) / kPickedRows;
    for_units(b * h * blocks, kPickedRows * d, [&](int64_t unit, int64_t) {
      const int64_t z = unit / blocks, first = unit % blocks * kPickedRows, end = std::min(m, first + kPickedRows);
      const int64_t* const places_of = places.const_data_ptr<int64_t>() + z * m;
      require_below(n, places_of + first, end - first);
      constexpr auto kBytes = static_cast<int64_t>(sizeof(scalar_t));
      gather_rows(from.at(z / h, z % h), from.stride * kBytes, d * kBytes, places_of + first, end - first,
                  to + (z * m + first) * d);
    });
  });
  return result;
}

at::Tensor sum(const at::Tensor& x_in, const at::Tensor& places_in, int64_t n) {
  const at::Tensor x = with_rows(x_in), places = places_in.contiguous();
  const int64_t b = x.size(0), h = x.size(1), m = x.size(2), d = x.size(3);
  at::Tensor result = at::empty({b, h, n, d}, x.options());
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "summed_rows", [&] {
    using Value = Computed<scalar_t>;
    const auto from = reading<scalar_t>(x);
    auto* const to = result.mutable_data_ptr<scalar_t>();
    std::vector<std::vector<Value>> rooms(static_cast<size_t>(workers_for(b * h)));
    for_units(b * h, m * d, [&](int64_t z, int64_t worker) {
      const int64_t* const places_of = places.const_data_ptr<int64_t>() + z * m;
      require_below(n, places_of, m);
      const TileRows<Value> sums = rows_for(to + z * n * d, d, n, d, rooms[static_cast<size_t>(worker)]);
      std::fill_n(sums.data, n * d, Value(0));
      for (int64_t i = 0; i < m; ++i) {
        const scalar_t* const row = from.at(z / h, z % h, i);
        fetch_row_ahead(row, from.stride, d);
        if (places_of[i] >= 0) add_rows(row, d, 1, d, sums.data + places_of[i] * d);
      }
      store_rows(sums, n, d, to + z * n * d, d);
    });
  });
  return result;
}

// One operator, whose passes are each other's.
const Operator<pick> kPick{"picked_rows_forward"};
const Operator<sum> kSum{"picked_rows_backward"};

// Either direction.
struct MovedRowsCall {
  at::Tensor x, places;
  int64_t n;
  bool sums, some_none;

  static constexpr const char* kName = "picked_rows";
  static constexpr const auto& kForward = kPick;
  static constexpr const auto& kBackward = kSum;
  static constexpr bool kTakesBf16 = true;
  static bool takes_half(size_t) { return true; }

  [[nodiscard]] variable_list inputs() const { return {x}; }
  variable_list forward() { return moved(std::exchange(x, {}), sums); }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return moved(gradients[0], !sums);
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {sums ? summed_rows_reference(in[0], places, n) : picked_rows_reference(in[0], places, some_none)};
  }

 private:
  [[nodiscard]] variable_list moved(const at::Tensor& rows, bool summed) const {
    return {summed ? kSum(rows, places, n) : kPick(rows, places)};
  }
};

at::Tensor moved_rows(const at::Tensor& x, const at::Tensor& places, int64_t n, bool sums, bool some_none) {
  // Floats stay floats where activations are bf16: some are statistics.
  std::optional<AutocastScope> as_they_are;
  if (x.is_cpu() && x.scalar_type() == at::kFloat) as_they_are.emplace(at::kCPU, std::nullopt);
  return run_fused(MovedRowsCall{x, places, n, sums, some_none}, x.is_cpu() || fits_moved_rows_programs(x, places))[0];
}

at::Tensor of_channels(const at::Tensor& places, int64_t d) { return places.unsqueeze(-1).expand({-1, -1, -1, d}); }

}  // namespace

at::Tensor picked_rows_reference(const at::Tensor& x, const at::Tensor& places, bool some_none) {
  if (!some_none) return x.gather(2, of_channels(places, x.size(3)));
  // -1 is read behind the last row.
  return at::constant_pad_nd(x, {0, 0, 0, 1}).gather(2, of_channels(places.remainder(x.size(2) + 1), x.size(3)));
}

at::Tensor summed_rows_reference(const at::Tensor& x, const at::Tensor& places, int64_t n) {
  return at::zeros({x.size(0), x.size(1), n, x.size(3)}, x.options()).scatter_add(2, of_channels(places, x.size(3)), x);
}

at::Tensor picked_rows(const at::Tensor& x, const at::Tensor& places, bool some_none) {
  require_places(places, x, places.size(-1));
  return moved_rows(x, places, x.size(2), false, some_none);
}

at::Tensor summed_rows(const at::Tensor& x, const at::Tensor& places, int64_t n) {
  require_places(places, x, x.size(2));
  return moved_rows(x, places, n, true, false);
}

}  // namespace xformer::kernels
