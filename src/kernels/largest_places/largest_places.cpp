#include "kernels/largest_places/largest_places.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <vector>

#include "core/error.h"
#include "kernels/cpu/units.h"
#include "kernels/fused.h"
#include "kernels/largest_places/cpu.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kRowsAtOnce = 16;

at::Tensor largest_places_cpu(const at::Tensor& given, int64_t k) {
  const at::Tensor x = given.contiguous();
  const int64_t n = x.size(-1), rows = x.numel() / n, units = (rows + kRowsAtOnce - 1) / kRowsAtOnce;
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = k;
  at::Tensor result = at::empty(shape, x.options().dtype(at::kLong));
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "largest_places", [&] {
    using Bits = std::conditional_t<std::is_same_v<scalar_t, float>, uint32_t, uint64_t>;
    std::vector<std::vector<Bits>> rooms(static_cast<size_t>(workers_for(units)),
                                         std::vector<Bits>(static_cast<size_t>(2 * n + 8)));
    const auto* const from = x.const_data_ptr<scalar_t>();
    auto* const places = result.mutable_data_ptr<int64_t>();
    for_units(units, kRowsAtOnce * n * 16, [&](int64_t unit, int64_t worker) {
      Bits* const room = rooms[static_cast<size_t>(worker)].data();
      for (int64_t row = unit * kRowsAtOnce; row < std::min(rows, (unit + 1) * kRowsAtOnce); ++row)
        largest_of_row(from + row * n, n, k, room, places + row * k);
    });
  });
  return result;
}

const Operator<largest_places_cpu> largest_places_operator{"largest_places"};

}  // namespace

at::Tensor largest_places_reference(const at::Tensor& x, int64_t k) {
  return std::get<0>(at::sort(std::get<1>(at::topk(x, k, -1)), -1));
}

at::Tensor largest_places(const at::Tensor& given, int64_t k) {
  const at::Tensor x = given.detach();
  XF_ASSERT(x.dim() >= 1 && k >= 1 && k <= x.size(-1), "the {} largest of rows of {}", k, x.size(-1));
  static CallCounts& counts = calls_of("largest_places");
  const bool fused = x.numel() > 0 && largest_places_operator.runs_on(x) && fit_kernels({x});
  counts.count(x, fused);
  if (!fused) return largest_places_reference(x, k);
  const at::Tensor result = largest_places_operator(x, k);
  // Which of some equal ones is chosen is left open.
  const auto numbers = [&](const at::Tensor& places) { return std::get<0>(at::sort(x.gather(-1, places), -1)); };
  check_forward("largest_places", {numbers(result)},
                [&] { return variable_list{numbers(largest_places_reference(x, k))}; });
  return result;
}

}  // namespace xformer::kernels
