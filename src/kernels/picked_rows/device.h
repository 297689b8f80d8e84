// Both directions of picked_rows.h on a device, but for the launches themselves: cuda.cpp gives them, tests walk the
// programs.
#pragma once

#include "kernels/device/head_tensors.h"
#include "kernels/picked_rows/program.h"

namespace xformer::kernels {

// Whether a device's programs take such rows. A sum goes over the whole table for every few of its rows.
[[nodiscard]] inline bool fits_moved_rows_programs(const at::Tensor& x, const at::Tensor& places) {
  constexpr int64_t kMostPlaces = 1 << 15;
  return x.scalar_type() != at::kDouble && x.numel() > 0 && places.size(2) > 0 && places.size(2) <= kMostPlaces &&
         x.size(2) <= kMostPlaces;
}

// Launch takes MovedRowsArguments.
template <class Launch>
at::Tensor moved_rows_on_device(const at::Tensor& x_in, const at::Tensor& places_in, int64_t n, bool sums,
                                const Launch& launch) {
  const at::Tensor x = readable_heads(x_in), places = places_in.contiguous();
  MovedRowsArguments a;
  a.type = element_type(x), a.sums = sums;
  a.b = x.size(0), a.h = x.size(1), a.n = n, a.m = places.size(2), a.d = x.size(3);
  TORCH_CHECK(places.scalar_type() == at::kLong && places.numel() == a.b * a.h * a.m && x.size(2) == (sums ? a.m : n),
              "rows of a head are picked by int64 places [b, h, m]");
  const at::Tensor result = at::empty({a.b, a.h, sums ? n : a.m, a.d}, x.options());
  if (result.numel() == 0) return result;
  if (x.numel() == 0) return result.zero_();
  a.x = x.const_data_ptr(), a.rows = head_places(x);
  a.places = static_cast<const int64_t*>(places.const_data_ptr());
  a.out = result.mutable_data_ptr();
  a.wide = a.rows.wide && reads_wide({result});
  launch(a);
  return result;
}

}  // namespace xformer::kernels
