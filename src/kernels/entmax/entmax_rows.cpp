// The loops of alpha-entmax over one row.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/vectorised.h"
#include "kernels/entmax/cpu.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kEntmaxLanes = 32;  // sums side by side
constexpr int kMostNewtonSteps = 40;  // 12 reach 1e-14 in double for up to 4096 keys

// What the sum of a row may lie above 1 when Newton's steps end. The quotient by the sum takes the rest away.
[[gnu::always_inline]] inline float entmax_rest(float) { return 4e-6F; }
[[gnu::always_inline]] inline double entmax_rest(double) { return 1e-14; }

// log(1 + x) for x > -1, its digits kept near 0; the lowest number where 1 + x is 0.
[[gnu::always_inline]] inline float log1p_of(float x) {
  const float u = 1.0F + x, by = u - 1.0F;
  const float result = by == 0.0F ? x : log_of(u) * (x / by);
  return u <= 0.0F ? -1e30F : result;
}
[[gnu::always_inline]] inline double log1p_of(double x) { return std::log1p(x); }

// e^x - 1 with its digits near 0.
[[gnu::always_inline]] inline float expm1_of(float x) {
  const float series = x * (1.0F + x * (0.5F + x * (1.0F / 6 + x * (1.0F / 24 + x * (1.0F / 120 + x * (1.0F / 720))))));
  const float size = x < 0 ? -x : x;
  return size < 0.25F ? series : exp_of(x) - 1.0F;
}
[[gnu::always_inline]] inline double expm1_of(double x) { return std::expm1(x); }

// x = b (s - max s - t) -> p, and p / (1 + x), the slope of p.
template <class Value>
struct EntmaxPoint {
  Value p, slope;
};

template <EntmaxPower power, class Value>
[[gnu::always_inline]] inline EntmaxPoint<Value> point_at(Value x, Value inverse_b) {
  const Value above = x + 1 > 0 ? x + 1 : Value(0);
  if constexpr (power == EntmaxPower::kOne) {
    return {above, above > 0 ? Value(1) : Value(0)};
  } else if constexpr (power == EntmaxPower::kTwo) {
    return {above * above, above};
  } else {
    const Value inside = x > Value(-1) ? x : Value(-1);
    const Value p = above > 0 ? exp_of(log1p_of(inside) * inverse_b) : Value(0);
    return {p, above > 0 ? p / above : Value(0)};
  }
}

// add(j, lane) for every j, then the sum of each array's lanes in its first place.
template <class Value, class Add, class... Lanes>
[[gnu::always_inline]] inline void sum_lanes(int64_t count, const Add& add, Lanes&... lanes) {
  int64_t j = 0;
  for (; j + kEntmaxLanes <= count; j += kEntmaxLanes)
    for (int64_t lane = 0; lane < kEntmaxLanes; ++lane) add(j + lane, lane);
  for (int64_t lane = 0; j + lane < count; ++lane) add(j + lane, lane);
  const auto fold = [](auto& one) {
    for (int64_t width = kEntmaxLanes / 2; width > 0; width /= 2)
      for (int64_t lane = 0; lane < width; ++lane) one[lane] += one[lane + width];
  };
  (fold(lanes), ...);
}

template <EntmaxPower power, class Value>
[[gnu::always_inline]] inline void row_of(const Value* scores, int64_t count, Value b, Value no_key, Value* p) {
  Value top = no_key;
  for (int64_t j = 0; j < count; ++j) top = scores[j] > top ? scores[j] : top;
  if (!(top > no_key)) {
    for (int64_t j = 0; j < count; ++j) p[j] = 0;
    return;
  }
  for (int64_t j = 0; j < count; ++j) p[j] = (scores[j] - top) * b;
  const Value inverse_b = 1 / b;
  Value shift = 0, sum = 0;  // shift = b t
  for (int step = 0;; ++step) {
    Value sums[kEntmaxLanes] = {}, slopes[kEntmaxLanes] = {};
    sum_lanes<Value>(
        count,
        [&](int64_t j, int64_t lane) {
          const EntmaxPoint<Value> at = point_at<power>(p[j] - shift, inverse_b);
          sums[lane] += at.p;
          slopes[lane] += at.slope;
        },
        sums, slopes);
    sum = sums[0];
    const Value next = shift + b * (sum - 1) / slopes[0];
    if (sum - 1 <= entmax_rest(b) || next == shift || step == kMostNewtonSteps) break;
    shift = next;
  }
  const Value inverse = 1 / sum;
  for (int64_t j = 0; j < count; ++j) p[j] = point_at<power>(p[j] - shift, inverse_b).p * inverse;
}

