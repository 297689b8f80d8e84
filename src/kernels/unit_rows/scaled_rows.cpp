// Rows of unit_rows, each of them in registers of the processor.
#include <cmath>

#include "kernels/cpu/heads.h"
#include "kernels/cpu/row_sums.h"
#include "kernels/unit_rows/cpu.h"

namespace xformer::kernels {

namespace {

template <class Value>
[[gnu::always_inline]] inline void scaled_of(const UnitRows<Value>& block, Value* __restrict to) {
  const int64_t d = block.d;
  const Value* const __restrict sigma = block.sigma;
  for (int64_t r = 0; r < block.rows; ++r) {
    const Value* const __restrict x = block.x + r * block.stride;
    Value* const __restrict row = to + r * d;
    fetch_row_ahead(x, block.stride, d);
    const Value size = 1 / std::sqrt(dot_of(x, x, d) + block.epsilon);
    for (int64_t i = 0; i < d; ++i) row[i] = x[i] * size * sigma[i];
  }
}

// With u = x / sqrt(|x|^2 + epsilon) and g = gradient sigma: dx = (g - u (u . g)) / sqrt(|x|^2 + epsilon).
template <class Value>
[[gnu::always_inline]] inline void slopes_of_scaled(const UnitRows<Value>& block, const UnitSlopes<Value>& slopes) {
  const int64_t d = block.d;
  const Value* const __restrict sigma = block.sigma;
  Value* const __restrict d_sigma = slopes.d_sigma;
  for (int64_t r = 0; r < block.rows; ++r) {
    const Value* const __restrict x = block.x + r * block.stride;
    const Value* const __restrict gradient = slopes.gradient + r * slopes.stride;
    Value* const __restrict to = slopes.x_gradient + r * slopes.to_stride;
    fetch_row_ahead(x, block.stride, d);
    fetch_row_ahead(gradient, slopes.stride, d);
    for (int64_t i = 0; i < d; ++i) to[i] = gradient[i] * sigma[i];
    const Value size = 1 / std::sqrt(dot_of(x, x, d) + block.epsilon), along = dot_of<Value>(x, to, d) * size * size;
    for (int64_t i = 0; i < d; ++i) {
      d_sigma[i] += gradient[i] * x[i] * size;
      to[i] = size * (to[i] - x[i] * along);
    }
  }
}

}  // namespace

XFORMER_VECTORISED void scale_rows(const UnitRows<float>& block, float* to) { scaled_of(block, to); }
XFORMER_VECTORISED void scale_rows(const UnitRows<double>& block, double* to) { scaled_of(block, to); }
XFORMER_VECTORISED void scale_gradient_rows(const UnitRows<float>& block, const UnitSlopes<float>& slopes) {
  slopes_of_scaled(block, slopes);
}
XFORMER_VECTORISED void scale_gradient_rows(const UnitRows<double>& block, const UnitSlopes<double>& slopes) {
  slopes_of_scaled(block, slopes);
}

}  // namespace xformer::kernels
