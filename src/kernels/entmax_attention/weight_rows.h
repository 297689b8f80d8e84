// Rows of weights by alpha-entmax (kernels/entmax/entmax.h) in the cache. No LibTorch here.
#pragma once

#include <cstdint>

#include "kernels/entmax/power.h"

namespace xformer::kernels {

// Rows are whole multiples of it; the rest is filled up with keys that are closed.
inline constexpr int64_t kEntmaxLanes = 32;

// What rows of a head have in common: b = alpha - 1, and dropout as in RowWeights (attention/cpu.h).
template <class Value>
struct EntmaxRow {
  EntmaxPower power;
  Value b;
  const uint16_t* draws;
  uint32_t threshold;
  Value keep;
};

// y = b times the scores, -infinity of closed keys -> drop(p), in place, and returns the threshold t of
//   p = [1 + y - t]_+^(1 / b)
// +infinity, and weights of zero, of a row without a key; NaN of a row with one in it.
float entmax_weights(float* y, int64_t count, const EntmaxRow<float>& row);
double entmax_weights(double* y, int64_t count, const EntmaxRow<double>& row);

// y -> drop(p); `gradient`, that of drop(p) -> that of the scores. `room` holds as many numbers. Returns the
// row's part of alpha's gradient for any power, else 0.
float entmax_gradients(float* y, float* gradient, int64_t count, const EntmaxRow<float>& row, float t, float* room);
double entmax_gradients(double* y, double* gradient, int64_t count, const EntmaxRow<double>& row, double t,
                        double* room);

}  // namespace xformer::kernels
