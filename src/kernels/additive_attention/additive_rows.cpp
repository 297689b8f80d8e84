// The loops of additive attention that are no products: tanh over pairs, a row of keys at a time.
#include <cmath>

#include "kernels/additive_attention/cpu.h"
#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

namespace {

// Scores of so many keys stay in the first-level cache while the channels go by.
constexpr int64_t kKeysAtOnce = 1024;
constexpr int64_t kTanhLanes = 32;  // sums side by side

// Powers of twice such numbers are finite and not zero, and so is what they are made of.
constexpr float kMostFloat = 43;
constexpr double kMostDouble = 350;

template <class Value>
[[gnu::always_inline]] inline bool take_powers(Value* x, int64_t count, Value most) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    wrong += x[i] <= most && x[i] >= -most ? 0 : 1;  // NaN too
    x[i] = exp_of(Value(2) * x[i]);
  }
  return wrong == 0;
}

// 1 - 2 / (e^2x + 1): within 2e-7 of the exact value, with both ends where e^2x is 0 or infinite.
[[gnu::always_inline]] inline float tanh_of(float x) { return 1.0F - 2.0F / (exp_of(2.0F * x) + 1.0F); }
[[gnu::always_inline]] inline double tanh_of(double x) { return std::tanh(x); }

template <class Value>
[[gnu::always_inline]] inline void scores_of(const Value* q, const Value* w, int64_t d, const Value* k, int64_t stride,
                                             int64_t count, Value* scores) {
  for (int64_t first = 0; first < count; first += kKeysAtOnce) {
    const int64_t keys = count - first < kKeysAtOnce ? count - first : kKeysAtOnce;
    Value* const to = scores + first;
    for (int64_t j = 0; j < keys; ++j) to[j] = 0;
    for (int64_t c = 0; c < d; ++c) {
      const Value* const from = k + c * stride + first;
      const Value shift = q[c], factor = w[c];
      for (int64_t j = 0; j < keys; ++j) to[j] += factor * tanh_of(shift + from[j]);
    }
  }
}

// The same by powers.
template <class Value>
[[gnu::always_inline]] inline void scores_by_powers(const Value* q, const Value* w, int64_t d, const Value* k,
                                                    int64_t stride, int64_t count, Value* scores) {
  Value all = 0;
  for (int64_t c = 0; c < d; ++c) all += w[c];
  for (int64_t first = 0; first < count; first += kKeysAtOnce) {
    const int64_t keys = count - first < kKeysAtOnce ? count - first : kKeysAtOnce;
    Value* const to = scores + first;
    for (int64_t j = 0; j < keys; ++j) to[j] = all;
    for (int64_t c = 0; c < d; ++c) {
      const Value* const from = k + c * stride + first;
      const Value power = q[c], factor = 2 * w[c];
      for (int64_t j = 0; j < keys; ++j) to[j] -= factor / (1 + power * from[j]);
    }
  }
}

template <class Value, class TanhOf>
[[gnu::always_inline]] inline void gradients_of_scores(const Value* w, int64_t d, int64_t stride, int64_t count,
                                                       const Value* slopes, Value* dq, Value* dw, Value* dk,
                                                       const TanhOf& tanh_at) {
  for (int64_t c = 0; c < d; ++c) {
    Value* const to = dk + c * stride;
    const Value factor = w[c];
    Value q_lanes[kTanhLanes] = {}, w_lanes[kTanhLanes] = {};
    const auto add = [&](int64_t j, int64_t lane) {
      const Value t = tanh_at(c, j), slope = slopes[j] * factor * (1 - t * t);
      w_lanes[lane] += slopes[j] * t;
      q_lanes[lane] += slope;
      to[j] += slope;
    };
    int64_t j = 0;
    for (; j + kTanhLanes <= count; j += kTanhLanes)
      for (int64_t lane = 0; lane < kTanhLanes; ++lane) add(j + lane, lane);
    for (int64_t lane = 0; j + lane < count; ++lane) add(j + lane, lane);
    for (int64_t width = kTanhLanes / 2; width > 0; width /= 2)
      for (int64_t lane = 0; lane < width; ++lane) {
        q_lanes[lane] += q_lanes[lane + width];
        w_lanes[lane] += w_lanes[lane + width];
      }
    dq[c] += q_lanes[0];
    dw[c] += w_lanes[0];
  }
}

