// The CPU's two passes of routed_features.h, for float and double.
#pragma once

#include "kernels/routed_features/routed_features.h"

namespace xformer::kernels {

[[nodiscard]] at::Tensor routed_features_forward_cpu(const at::Tensor& q, const at::Tensor& maps,
                                                     const at::Tensor& tables, const at::Tensor& chosen,
                                                     const at::Tensor& gate, const RoutedFeaturesOptions& options);

struct RoutedFeaturesGradients {
  at::Tensor q, maps, tables, gate;  // undefined where the operand is
};
[[nodiscard]] RoutedFeaturesGradients routed_features_backward_cpu(const at::Tensor& gradient, const at::Tensor& q,
                                                                   const at::Tensor& maps, const at::Tensor& tables,
                                                                   const at::Tensor& chosen, const at::Tensor& gate,
                                                                   const RoutedFeaturesOptions& options);

// In place, of `count` numbers: x to phi(x), and the gradients of these features to those of x.
void make_features(FeatureMap map, float* x, int64_t count);
void make_features(FeatureMap map, double* x, int64_t count);
void feature_gradients(FeatureMap map, const float* features, int64_t count, float* gradients);
void feature_gradients(FeatureMap map, const double* features, int64_t count, double* gradients);

// Rows of sums [rows, w + 1] and the tokens they are of.
template <class Value>
struct RoutedSums {
  Value* sums;
  int64_t rows, w;
  const int64_t* places;  // of the rows among the tokens
  const Value* gates;     // of all tokens; null: 1
  Value epsilon;
};

// out [w] at out + place stride = gate sums[c] / (sums[w] + epsilon).
void divide_sums(const RoutedSums<float>& of, float* out, int64_t stride);
void divide_sums(const RoutedSums<double>& of, double* out, int64_t stride);
// Backwards from gradients of such rows, one behind the other and `stride` apart, sums to their gradients. Adds to
// those of the gates, of all tokens, where there are gates.
void divided_gradients(const RoutedSums<float>& of, const float* gradients, int64_t stride, float* of_gates);
void divided_gradients(const RoutedSums<double>& of, const double* gradients, int64_t stride, double* of_gates);

}  // namespace xformer::kernels
