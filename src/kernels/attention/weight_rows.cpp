// Rows of attention weights: the loops that are not products.
#include <limits>

#include "kernels/attention/cpu.h"
#include "kernels/cpu/row_sums.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

namespace {

// Sums side by side, because a compiler may not reorder one; fewer lanes are unrolled before they are vectorised.
constexpr int64_t kRowLanes = 64;

// What is left of a row behind its steps of kRowLanes goes by in steps of a register, the last one filled up: rows of
// real lengths are seldom multiples of kRowLanes, and a step number by number would take as long as all others.
constexpr int64_t kTailLanes = 16;

// The largest of count lanes, a power of two; they are lost.
template <class Value>
[[gnu::always_inline]] inline Value largest_lane(Value* lanes, int64_t count) {
  for (int64_t width = count / 2; width > 0; width /= 2)
    for (int64_t lane = 0; lane < width; ++lane)
      lanes[lane] = lanes[lane] > lanes[lane + width] ? lanes[lane] : lanes[lane + width];
  return lanes[0];
}

template <class Value>
[[gnu::always_inline]] inline Value largest_of(const Value* scores, int64_t count, Value start) {
  Value most = start, tail[kTailLanes];
  int64_t i = 0;
  if (count >= kRowLanes) {
    Value lanes[kRowLanes];
    for (int64_t lane = 0; lane < kRowLanes; ++lane) lanes[lane] = start;
    for (; i + kRowLanes <= count; i += kRowLanes)
      for (int64_t lane = 0; lane < kRowLanes; ++lane)
        lanes[lane] = lanes[lane] > scores[i + lane] ? lanes[lane] : scores[i + lane];
    most = largest_lane(lanes, kRowLanes);
  }
  for (int64_t lane = 0; lane < kTailLanes; ++lane) tail[lane] = start;
  for (; i + kTailLanes <= count; i += kTailLanes)
    for (int64_t lane = 0; lane < kTailLanes; ++lane)
      tail[lane] = tail[lane] > scores[i + lane] ? tail[lane] : scores[i + lane];
  for (int64_t lane = 0; lane < kTailLanes; ++lane) {
    const Value score = i + lane < count ? scores[i + lane] : start;
    tail[lane] = tail[lane] > score ? tail[lane] : score;
  }
  const Value last = largest_lane(tail, kTailLanes);
  return most > last ? most : last;
}

template <bool kDrops, class Value>
[[gnu::always_inline]] inline Value weights_of(Value* scores, int64_t count, Value shift, const uint16_t* draws,
                                               uint32_t threshold, Value keep) {
  Value tail[kTailLanes] = {};
  const auto dropped = [&](int64_t i, Value p) { return kDrops ? (draws[i] < threshold ? Value(0) : p * keep) : p; };
  int64_t i = 0;
  if (count >= kRowLanes) {
    Value lanes[kRowLanes] = {};
    for (; i + kRowLanes <= count; i += kRowLanes) {
      for (int64_t lane = 0; lane < kRowLanes; ++lane) {
        const Value p = exp_of(scores[i + lane] - shift);
        lanes[lane] += p;
        scores[i + lane] = dropped(i + lane, p);
      }
    }
    for (int64_t first = 0; first < kRowLanes; first += kTailLanes)
      for (int64_t lane = 0; lane < kTailLanes; ++lane) tail[lane] += lanes[first + lane];
  }
  for (; i + kTailLanes <= count; i += kTailLanes) {
    for (int64_t lane = 0; lane < kTailLanes; ++lane) {
      const Value p = exp_of(scores[i + lane] - shift);
      tail[lane] += p;
      scores[i + lane] = dropped(i + lane, p);
    }
  }
  for (int64_t lane = 0; lane < kTailLanes; ++lane) {
    if (i + lane < count) {
      const Value p = exp_of(scores[i + lane] - shift);
      tail[lane] += p;
      scores[i + lane] = dropped(i + lane, p);
    }
  }
  for (int64_t width = kTailLanes / 2; width > 0; width /= 2)
    for (int64_t lane = 0; lane < width; ++lane) tail[lane] += tail[lane + width];
  return tail[0];
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
float row_product(const float* x, const float* y, int64_t count) { return dot_of(x, y, count); }
double row_product(const double* x, const double* y, int64_t count) { return dot_of(x, y, count); }

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
