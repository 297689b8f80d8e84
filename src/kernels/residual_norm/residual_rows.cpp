// Rows of residual_norm that lie in the cache.
#include <cmath>

#include "kernels/cpu/vectorised.h"
#include "kernels/residual_norm/cpu.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kRowLanes = 16;  // sums side by side, because a compiler may not reorder one

template <class Value>
[[gnu::always_inline]] inline Value total_of(const Value* lanes) {
  Value sums[kRowLanes];
  for (int64_t lane = 0; lane < kRowLanes; ++lane) sums[lane] = lanes[lane];
  for (int64_t half = kRowLanes / 2; half > 0; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

template <class Value>
[[gnu::always_inline]] inline void residual_of(const Value* __restrict x, const Value* __restrict branch,
                                               const DropRule& drop, int64_t count, Value* __restrict sum) {
  if (drop.draws == nullptr) {
    for (int64_t i = 0; i < count; ++i) sum[i] = x[i] + branch[i];
    return;
  }
  const uint16_t* __restrict draws = drop.draws;
  const uint32_t threshold = drop.threshold;
  const auto keep = static_cast<Value>(drop.keep);
  for (int64_t i = 0; i < count; ++i) {
    const Value kept = branch[i] * keep;
    sum[i] = x[i] + (draws[i] < threshold ? Value(0) : kept);
  }
}

template <class Value>
[[gnu::always_inline]] inline void drop_of(const Value* __restrict in, const DropRule& drop, int64_t count,
                                           Value* __restrict out) {
  const uint16_t* __restrict draws = drop.draws;
  const uint32_t threshold = drop.threshold;
  const auto keep = static_cast<Value>(drop.keep);
  for (int64_t i = 0; i < count; ++i) {
    const Value kept = in[i] * keep;
    out[i] = draws[i] < threshold ? Value(0) : kept;
  }
}

template <class Value>
[[gnu::always_inline]] inline void norm_row(const Value* __restrict sum, const Value* __restrict weight,
                                            const Value* __restrict bias, int64_t width, Value epsilon,
                                            Value* __restrict normed, Value& mean_out, Value& rstd_out) {
  Value lanes[kRowLanes] = {};
  int64_t i = 0;
  for (; i + kRowLanes <= width; i += kRowLanes)
    for (int64_t lane = 0; lane < kRowLanes; ++lane) lanes[lane] += sum[i + lane];
  Value total = total_of(lanes);
  for (; i < width; ++i) total += sum[i];
  const Value mean = total / static_cast<Value>(width);
  Value squares[kRowLanes] = {};
  for (i = 0; i + kRowLanes <= width; i += kRowLanes)
    for (int64_t lane = 0; lane < kRowLanes; ++lane) {
      const Value off = sum[i + lane] - mean;
      squares[lane] += off * off;
    }
  total = total_of(squares);
  for (; i < width; ++i) total += (sum[i] - mean) * (sum[i] - mean);
  const Value rstd = 1 / std::sqrt(total / static_cast<Value>(width) + epsilon);
  for (i = 0; i < width; ++i) normed[i] = (sum[i] - mean) * rstd * weight[i] + bias[i];
  mean_out = mean;
  rstd_out = rstd;
}

template <class Value>
[[gnu::always_inline]] inline void norm_of(const NormForwardRows<Value>& block) {
  for (int64_t r = 0; r < block.rows; ++r)
    norm_row(block.sum + r * block.width, block.weight, block.bias, block.width, block.epsilon,
             block.normed + r * block.width, block.mean[r], block.rstd[r]);
}

// With u = (sum - mean) rstd and g = gradient of normed * weight: dx = dsum + rstd (g - mean(g) - u mean(g u)).
template <class Value>
[[gnu::always_inline]] inline void gradient_row(const Value* __restrict sum, Value mean, Value rstd,
                                                const Value* __restrict weight, const Value* __restrict normed_gradient,
                                                int64_t width, Value* __restrict x_gradient,
                                                Value* __restrict weight_gradient, Value* __restrict bias_gradient) {
  Value lanes[kRowLanes] = {}, products[kRowLanes] = {};
  int64_t i = 0;
  for (; i + kRowLanes <= width; i += kRowLanes)
    for (int64_t lane = 0; lane < kRowLanes; ++lane) {
      const Value g = normed_gradient[i + lane] * weight[i + lane];
      lanes[lane] += g;
      products[lane] += g * (sum[i + lane] - mean);
    }
  Value total = total_of(lanes), product = total_of(products);
  for (; i < width; ++i) {
    const Value g = normed_gradient[i] * weight[i];
    total += g;
    product += g * (sum[i] - mean);
  }
  const Value shift = total / static_cast<Value>(width), slope = product * rstd / static_cast<Value>(width);
  for (i = 0; i < width; ++i) {
    const Value u = (sum[i] - mean) * rstd, dy = normed_gradient[i];
    x_gradient[i] = rstd * (dy * weight[i] - shift - u * slope);
    weight_gradient[i] += dy * u;
    bias_gradient[i] += dy;
  }
}

template <class Value>
[[gnu::always_inline]] inline void add_to(const Value* __restrict from, int64_t count, Value* __restrict into) {
  for (int64_t i = 0; i < count; ++i) into[i] += from[i];
}

template <class Value>
[[gnu::always_inline]] inline void gradients_of(const NormBackwardRows<Value>& block) {
  const int64_t width = block.width;
  for (int64_t r = 0; r < block.rows; ++r) {
    gradient_row(block.sum + r * width, block.mean[r], block.rstd[r], block.weight, block.normed_gradient + r * width,
                 width, block.x_gradient + r * width, block.weight_gradient, block.bias_gradient);
    if (block.sum_gradient != nullptr) add_to(block.sum_gradient + r * width, width, block.x_gradient + r * width);
  }
}

}  // namespace

XFORMER_VECTORISED
void residual_rows(const float* x, const float* branch, const DropRule& drop, int64_t count, float* sum) {
  residual_of(x, branch, drop, count, sum);
}
void residual_rows(const double* x, const double* branch, const DropRule& drop, int64_t count, double* sum) {
  residual_of(x, branch, drop, count, sum);
}

XFORMER_VECTORISED
void norm_rows(const NormForwardRows<float>& block) { norm_of(block); }
void norm_rows(const NormForwardRows<double>& block) { norm_of(block); }

XFORMER_VECTORISED
void norm_gradient_rows(const NormBackwardRows<float>& block) { gradients_of(block); }
void norm_gradient_rows(const NormBackwardRows<double>& block) { gradients_of(block); }

XFORMER_VECTORISED
void drop_rows(const float* in, const DropRule& drop, int64_t count, float* out) { drop_of(in, drop, count, out); }
void drop_rows(const double* in, const DropRule& drop, int64_t count, double* out) { drop_of(in, drop, count, out); }

}  // namespace xformer::kernels
