#include "kernels/unit_rows/unit_rows.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/units.h"
#include "kernels/fused.h"
#include "kernels/unit_rows/cpu.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kUnitRows = 256;

struct UnitRowsCall {
  at::Tensor x, sigma;
  double epsilon;

  static constexpr const char* kName = "unit_rows";
  static inline const Operator<unit_rows_forward_cpu> kForward{"unit_rows_forward"};
  static inline const Operator<unit_rows_backward_cpu> kBackward{"unit_rows_backward"};

  [[nodiscard]] variable_list inputs() const { return {x, sigma}; }
  variable_list forward() { return {kForward(x, sigma, epsilon)}; }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return tensors_of(kBackward(gradients[0], x, sigma, epsilon));
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {unit_rows_reference(in[0], in[1], epsilon)};
  }
};

// work(unit, b, h, first row, rows) over all heads' rows.
template <class Work>
void for_head_rows(const at::Tensor& x, const Work& work) {
  const int64_t h = x.size(1), n = x.size(2), parts = (n + kUnitRows - 1) / kUnitRows;
  for_units(x.size(0) * h * parts, kUnitRows * x.size(3) * 4, [&](int64_t unit, int64_t) {
    const int64_t head = unit / parts, first = unit % parts * kUnitRows;
    work(unit, head / h, head % h, first, std::min(kUnitRows, n - first));
  });
}

}  // namespace

at::Tensor unit_rows_forward_cpu(const at::Tensor& x_in, const at::Tensor& sigma_in, double epsilon) {
  const at::Tensor x = with_rows(x_in), sigma = sigma_in.contiguous();
  XF_ASSERT(sigma.size(0) == x.size(1) && sigma.size(1) == x.size(3), "scales of other heads");
  at::Tensor result = at::empty(x.sizes(), x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "unit_rows", [&] {
    const auto from = reading<scalar_t>(x);
    const auto to = writing<scalar_t>(result);
    const auto* const scales = sigma.const_data_ptr<scalar_t>();
    for_head_rows(x, [&](int64_t, int64_t b, int64_t h, int64_t first, int64_t rows) {
      scale_rows(
          {rows, x.size(3), from.at(b, h, first), from.stride, scales + h * x.size(3), static_cast<scalar_t>(epsilon)},
          to.at(b, h, first));
    });
  });
  return result;
}

UnitRowsGradients unit_rows_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& x_in,
                                         const at::Tensor& sigma_in, double epsilon) {
  const at::Tensor x = with_rows(x_in), gradient = with_rows(gradient_in), sigma = sigma_in.contiguous();
  const int64_t b = x.size(0), h = x.size(1), n = x.size(2), d = x.size(3), parts = (n + kUnitRows - 1) / kUnitRows;
  UnitRowsGradients result{new_heads(x, n, d), {}};
  const at::Tensor shares = at::zeros({b, h, parts, d}, x.options());  // of sigma's gradient, added in order
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "unit_rows_backward", [&] {
    const auto from = reading<scalar_t>(x), slopes = reading<scalar_t>(gradient);
    const auto to = writing<scalar_t>(result.x);
    const auto* const scales = sigma.const_data_ptr<scalar_t>();
    auto* const of_sigma = shares.mutable_data_ptr<scalar_t>();
    for_head_rows(x, [&](int64_t unit, int64_t sample, int64_t head, int64_t first, int64_t rows) {
      scale_gradient_rows(
          {rows, d, from.at(sample, head, first), from.stride, scales + head * d, static_cast<scalar_t>(epsilon)},
          {slopes.at(sample, head, first), slopes.stride, to.at(sample, head, first), to.stride, of_sigma + unit * d});
    });
  });
  result.sigma = shares.sum(at::IntArrayRef{0, 2});
  return result;
}

at::Tensor unit_rows(const at::Tensor& x, const at::Tensor& sigma, double epsilon) {
  return run_fused(UnitRowsCall{x, sigma, epsilon})[0];
}

at::Tensor unit_rows_reference(const at::Tensor& x, const at::Tensor& sigma, double epsilon) {
  return x / (x.square().sum(-1, /*keepdim=*/true) + epsilon).sqrt() * sigma.unsqueeze(1);
}

}  // namespace xformer::kernels