template <class Value>
[[gnu::always_inline]] inline bool have_powers(const AdditiveRow<Value>& q, const AdditiveRow<Value>& k) {
  return q.powers != nullptr && k.powers != nullptr;
}

template <class Value>
[[gnu::always_inline]] inline void any_scores(const AdditiveRow<Value>& q, const Value* w, int64_t d,
                                              const AdditiveRow<Value>& k, int64_t stride, int64_t count,
                                              Value* scores) {
  if (have_powers(q, k)) scores_by_powers(q.powers, w, d, k.powers, stride, count, scores);
  else scores_of(q.x, w, d, k.x, stride, count, scores);
}

template <class Value>
[[gnu::always_inline]] inline void any_gradients(const AdditiveRow<Value>& q, const Value* w, int64_t d,
                                                 const AdditiveRow<Value>& k, int64_t stride, int64_t count,
                                                 const Value* slopes, Value* dq, Value* dw, Value* dk) {
  if (have_powers(q, k))
    gradients_of_scores(w, d, stride, count, slopes, dq, dw, dk,
                        [&](int64_t c, int64_t j) { return 1 - 2 / (1 + q.powers[c] * k.powers[c * stride + j]); });
  else
    gradients_of_scores(w, d, stride, count, slopes, dq, dw, dk,
                        [&](int64_t c, int64_t j) { return tanh_of(q.x[c] + k.x[c * stride + j]); });
}

XFORMER_VECTORISED
void additive_scores_by_compiler(const AdditiveRow<float>& q, const float* w, int64_t d, const AdditiveRow<float>& k,
                                 int64_t stride, int64_t count, float* scores) {
  any_scores(q, w, d, k, stride, count, scores);
}

XFORMER_VECTORISED
void additive_gradients_by_compiler(const AdditiveRow<float>& q, const float* w, int64_t d, const AdditiveRow<float>& k,
                                    int64_t stride, int64_t count, const float* slopes, float* dq, float* dw,
                                    float* dk) {
  any_gradients(q, w, d, k, stride, count, slopes, dq, dw, dk);
}

}  // namespace

XFORMER_VECTORISED
bool doubled_powers(float* x, int64_t count) { return take_powers(x, count, kMostFloat); }
bool doubled_powers(double* x, int64_t count) { return take_powers(x, count, kMostDouble); }

void additive_scores(const AdditiveRow<float>& q, const float* w, int64_t d, const AdditiveRow<float>& k,
                     int64_t stride, int64_t count, float* scores) {
  if (has_512() && have_powers(q, k)) by_512::additive_scores(q.powers, w, d, k.powers, stride, count, scores);
  else additive_scores_by_compiler(q, w, d, k, stride, count, scores);
}
void additive_scores(const AdditiveRow<double>& q, const double* w, int64_t d, const AdditiveRow<double>& k,
                     int64_t stride, int64_t count, double* scores) {
  any_scores(q, w, d, k, stride, count, scores);
}

void additive_gradients(const AdditiveRow<float>& q, const float* w, int64_t d, const AdditiveRow<float>& k,
                        int64_t stride, int64_t count, const float* slopes, float* dq, float* dw, float* dk) {
  if (has_512() && have_powers(q, k))
    by_512::additive_gradients(q.powers, w, d, k.powers, stride, count, slopes, dq, dw, dk);
  else additive_gradients_by_compiler(q, w, d, k, stride, count, slopes, dq, dw, dk);
}
void additive_gradients(const AdditiveRow<double>& q, const double* w, int64_t d, const AdditiveRow<double>& k,
                        int64_t stride, int64_t count, const double* slopes, double* dq, double* dw, double* dk) {
  any_gradients(q, w, d, k, stride, count, slopes, dq, dw, dk);
}

}  // namespace xformer::kernels
