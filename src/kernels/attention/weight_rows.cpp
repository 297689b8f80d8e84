// Rows of attention weights: the loops that are not products.
#include <limits>

#include "kernels/attention/cpu.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

namespace {

// Sums side by side, because a compiler may not reorder one; fewer lanes are unrolled before they are vectorised.
constexpr int64_t kRowLanes = 64;

template <class Value>
[[gnu::always_inline]] inline Value largest_of(const Value* scores, int64_t count, Value start) {
  Value lanes[kRowLanes], result = start;
  for (int64_t lane = 0; lane < kRowLanes; ++lane) lanes[lane] = start;
  int64_t i = 0;
  for (; i + kRowLanes <= count; i += kRowLanes)
    for (int64_t lane = 0; lane < kRowLanes; ++lane)
      lanes[lane] = lanes[lane] > scores[i + lane] ? lanes[lane] : scores[i + lane];
  for (; i < count; ++i) result = result > scores[i] ? result : scores[i];
  for (int64_t width = kRowLanes / 2; width > 0; width /= 2)
    for (int64_t lane = 0; lane < width; ++lane)
      lanes[lane] = lanes[lane] > lanes[lane + width] ? lanes[lane] : lanes[lane + width];
  return result > lanes[0] ? result : lanes[0];
}

template <bool kDrops, class Value>
[[gnu::always_inline]] inline Value weights_of(Value* scores, int64_t count, Value shift, const uint16_t* draws,
                                               uint32_t threshold, Value keep) {
  Value lanes[kRowLanes] = {}, tail = 0;
  const auto dropped = [&](int64_t i, Value p) { return kDrops ? (draws[i] < threshold ? Value(0) : p * keep) : p; };
  int64_t i = 0;
  for (; i + kRowLanes <= count; i += kRowLanes) {
    for (int64_t lane = 0; lane < kRowLanes; ++lane) {
      const Value p = exp_of(scores[i + lane] - shift);
      lanes[lane] += p;
      scores[i + lane] = dropped(i + lane, p);
    }
  }
  for (int64_t j = i; j < count; ++j) scores[j] = exp_of(scores[j] - shift);
  for (int64_t j = i; j < count; ++j) tail += scores[j];
  if (kDrops)
    for (int64_t j = i; j < count; ++j) scores[j] = dropped(j, scores[j]);
  for (int64_t width = kRowLanes / 2; width > 0; width /= 2)
    for (int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0] + tail;
}

template <class Value>
[[gnu::always_inline]] inline void gradients_of(Value* scores, Value* gradient, int64_t count, Value log_sum,
                                                Value delta, const uint16_t* draws, uint32_t threshold, Value keep) {
  if (draws == nullptr) {
    for (int64_t i = 0; i < count; ++i) {
      const Value p = exp_of(scores[i] - log_sum);
      scores[i] = p;
      gradient[i] = p * (gradient[i] - delta);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const Value p = exp_of(scores[i] - log_sum), factor = draws[i] < threshold ? Value(0) : keep;
    scores[i] = p * factor;
    gradient[i] = p * (gradient[i] * factor - delta);
  }
}

}  // namespace

XFORMER_VECTORISED
float row_largest(const float* scores, int64_t count, float start) { return largest_of(scores, count, start); }
double row_largest(const double* scores, int64_t count, double start) { return largest_of(scores, count, start); }

XFORMER_VECTORISED
float row_weights(float* scores, int64_t count, float shift, const uint16_t* draws, uint32_t threshold, float keep) {
  return draws == nullptr ? weights_of<false>(scores, count, shift, draws, threshold, keep)
                          : weights_of<true>(scores, count, shift, draws, threshold, keep);
}
double row_weights(double* scores, int64_t count, double shift, const uint16_t* draws, uint32_t threshold,
                   double keep) {
  return draws == nullptr ? weights_of<false>(scores, count, shift, draws, threshold, keep)
                          : weights_of<true>(scores, count, shift, draws, threshold, keep);
}

XFORMER_VECTORISED
void row_gradients(float* scores, float* gradient, int64_t count, float log_sum, float delta, const uint16_t* draws,
                   uint32_t threshold, float keep) {
  gradients_of(scores, gradient, count, log_sum, delta, draws, threshold, keep);
}
void row_gradients(double* scores, double* gradient, int64_t count, double log_sum, double delta, const uint16_t* draws,
                   uint32_t threshold, double keep) {
  gradients_of(scores, gradient, count, log_sum, delta, draws, threshold, keep);
}

}  // namespace xformer::kernels
