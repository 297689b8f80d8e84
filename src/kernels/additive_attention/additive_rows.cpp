// The loops of additive attention that are no products: tanh over pairs, a row of keys at a time.
#include <cmath>

#include "kernels/additive_attention/cpu.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

namespace {

// Scores of so many keys stay in the first-level cache while the channels go by.
constexpr int64_t kKeysAtOnce = 1024;
constexpr int64_t kTanhLanes = 32;  // sums side by side

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

template <class Value>
[[gnu::always_inline]] inline void gradients_of_scores(const Value* q, const Value* w, int64_t d, const Value* k,
                                                       int64_t stride, int64_t count, const Value* slopes, Value* dq,
                                                       Value* dw, Value* dk) {
  for (int64_t c = 0; c < d; ++c) {
    const Value* const from = k + c * stride;
    Value* const to = dk + c * stride;
    const Value shift = q[c], factor = w[c];
    Value q_lanes[kTanhLanes] = {}, w_lanes[kTanhLanes] = {};
    const auto add = [&](int64_t j, int64_t lane) {
      const Value t = tanh_of(shift + from[j]), slope = slopes[j] * factor * (1 - t * t);
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

}  // namespace

XFORMER_VECTORISED
void additive_scores(const float* q, const float* w, int64_t d, const float* k, int64_t stride, int64_t count,
                     float* scores) {
  scores_of(q, w, d, k, stride, count, scores);
}
void additive_scores(const double* q, const double* w, int64_t d, const double* k, int64_t stride, int64_t count,
                     double* scores) {
  scores_of(q, w, d, k, stride, count, scores);
}

XFORMER_VECTORISED
void additive_gradients(const float* q, const float* w, int64_t d, const float* k, int64_t stride, int64_t count,
                        const float* slopes, float* dq, float* dw, float* dk) {
  gradients_of_scores(q, w, d, k, stride, count, slopes, dq, dw, dk);
}
void additive_gradients(const double* q, const double* w, int64_t d, const double* k, int64_t stride, int64_t count,
                        const double* slopes, double* dq, double* dw, double* dk) {
  gradients_of_scores(q, w, d, k, stride, count, slopes, dq, dw, dk);
}

}  // namespace xformer::kernels
