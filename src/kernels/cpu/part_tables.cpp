#include "kernels/cpu/part_tables.h"

#include <ATen/Dispatch.h>

#include "kernels/cpu/add_rows.h"
#include "kernels/cpu/units.h"

namespace xformer::kernels {

at::Tensor sum_of_tables(const at::Tensor& tables) {
  const int64_t parts = tables.size(0);
  if (parts == 1) return tables.select(0, 0);
  at::Tensor result = at::zeros(tables.sizes().slice(1), tables.options());
  constexpr int64_t kColumns = 1024;  // sums that stay in the first cache
  const int64_t width = result.numel();
  AT_DISPATCH_FLOATING_TYPES(tables.scalar_type(), "sum_of_tables", [&] {
    const auto* const from = tables.const_data_ptr<scalar_t>();
    auto* const to = result.mutable_data_ptr<scalar_t>();
    for_units((width + kColumns - 1) / kColumns, parts * kColumns, [&](int64_t unit, int64_t /*worker*/) {
      const int64_t first = unit * kColumns;
      add_rows(from + first, width, parts, std::min(kColumns, width - first), to + first);
    });
  });
  return result;
}

}  // namespace xformer::kernels
