// The CPU's two passes of linear.h, for float and double, and for bf16 with weights and biases in float.
#pragma once

#include "kernels/cpu/add_rows.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/stored.h"
#include "kernels/linear/linear.h"

namespace xformer::kernels {

// One bias for each weight, or none at all.
[[nodiscard]] std::vector<at::Tensor> linear_forward_cpu(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                                         const std::vector<at::Tensor>& biases,
                                                         const at::Tensor& needed);

struct NormedLinearForward {
  std::vector<at::Tensor> results;
  at::Tensor mean, rstd;  // of x, [rows] as computed
};
// The same of the norm of x, of which two numbers a row are kept.
[[nodiscard]] NormedLinearForward normed_linear_forward_cpu(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                                            const std::vector<at::Tensor>& biases,
                                                            const NormWeights& norm, const at::Tensor& needed);

struct LinearGradients {
  at::Tensor x;                             // undefined if not wanted
  std::vector<at::Tensor> weights, biases;  // undefined for maps without a gradient
};

// One gradient for each map, undefined where its result was not used; at least one is defined.
[[nodiscard]] LinearGradients linear_backward_cpu(const std::vector<at::Tensor>& gradients, const at::Tensor& x,
                                                  const std::vector<at::Tensor>& weights,
                                                  const std::vector<at::Tensor>& biases, const at::Tensor& needed,
                                                  bool x_wanted);

struct NormedLinearGradients {
  LinearGradients maps;
  at::Tensor weight, bias;  // of the norm
};
// `past`: what x's gradient is besides, or undefined.
[[nodiscard]] NormedLinearGradients normed_linear_backward_cpu(const std::vector<at::Tensor>& gradients,
                                                               const at::Tensor& past, const at::Tensor& x,
                                                               const std::vector<at::Tensor>& weights,
                                                               const std::vector<at::Tensor>& biases,
                                                               const NormWeights& norm, const at::Tensor& mean,
                                                               const at::Tensor& rstd, const at::Tensor& needed);

// to [rows, width] = x weight + bias [width]; nullptr: without.
template <class Stored>
void map_rows(int64_t rows, int64_t width, Operand<Stored> x, const PackedFactor<Stored>& weight,
              const Computed<Stored>* bias, Stored* to, std::vector<Computed<Stored>>& room) {
  using Value = Computed<Stored>;
  constexpr int64_t kAtOnce = 64;                             // stay in the first cache between what is done to them
  const bool starts = !kConverts<Stored> && bias != nullptr;  // what is rounded gets its bias then
  for (int64_t first = 0; first < rows; first += kAtOnce) {
    const int64_t count = std::min(kAtOnce, rows - first);
    Stored* const place = to + first * width;
    Value* const into = place_for(place, count * width, room);
    if (starts) repeat_row(bias, count, width, into);
    gemm(count, {x.data + first * x.stride, x.stride}, weight, Value(starts), into, width);
    if constexpr (kConverts<Stored>)
      if (bias != nullptr) {
        narrow_sums(count, width, into, bias, place);
        continue;
      }
    store(into, count * width, place);
  }
}

// Backwards from `slopes` [rows, out], the gradient of the map of `inputs` [rows, in]: x_gradient = more x_gradient +
// slopes weight, unless it is nullptr; adds the weight's gradient to table [out, in] and, behind it, the bias' [out].
template <class Stored>
void map_gradient_rows(int64_t rows, int64_t out, int64_t in, const Stored* slopes, const Stored* inputs,
                       const PackedFactor<Stored>& weight, Computed<Stored> more, Computed<Stored>* x_gradient,
                       bool has_bias, Computed<Stored>* table) {
  using Value = Computed<Stored>;
  if (x_gradient != nullptr) gemm(rows, {slopes, out}, weight, more, x_gradient, in);
  gemm(out, in, rows, Value(1), {slopes, out, true}, {inputs, in}, Value(1), table, in);
  if (has_bias) add_rows(slopes, out, rows, out, table + out * in);
}

}  // namespace xformer::kernels
