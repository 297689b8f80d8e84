// Features of routed tokens and what their sums are divided by, in loops that vectorise.
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/vectorised.h"
#include "kernels/routed_features/cpu.h"

namespace xformer::kernels {

namespace {

template <class Value>
[[gnu::always_inline]] inline void routed_phi(FeatureMap map, Value* x, int64_t count) {
  if (map == FeatureMap::kElu) {
    for (int64_t i = 0; i < count; ++i) x[i] = x[i] > 0 ? x[i] + Value(1) : exp_of(x[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) x[i] = x[i] < 0 ? Value(0) : x[i];  // NaN stays
  }
}

template <class Value>
[[gnu::always_inline]] inline void routed_phi_gradients(FeatureMap map, const Value* features, int64_t count,
                                                        Value* gradients) {
  if (map == FeatureMap::kElu) {
    for (int64_t i = 0; i < count; ++i) gradients[i] *= features[i] > 1 ? Value(1) : features[i];
  } else {
    for (int64_t i = 0; i < count; ++i) gradients[i] = features[i] <= 0 ? Value(0) : gradients[i];
  }
}

template <class Value>
[[gnu::always_inline]] inline Value gate_of(const RoutedSums<Value>& of, int64_t row) {
  return of.gates == nullptr ? Value(1) : of.gates[of.places[row]];
}

template <class Value>
[[gnu::always_inline]] inline void routed_division(const RoutedSums<Value>& of, Value* out, int64_t stride) {
  for (int64_t i = 0; i < of.rows; ++i) {
    const Value* const sums = of.sums + i * (of.w + 1);
    const Value factor = gate_of(of, i) / (sums[of.w] + of.epsilon);
    Value* const to = out + of.places[i] * stride;
    for (int64_t c = 0; c < of.w; ++c) to[c] = sums[c] * factor;
  }
}

// With o = a / (c + epsilon), what flows back to a is gate / (c + epsilon) of the gradient, and to c that times -o.
template <class Value>
[[gnu::always_inline]] inline void routed_division_gradients(const RoutedSums<Value>& of, const Value* gradients,
                                                             int64_t stride, Value* of_gates) {
  for (int64_t i = 0; i < of.rows; ++i, gradients += stride) {
    Value* const sums = of.sums + i * (of.w + 1);
    const Value inverse = Value(1) / (sums[of.w] + of.epsilon), factor = gate_of(of, i) * inverse;
    SumLanes<Value> lanes = {}, left, right;
    int64_t c = 0;
    for (; c + kSumLanes <= of.w; c += kSumLanes) {
      load(gradients + c, left), load(sums + c, right);
      lanes += left * right;
      store(left * factor, sums + c);
    }
    Value product = sum_of<kSumLanes, Value>(lanes);
    for (; c < of.w; ++c) {
      product += gradients[c] * sums[c];
      sums[c] = gradients[c] * factor;
    }
    sums[of.w] = -factor * inverse * product;
    if (of_gates != nullptr) of_gates[of.places[i]] += inverse * product;
  }
}

}  // namespace

XFORMER_VECTORISED void make_features(FeatureMap map, float* x, int64_t count) { routed_phi(map, x, count); }
void make_features(FeatureMap map, double* x, int64_t count) { routed_phi(map, x, count); }

XFORMER_VECTORISED void feature_gradients(FeatureMap map, const float* features, int64_t count, float* gradients) {
  routed_phi_gradients(map, features, count, gradients);
}
void feature_gradients(FeatureMap map, const double* features, int64_t count, double* gradients) {
  routed_phi_gradients(map, features, count, gradients);
}

XFORMER_VECTORISED void divide_sums(const RoutedSums<float>& of, float* out, int64_t stride) {
  routed_division(of, out, stride);
}
void divide_sums(const RoutedSums<double>& of, double* out, int64_t stride) { routed_division(of, out, stride); }

XFORMER_VECTORISED void divided_gradients(const RoutedSums<float>& of, const float* gradients, int64_t stride,
                                          float* of_gates) {
  routed_division_gradients(of, gradients, stride, of_gates);
}
void divided_gradients(const RoutedSums<double>& of, const double* gradients, int64_t stride, double* of_gates) {
  routed_division_gradients(of, gradients, stride, of_gates);
}

}  // namespace xformer::kernels
