// The loops of alpha-entmax over one row.
#include "kernels/entmax_attention/weight_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

namespace {

// log(1 + x) for x > -1, its digits kept near 0; the lowest number where 1 + x is 0.
[[gnu::always_inline]] inline float log1p_of(float x) {
  const float u = 1.0F + x, by = u - 1.0F;
  const float result = by == 0.0F ? x : log_of(u) * (x / by);
  return u <= 0.0F ? -1e30F : result;
}
[[gnu::always_inline]] inline double log1p_of(double x) { return std::log1p(x); }

// What x = y - t makes: p, u = p^(1 - b), and for any power log(1 + x). NaN stays.
template <class Value>
struct EntmaxPoint {
  Value p, u, log;
};

template <EntmaxPower power, class Value>
[[gnu::always_inline]] inline EntmaxPoint<Value> point_at(Value x, Value inverse_b) {
  const Value above = x + 1 < 0 ? Value(0) : x + 1;
  if constexpr (power == EntmaxPower::kOne) {
    return {above, above > 0 ? Value(1) : Value(0), 0};
  } else if constexpr (power == EntmaxPower::kTwo) {
    return {above * above, above, 0};
  } else {
    const Value inside = x > Value(-1) ? x : Value(-1), log = log1p_of(inside);
    const Value u = above > 0 ? exp_of(log * (inverse_b - 1)) : Value(0);
    return {u * above, u, above > 0 ? log : Value(0)};
  }
}

// add(j, lane) for every j, then the sum of each array's lanes in its first place.
template <class Value, class Add, class... Lanes>
[[gnu::always_inline]] inline void sum_lanes(int64_t count, const Add& add, Lanes&... lanes) {
  for (int64_t j = 0; j < count; j += kEntmaxLanes)
    for (int64_t lane = 0; lane < kEntmaxLanes; ++lane) add(j + lane, lane);
  const auto fold = [](auto& one) __attribute__((always_inline)) {
    for (int64_t width = kEntmaxLanes / 2; width > 0; width /= 2)
      for (int64_t lane = 0; lane < width; ++lane) one[lane] += one[lane + width];
  };
  (fold(lanes), ...);
}

template <class Value>
[[gnu::always_inline]] inline Value largest_of(const Value* y, int64_t count) {
  Value largest[kEntmaxLanes];
  std::fill_n(largest, kEntmaxLanes, -std::numeric_limits<Value>::infinity());
  for (int64_t j = 0; j < count; j += kEntmaxLanes)
    for (int64_t lane = 0; lane < kEntmaxLanes; ++lane)
      largest[lane] = y[j + lane] > largest[lane] ? y[j + lane] : largest[lane];
  return *std::max_element(largest, largest + kEntmaxLanes);
}

template <EntmaxPower power, bool kDrops, class Value>
[[gnu::always_inline]] inline Value weights_of(Value* y, int64_t count, const EntmaxRow<Value>& row) {
  const auto [kind, b, draws, threshold, keep] = row;
  const Value top = largest_of(y, count), inverse_b = 1 / b;
  if (!(top > -std::numeric_limits<Value>::infinity())) return entmax_without_key(y, count);
  // From the largest on, where P is 1 at least: P^b is convex in t and falls, so that steps rise to the root.
  Value shift = 0;
  for (int step = 0; step < kMostEntmaxSteps; ++step) {
    Value sums[kEntmaxLanes] = {}, slopes[kEntmaxLanes] = {};
    sum_lanes<Value>(
        count,
        [&](int64_t j, int64_t lane) __attribute__((always_inline)) {
          const EntmaxPoint<Value> at = point_at<power>(y[j] - top - shift, inverse_b);
          sums[lane] += at.p;
          slopes[lane] += at.u;
        },
        sums, slopes);
    const Value before = shift;
    shift += entmax_excess<power>(sums[0], b) / slopes[0];
    // Of many keys that weigh alike the sum moves by more than that with the last bit of the threshold.
    if (!(sums[0] - 1 > entmax_rest(b)) || shift == before) break;
  }
  for (int64_t j = 0; j < count; ++j) {
    const Value p = point_at<power>(y[j] - top - shift, inverse_b).p;
    y[j] = kDrops ? (draws[j] < threshold ? Value(0) : p * keep) : p;
  }
  return top + shift;
}

template <EntmaxPower power, bool kDrops, class Value>
[[gnu::always_inline]] inline Value gradients_of(Value* __restrict y, Value* __restrict gradient, int64_t count,
                                                 const EntmaxRow<Value>& row, Value t, Value* __restrict room) {
  const auto [kind, b, draws, threshold, keep] = row;
  const Value inverse_b = 1 / b;
  const auto kept = [&](int64_t j) __attribute__((always_inline)) {
    return kDrops ? (draws[j] < threshold ? Value(0) : keep) : Value(1);
  };
  Value totals[kEntmaxLanes] = {}, products[kEntmaxLanes] = {};
  Value e_sum[kEntmaxLanes] = {}, h_sum[kEntmaxLanes] = {}, ge[kEntmaxLanes] = {}, gh[kEntmaxLanes] = {};
  if constexpr (power == EntmaxPower::kAny) {
    // u = p + e: e = -x u has its digits near alpha = 1, where u and p are nearly equal.
    sum_lanes<Value>(
        count,
        [&](int64_t j, int64_t lane) __attribute__((always_inline)) {
          const Value x = y[j] - t;
          const EntmaxPoint<Value> at = point_at<power>(x, inverse_b);
          const Value g = gradient[j] * kept(j), e = at.u > 0 ? -x * at.u : Value(0), h = -at.p * at.log * inverse_b;
          room[j] = at.u;
          totals[lane] += at.u, products[lane] += g * at.u;
          e_sum[lane] += e, h_sum[lane] += h;
          ge[lane] += g * e, gh[lane] += g * h;
        },
        totals, products, e_sum, h_sum, ge, gh);
  } else {
    sum_lanes<Value>(
        count,
        [&](int64_t j, int64_t lane) __attribute__((always_inline)) {
          const Value u = point_at<power>(y[j] - t, inverse_b).u;
          totals[lane] += u;
          products[lane] += u * (gradient[j] * kept(j));
        },
        totals, products);
  }
  const Value mean = products[0] / totals[0];  // of rows with a key: u is 1 at least in all
  for (int64_t j = 0; j < count; ++j) {
    const Value x = y[j] - t;
    EntmaxPoint<Value> at;
    if constexpr (power == EntmaxPower::kAny) at = {room[j] * (x + 1 < 0 ? Value(0) : x + 1), room[j], 0};
    else at = point_at<power>(x, inverse_b);
    const Value factor = kept(j);
    y[j] = at.p * factor;
    gradient[j] = at.u * (gradient[j] * factor - mean);
  }
  if constexpr (power != EntmaxPower::kAny) return 0;
  const Value gp = products[0] - ge[0], inverse = 1 / totals[0];
  return (gp * e_sum[0] - ge[0]) * inverse / (b * b) + (gh[0] - mean * h_sum[0]) / b;
}

template <EntmaxPower power, class Value>
[[gnu::always_inline]] inline Value weights_by_dropout(Value* y, int64_t count, const EntmaxRow<Value>& row) {
  return row.draws == nullptr ? weights_of<power, false>(y, count, row) : weights_of<power, true>(y, count, row);
}

template <class Value>
[[gnu::always_inline]] inline Value weights_by_power(Value* y, int64_t count, const EntmaxRow<Value>& row) {
  if (row.power == EntmaxPower::kOne) return weights_by_dropout<EntmaxPower::kOne>(y, count, row);
  if (row.power == EntmaxPower::kTwo) return weights_by_dropout<EntmaxPower::kTwo>(y, count, row);
  return weights_by_dropout<EntmaxPower::kAny>(y, count, row);
}

template <EntmaxPower power, class Value>
[[gnu::always_inline]] inline Value gradients_by_dropout(Value* y, Value* gradient, int64_t count,
                                                         const EntmaxRow<Value>& row, Value t, Value* room) {
  return row.draws == nullptr ? gradients_of<power, false>(y, gradient, count, row, t, room)
                              : gradients_of<power, true>(y, gradient, count, row, t, room);
}

template <class Value>
[[gnu::always_inline]] inline Value gradients_by_power(Value* y, Value* gradient, int64_t count,
                                                       const EntmaxRow<Value>& row, Value t, Value* room) {
  if (row.power == EntmaxPower::kOne) return gradients_by_dropout<EntmaxPower::kOne>(y, gradient, count, row, t, room);
  if (row.power == EntmaxPower::kTwo) return gradients_by_dropout<EntmaxPower::kTwo>(y, gradient, count, row, t, room);
  return gradients_by_dropout<EntmaxPower::kAny>(y, gradient, count, row, t, room);
}

}  // namespace

