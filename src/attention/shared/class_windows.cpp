#include "attention/shared/class_windows.h"

#include <ATen/Functions.h>

#include "kernels/batched_product/batched_product.h"
#include "kernels/hashed_attention/hashed_attention.h"
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
  const int64_t b = q.size(0), h = q.size(1), n = q.size(2);
  const at::Device device = q.device();
  const Windows windows = class_windows_of(n, back);
  const at::Tensor order = sorting_order(classes);  // by class, then by place [b,h,n]
  const at::Tensor start = tables.first_rows(b * h, n, device).view({b, h, 1});
  const at::Tensor sorted = (order + start).flatten(), place = (sorting_order(order) + start).flatten();
  const auto take = [&](const at::Tensor& x, const at::Tensor& rows) {
    return x.reshape({b * h * n, -1}).index_select(0, rows).view({b, h, n, -1});
  };

  at::Tensor scores = kernels::batched_product(windows.rows(take(q, sorted)),
                                               windows.columns(take(k, sorted)).transpose(-1, -2));  // [b,h,1,t,c,w]
  if (self_last) {
    const at::Tensor self = tables.get("self", {n, back}, device, [&](const at::TensorOptions& numbers) {
      return at::arange(-windows.before, windows.block + windows.after, numbers) ==
             at::arange(windows.block, numbers).unsqueeze(1);
    });
    scores = scores.masked_fill(self, kernels::kSelfLogit);
  }
  const at::Tensor number = take(classes, sorted);  // [b,h,n,1]
  at::Tensor allowed = windows.rows(number) == windows.columns(number).transpose(-1, -2);
  const at::Tensor known =
      tables.get("window", {n, back}, device, [&](const at::TensorOptions&) { return windows.allowed({}, q); });
  if (known.defined()) allowed = allowed.logical_and(known);
  const PartialWeights part = partial_softmax(scores, allowed);
  probe("weights", part.weights);
  const at::Tensor rows =
      windows.join(kernels::batched_product(dropout(part.weights, training), windows.columns(take(v, sorted))));
  return {take(rows, place), take(windows.join(part.log_sum), place)};
}

}  // namespace xformer::attention
