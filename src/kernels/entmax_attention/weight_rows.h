// Rows of weights by alpha-entmax (kernels/entmax/entmax.h) in the cache. No LibTorch here.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

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
// +infinity, and weights of zero, of a row without a key; NaN of a row with one in it. `room` is for kEntmaxLanes
// numbers more than `count` is.
float entmax_weights(float* y, int64_t count, const EntmaxRow<float>& row, float* room);
double entmax_weights(double* y, int64_t count, const EntmaxRow<double>& row, double* room);

// y -> drop(p); `gradient`, that of drop(p) -> that of the scores. `room` is for `count` numbers. Returns the row's
// part of alpha's gradient for any power, else 0.
float entmax_gradients(float* y, float* gradient, int64_t count, const EntmaxRow<float>& row, float t, float* room);
double entmax_gradients(double* y, double* gradient, int64_t count, const EntmaxRow<double>& row, double t,
                        double* room);

// Those of float by each instruction set that there are two of them for, the widest first, which the functions above
// take.
struct EntmaxLoops {
  float (*weights)(float* y, int64_t count, const EntmaxRow<float>& row, float* room);
  float (*gradients)(float* y, float* gradient, int64_t count, const EntmaxRow<float>& row, float t, float* room);
};
[[nodiscard]] std::vector<EntmaxLoops> ways_to_entmax();

// By whatever the compiler makes of them.
namespace by_compiler {
float entmax_weights(float* y, int64_t count, const EntmaxRow<float>& row, float* room);
float entmax_gradients(float* y, float* gradient, int64_t count, const EntmaxRow<float>& row, float t, float* room);
}  // namespace by_compiler

namespace by_512 {

// Where has_512() (kernels/cpu/lanes_512.h); gradients of any power, as entmax_gradients() asks for them.
float entmax_weights(float* y, int64_t count, const EntmaxRow<float>& row, float* room);
float entmax_gradients(float* y, float* gradient, int64_t count, const EntmaxRow<float>& row, float t, float* room);

}  // namespace by_512

// What both take of the search for a row's threshold.

// What the sum P of a row may be away from 1 before the last step, which leaves about the square of it.
[[gnu::always_inline]] inline float entmax_rest(float b) { return b > 0.5F ? 4e-6F : 1e-3F; }
[[gnu::always_inline]] inline double entmax_rest(double b) { return b > 0.5 ? 1e-13 : 1e-7; }
// P - P^(1 - b) with its digits near P = 1, for Newton's step towards P^b = 1.
template <EntmaxPower power, class Value>
[[gnu::always_inline]] inline Value entmax_excess(Value sum, Value b) {
  if constexpr (power == EntmaxPower::kOne) return sum - 1;
  else if constexpr (power == EntmaxPower::kTwo) return (sum - 1) / (1 + 1 / std::sqrt(sum));
  else return -sum * std::expm1(-b * std::log(sum));
}
// A row without a number above -infinity.
template <class Value>
[[gnu::always_inline]] inline Value entmax_without_key(Value* y, int64_t count) {
  const bool lost = std::any_of(y, y + count, [](Value one) { return one != one; });
  std::fill_n(y, count, lost ? std::numeric_limits<Value>::quiet_NaN() : Value(0));
  return lost ? y[0] : std::numeric_limits<Value>::infinity();
}

}  // namespace xformer::kernels
