#include "kernels/cpu/part_tables.h"

#include <ATen/Dispatch.h>

#include "kernels/cpu/add_rows.h"
#include "kernels/cpu/units.h"

namespace xformer::kernels {

at::Tensor sum_of_tables(const at::Tensor& tables) {
  const int64_t parts = tables.size(0);
  if (parts == 1) return tables.select(0, 0);
  at::Tensor result = at::empty(tables.sizes().slice(1), tables.options());
  constexpr int64_t kColumns = 1024;  // sums that stay in the first cache
  const int64_t width = result.numel();
  AT_DISPATCH_FLOATING_TYPES(tables.scalar_type(), "sum_of_tables", [&] {
    const auto* const from = tables.const_data_ptr<scalar_t>();
    auto* const to = result.mutable_data_ptr<scalar_t>();
    for_units((width + kColumns - 1) / kColumns, parts * kColumns, [&](int64_t unit, int64_t /*worker*/) {
      const int64_t first = unit * kColumns, columns = std::min(kColumns, width - first);
      std::fill_n(to + first, columns, scalar_t(0));
      add_rows(from + first, width, parts, columns, to + first);
    });
  });
  return result;
}

}  // namespace xformer::kernels