namespace by_compiler {

XFORMER_VECTORISED
float entmax_weights(float* y, int64_t count, const EntmaxRow<float>& row, float*) {
  return weights_by_power(y, count, row);
}

XFORMER_VECTORISED
float entmax_gradients(float* y, float* gradient, int64_t count, const EntmaxRow<float>& row, float t, float* room) {
  return gradients_by_power(y, gradient, count, row, t, room);
}

}  // namespace by_compiler

std::vector<EntmaxLoops> ways_to_entmax() {
  std::vector<EntmaxLoops> ways;
  if (has_512()) ways.push_back({by_512::entmax_weights, by_512::entmax_gradients});
  ways.push_back({by_compiler::entmax_weights, by_compiler::entmax_gradients});
  return ways;
}

namespace {

const EntmaxLoops& loops() {
  static const EntmaxLoops first = ways_to_entmax().front();
  return first;
}

}  // namespace

float entmax_weights(float* y, int64_t count, const EntmaxRow<float>& row, float* room) {
  return loops().weights(y, count, row, room);
}
double entmax_weights(double* y, int64_t count, const EntmaxRow<double>& row, double*) {
  return weights_by_power(y, count, row);
}

float entmax_gradients(float* y, float* gradient, int64_t count, const EntmaxRow<float>& row, float t, float* room) {
  return (row.power == EntmaxPower::kAny ? loops().gradients : by_compiler::entmax_gradients)(y, gradient, count, row,
                                                                                              t, room);
}
double entmax_gradients(double* y, double* gradient, int64_t count, const EntmaxRow<double>& row, double t,
                        double* room) {
  return gradients_by_power(y, gradient, count, row, t, room);
}

}  // namespace xformer::kernels
