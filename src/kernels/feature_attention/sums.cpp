#include "kernels/feature_attention/sums.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "tensor/parts.h"

namespace xformer::kernels {

namespace {

// Sums over the chunks before each one. totals [b,h,g,f,e], ends [b,h,g,1,1]: the log scale at the end of each chunk.
// Row g is relative to the end of chunk g - 1.
at::Tensor sums_before(const at::Tensor& totals, const at::Tensor& ends) {
  const int64_t chunks = totals.size(2);
  const at::Tensor none = at::zeros_like(totals.narrow(2, 0, 1));
  if (chunks == 1) return none;
  if (!ends.defined()) return at::cat({none, totals.narrow(2, 0, chunks - 1).cumsum(2)}, 2);
  const at::Tensor decay = at::exp(ends.narrow(2, 0, chunks - 1) - ends.narrow(2, 1, chunks - 1));
  std::vector<at::Tensor> before{none, totals.narrow(2, 0, 1)};
  for (int64_t g = 1; g + 1 < chunks; ++g)
    before.push_back(before.back() * decay.narrow(2, g - 1, 1) + totals.narrow(2, g, 1));
  return at::cat(before, 2);
}

}  // namespace

int64_t causal_chunk(int64_t length) { return std::min<int64_t>(64, length); }

at::Tensor values_and_count(const at::Tensor& v, const SequenceMask& mask) {
  if (mask.all_valid())
    return at::cat({v, at::ones({1}, v.options()).expand({v.size(0), v.size(1), v.size(2), 1})}, -1);
  const at::Tensor valid = mask.as_factor(v.scalar_type());
  return at::cat({v * valid, valid.expand({-1, v.size(1), -1, -1})}, -1);
}

at::Tensor causal_kernel_sums(const at::Tensor& phi_q, const at::Tensor& phi_k, const at::Tensor& values,
                              const at::Tensor& log_scale) {
  const int64_t n = phi_q.size(2);
  XF_ASSERT(phi_k.size(2) == n, "causal sums need as many keys ({}) as queries ({})", phi_k.size(2), n);
  const int64_t chunk = causal_chunk(n), chunks = (n + chunk - 1) / chunk, missing = chunks * chunk - n;
  const auto split = [&](const at::Tensor& x) {  // [b,h,n,x] -> [b,h,g,c,x]
    return with_zeros_behind(x, 2, missing).unflatten(2, {chunks, chunk});
  };
  const at::Tensor q = split(phi_q), k = split(phi_k), x = split(values);
  at::Tensor within = at::matmul(q, k.transpose(-1, -2));  // [b,h,g,c,c]
  if (!log_scale.defined()) {
    const at::Tensor before = sums_before(at::matmul(k.transpose(-1, -2), x), {});
    return part_of((at::matmul(q, before) + at::matmul(within.tril(), x)).flatten(2, 3), 2, 0, n);
  }
  // The last scale is repeated over the missing rows, which keeps every exponent at or below zero.
  at::Tensor s = log_scale;
  if (missing > 0) s = at::cat({s, s.narrow(2, n - 1, 1).expand({-1, -1, missing, -1})}, 2);
  s = s.unflatten(2, {chunks, chunk});                // [b,h,g,c,1]
  const at::Tensor ends = s.narrow(3, chunk - 1, 1);  // [b,h,g,1,1]
  const at::Tensor later = at::ones({chunk, chunk}, s.options().dtype(at::kBool)).triu(1);
  within = within * at::exp((s.transpose(-1, -2) - s).masked_fill(later, -1e30));      // exactly 0 where later
  const at::Tensor totals = at::matmul((k * at::exp(s - ends)).transpose(-1, -2), x);  // [b,h,g,f,e]
  // Chunk 0 has nothing before it: any finite scale does.
  const at::Tensor previous = at::cat({s.narrow(2, 0, 1).narrow(3, 0, 1).detach(), ends.narrow(2, 0, chunks - 1)}, 2);
  const at::Tensor from_before = at::matmul(q, sums_before(totals, ends)) * at::exp(previous - s);
  return (from_before + at::matmul(within, x)).flatten(2, 3).narrow(2, 0, n);
}

}  // namespace xformer::kernels
