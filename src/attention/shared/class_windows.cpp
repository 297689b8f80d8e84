#include "attention/shared/class_windows.h"

#include <ATen/Functions.h>

#include "kernels/batched_product/batched_product.h"
#include "kernels/hashed_attention/hashed_attention.h"
#include "kernels/picked_rows/picked_rows.h"
#include "tensor/probe.h"

namespace xformer::attention {

namespace {

// Equal numbers keep their order.
at::Tensor sorting_order(const at::Tensor& x) {
  return std::get<1>(at::sort(x, /*stable=*/std::optional<bool>(true), -1, /*descending=*/false));
}

}  // namespace

ClassRows class_windows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& classes,
                        int64_t back, bool self_last, const kernels::Dropout& dropout, bool training,
                        const IndexTables& tables) {
  const int64_t n = q.size(2);
  const at::Device device = q.device();
  const Windows windows = class_windows_of(n, back);
  const at::Tensor order = sorting_order(classes), place = sorting_order(order);  // by class, then by place [b,h,n]
  const auto sorted = [&](const at::Tensor& x) { return kernels::picked_rows(x, order); };

  at::Tensor scores =
      kernels::batched_product(windows.rows(sorted(q)), windows.columns(sorted(k)).transpose(-1, -2));  // [b,h,1,t,c,w]
  if (self_last) {
    const at::Tensor self = tables.get("self", {n, back}, device, [&](const at::TensorOptions& numbers) {
      return at::arange(-windows.before, windows.block + windows.after, numbers) ==
             at::arange(windows.block, numbers).unsqueeze(1);
    });
    scores = scores.masked_fill(self, kernels::kSelfLogit);
  }
  const at::Tensor number = classes.gather(2, order).unsqueeze(-1);  // [b,h,n,1]
  at::Tensor allowed = windows.rows(number) == windows.columns(number).transpose(-1, -2);
  const at::Tensor known =
      tables.get("window", {n, back}, device, [&](const at::TensorOptions&) { return windows.allowed({}, q); });
  if (known.defined()) allowed = allowed.logical_and(known);
  const PartialWeights part = partial_softmax(scores, allowed);
  probe("weights", part.weights);
  const at::Tensor rows =
      windows.join(kernels::batched_product(dropout(part.weights, training), windows.columns(sorted(v))));
  return {kernels::picked_rows(rows, place), kernels::picked_rows(windows.join(part.log_sum), place)};
}

}  // namespace xformer::attention
