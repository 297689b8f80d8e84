// alpha-entmax on the CPU: rows shared out over the threads.
#include "kernels/entmax/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include "kernels/cpu/units.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kRowsAtOnce = 16;  // of a unit of work

// row(number, b) for all of [b,h,q].
template <class Value, class Row>
void for_rows(const at::Tensor& x, const at::Tensor& alpha, const EntmaxOptions& options, const Row& row) {
  const at::Tensor alphas = alpha.contiguous();
  const auto* const of_heads = alphas.const_data_ptr<Value>();
  const int64_t h = x.size(1), n = x.size(2), rows = x.size(0) * h * n;
  for_units((rows + kRowsAtOnce - 1) / kRowsAtOnce, kRowsAtOnce * x.size(3) * 32, [&](int64_t unit, int64_t) {
    for (int64_t one = unit * kRowsAtOnce; one < std::min(rows, (unit + 1) * kRowsAtOnce); ++one)
      row(one, options.alpha != 0 ? static_cast<Value>(options.alpha - 1) : of_heads[one / n % h] - 1);
  });
}

}  // namespace

at::Tensor entmax_forward_cpu(const at::Tensor& scores_in, const at::Tensor& alpha, const EntmaxOptions& options) {
  const at::Tensor scores = scores_in.contiguous(), result = at::empty_like(scores);
  const int64_t k = scores.size(3);
  AT_DISPATCH_FLOATING_TYPES(scores.scalar_type(), "entmax", [&] {
    const auto* const from = scores.const_data_ptr<scalar_t>();
    auto* const to = result.mutable_data_ptr<scalar_t>();
    for_rows<scalar_t>(scores, alpha, options, [&](int64_t row, scalar_t b) {
      entmax_row(from + row * k, k, entmax_power(options.alpha), b, static_cast<scalar_t>(options.no_key),
                 to + row * k);
    });
  });
  return result;
}

EntmaxGradients entmax_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& p, const at::Tensor& alpha,
                                    const EntmaxOptions& options) {
  const at::Tensor gradient = gradient_in.contiguous(), result = at::empty_like(p);
  const at::Tensor of_alpha = at::empty({p.size(0), p.size(1), p.size(2)}, p.options());
  const int64_t k = p.size(3);
  AT_DISPATCH_FLOATING_TYPES(p.scalar_type(), "entmax_backward", [&] {
    const auto *const weights = p.const_data_ptr<scalar_t>(), *const given = gradient.const_data_ptr<scalar_t>();
    auto *const to = result.mutable_data_ptr<scalar_t>(), *const alphas = of_alpha.mutable_data_ptr<scalar_t>();
    for_rows<scalar_t>(p, alpha, options, [&](int64_t row, scalar_t b) {
      alphas[row] =
          entmax_row_gradients(weights + row * k, given + row * k, k, entmax_power(options.alpha), b, to + row * k);
    });
  });
  return {result, options.alpha == 0 ? of_alpha.sum(at::IntArrayRef({0, 2})) : at::zeros_like(alpha)};
}

}  // namespace xformer::kernels
