// The CPU's two passes of linear.h, for float and double, and for bf16 with weights and biases in float.
#pragma once

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/stored.h"
#include "kernels/linear/linear.h"

namespace xformer::kernels {

// One bias for each weight, or none at all.
[[nodiscard]] std::vector<at::Tensor> linear_forward_cpu(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                                         const std::vector<at::Tensor>& biases,
                                                         const at::Tensor& needed);

struct LinearGradients {
  at::Tensor x;                             // undefined if not wanted
  std::vector<at::Tensor> weights, biases;  // undefined for maps without a gradient
};

// One gradient for each map, undefined where its result was not used; at least one is defined.
[[nodiscard]] LinearGradients linear_backward_cpu(const std::vector<at::Tensor>& gradients, const at::Tensor& x,
                                                  const std::vector<at::Tensor>& weights,
                                                  const std::vector<at::Tensor>& biases, const at::Tensor& needed,
                                                  bool x_wanted);

// rows [count, width] = `row` [width], over and over.
void repeat_row(const float* row, int64_t count, int64_t width, float* rows);
void repeat_row(const double* row, int64_t count, int64_t width, double* rows);

// to [rows, width] = x weight + bias [width]; nullptr: without.
template <class Stored>
void map_rows(int64_t rows, int64_t width, Operand<Stored> x, const PackedFactor<Stored>& weight,
              const Computed<Stored>* bias, Stored* to, std::vector<Computed<Stored>>& room) {
  using Value = Computed<Stored>;
  Value* const into = place_for(to, rows * width, room);
  const bool starts = !kConverts<Stored> && bias != nullptr;  // what is rounded gets its bias then
  if (starts) repeat_row(bias, rows, width, into);
  gemm(rows, x, weight, Value(starts), into, width);
  if constexpr (kConverts<Stored>)
    if (bias != nullptr) return narrow_sums(rows, width, into, bias, to);
  store(into, rows * width, to);
}

// sums [width] += the rows' sum.
void add_rows(const c10::BFloat16* rows, int64_t count, int64_t width, float* sums);
void add_rows(const float* rows, int64_t count, int64_t width, float* sums);
void add_rows(const double* rows, int64_t count, int64_t width, double* sums);

}  // namespace xformer::kernels