// Where u is the root of p or 1 on the support.
template <EntmaxPower power, class Value>
[[gnu::always_inline]] inline void gradients_of_power(const Value* p, const Value* g, int64_t count, Value* scores) {
  const auto u_of = [](Value one) {
    if constexpr (power == EntmaxPower::kOne) return one > 0 ? Value(1) : Value(0);
    else return std::sqrt(one);
  };
  Value totals[kEntmaxLanes] = {}, products[kEntmaxLanes] = {};
  sum_lanes<Value>(
      count,
      [&](int64_t j, int64_t lane) {
        const Value u = u_of(p[j]);
        totals[lane] += u;
        products[lane] += u * g[j];
      },
      totals, products);
  const Value mean = products[0] / (totals[0] > Value(0.5) ? totals[0] : Value(0.5));  // rows without a key: 0
  for (int64_t j = 0; j < count; ++j) scores[j] = u_of(p[j]) * (g[j] - mean);
}

// u = p + e: with e the differences near alpha = 1 keep their digits.
template <class Value>
[[gnu::always_inline]] inline Value gradients_of_any(const Value* p, const Value* g, int64_t count, Value b,
                                                     Value* scores) {
  Value e_sum[kEntmaxLanes] = {}, p_sum[kEntmaxLanes] = {}, h_sum[kEntmaxLanes] = {};
  Value gp[kEntmaxLanes] = {}, ge[kEntmaxLanes] = {}, gh[kEntmaxLanes] = {};
  sum_lanes<Value>(
      count,
      [&](int64_t j, int64_t lane) {
        const Value log_p = p[j] > 0 ? log_of(p[j] > 0 ? p[j] : Value(1)) : Value(0);
        const Value e = p[j] * expm1_of(-b * log_p), h = -p[j] * log_p;
        scores[j] = e;
        p_sum[lane] += p[j], e_sum[lane] += e, h_sum[lane] += h;
        gp[lane] += g[j] * p[j], ge[lane] += g[j] * e, gh[lane] += g[j] * h;
      },
      p_sum, e_sum, h_sum, gp, ge, gh);
  const Value total = p_sum[0] + e_sum[0];  // at least 1, but for rows without a key
  const Value inverse = 1 / (total > Value(0.5) ? total : Value(0.5)), mean = (gp[0] + ge[0]) * inverse;
  for (int64_t j = 0; j < count; ++j) scores[j] = (p[j] + scores[j]) * (g[j] - mean);
  return (gp[0] * e_sum[0] - ge[0]) * inverse / (b * b) + (gh[0] - mean * h_sum[0]) / b;
}

template <class Value>
[[gnu::always_inline]] inline void row_by_power(const Value* scores, int64_t count, EntmaxPower power, Value b,
                                                Value no_key, Value* p) {
  if (power == EntmaxPower::kOne) row_of<EntmaxPower::kOne>(scores, count, b, no_key, p);
  else if (power == EntmaxPower::kTwo) row_of<EntmaxPower::kTwo>(scores, count, b, no_key, p);
  else row_of<EntmaxPower::kAny>(scores, count, b, no_key, p);
}

template <class Value>
[[gnu::always_inline]] inline Value gradients_by_power(const Value* p, const Value* g, int64_t count, EntmaxPower power,
                                                       Value b, Value* scores) {
  if (power == EntmaxPower::kAny) return gradients_of_any(p, g, count, b, scores);
  if (power == EntmaxPower::kOne) gradients_of_power<EntmaxPower::kOne>(p, g, count, scores);
  else gradients_of_power<EntmaxPower::kTwo>(p, g, count, scores);
  return 0;
}

}  // namespace

XFORMER_VECTORISED
void entmax_row(const float* scores, int64_t count, EntmaxPower power, float b, float no_key, float* p) {
  row_by_power(scores, count, power, b, no_key, p);
}
void entmax_row(const double* scores, int64_t count, EntmaxPower power, double b, double no_key, double* p) {
  row_by_power(scores, count, power, b, no_key, p);
}

XFORMER_VECTORISED
float entmax_row_gradients(const float* p, const float* gradient, int64_t count, EntmaxPower power, float b,
                           float* scores) {
  return gradients_by_power(p, gradient, count, power, b, scores);
}
double entmax_row_gradients(const double* p, const double* gradient, int64_t count, EntmaxPower power, double b,
                            double* scores) {
  return gradients_by_power(p, gradient, count, power, b, scores);
}

}  // namespace xformer::kernels
