#include "kernels/sine_features/sine_features.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/cpu/units.h"
#include "kernels/fused.h"
#include "kernels/sine_features/cpu.h"

namespace xformer::kernels {

namespace {

struct SineFeaturesCall {
  at::Tensor y;
  double amplitude;
  at::Tensor features;

  static constexpr const char* kName = "sine_features";
  static inline const Operator<sine_features_forward_cpu> kForward{"sine_features_forward"};
  static inline const Operator<sine_features_backward_cpu> kBackward{"sine_features_backward"};

  [[nodiscard]] variable_list inputs() const { return {y}; }
  variable_list forward() {
    features = kForward(y, amplitude);
    if (policy() != Policy::kCheck) y = at::Tensor();  // which the gradient does not need, but its check does
    return {features};
  }
  [[nodiscard]] variable_list backward(const variable_list& gradients, bool) const {
    return {kBackward(gradients[0], features)};
  }
  [[nodiscard]] variable_list reference(const variable_list& in) const {
    return {sine_features_reference(in[0], amplitude)};
  }
};

// work(first row, rows) over all rows of so many numbers.
template <class Work>
void for_row_blocks(int64_t rows, int64_t width, const Work& work) {
  constexpr int64_t kNumbers = 16384;
  const int64_t at_once = std::max<int64_t>(1, kNumbers / std::max<int64_t>(1, width));
  for_units((rows + at_once - 1) / at_once, 8 * kNumbers,
            [&](int64_t unit, int64_t) { work(unit * at_once, std::min(at_once, rows - unit * at_once)); });
}

}  // namespace

at::Tensor sine_features_forward_cpu(const at::Tensor& y_in, double amplitude) {
  const at::Tensor y = y_in.contiguous();
  const int64_t r = y.size(-1), rows = r > 0 ? y.numel() / r : 0;
  std::vector<int64_t> shape = y.sizes().vec();
  shape.back() = 2 * r;
  at::Tensor features = at::empty(shape, y.options());
  AT_DISPATCH_FLOATING_TYPES(y.scalar_type(), "sine_features", [&] {
    const scalar_t* const from = y.const_data_ptr<scalar_t>();
    scalar_t* const to = features.mutable_data_ptr<scalar_t>();
    for_row_blocks(rows, r, [&](int64_t first, int64_t count) {
      for (int64_t row = first; row < first + count; ++row)
        sine_row(from + row * r, r, static_cast<scalar_t>(amplitude), to + row * 2 * r);
    });
  });
  return features;
}

at::Tensor sine_features_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& features_in) {
  const at::Tensor gradient = gradient_in.contiguous(), features = features_in.contiguous();
  XF_ASSERT(gradient.sizes() == features.sizes(), "a gradient of another shape");
  const int64_t r = features.size(-1) / 2, rows = r > 0 ? features.numel() / (2 * r) : 0;
  std::vector<int64_t> shape = features.sizes().vec();
  shape.back() = r;
  at::Tensor result = at::empty(shape, features.options());
  AT_DISPATCH_FLOATING_TYPES(features.scalar_type(), "sine_features_backward", [&] {
    const scalar_t *const slopes = gradient.const_data_ptr<scalar_t>(), *const of = features.const_data_ptr<scalar_t>();
    scalar_t* const to = result.mutable_data_ptr<scalar_t>();
    for_row_blocks(rows, 2 * r, [&](int64_t first, int64_t count) {
      for (int64_t row = first; row < first + count; ++row)
        sine_gradient_row(slopes + row * 2 * r, of + row * 2 * r, r, to + row * r);
    });
  });
  return result;
}

at::Tensor sine_features(const at::Tensor& y, double amplitude) {
  return run_fused(SineFeaturesCall{y, amplitude, {}})[0];
}

at::Tensor sine_features_reference(const at::Tensor& y, double amplitude) {
  return at::cat({at::sin(y), at::cos(y)}, -1) * amplitude;
}

}  // namespace xformer::kernels
