#include "kernels/window_attention/window_rows.h"

#include <limits>

#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

namespace {

template <bool kDrops, class Value>
[[gnu::always_inline]] inline RowSum<Value> weigh(Value* scores, int64_t count, const uint16_t* draws,
                                                  uint32_t threshold, Value keep) {
  constexpr Value kNone = -std::numeric_limits<Value>::infinity();
  Value lanes[kRowStep];
  for (int64_t lane = 0; lane < kRowStep; ++lane) lanes[lane] = kNone;
  for (int64_t i = 0; i < count; i += kRowStep)
    for (int64_t lane = 0; lane < kRowStep; ++lane)
      lanes[lane] = lanes[lane] > scores[i + lane] ? lanes[lane] : scores[i + lane];
  for (int64_t width = kRowStep / 2; width > 0; width /= 2)
    for (int64_t lane = 0; lane < width; ++lane)
      lanes[lane] = lanes[lane] > lanes[lane + width] ? lanes[lane] : lanes[lane + width];
  const Value shift = lanes[0] == kNone ? Value(0) : lanes[0];
  for (int64_t lane = 0; lane < kRowStep; ++lane) lanes[lane] = 0;
  for (int64_t i = 0; i < count; i += kRowStep) {
    for (int64_t lane = 0; lane < kRowStep; ++lane) {
      const Value p = exp_of(scores[i + lane] - shift);
      lanes[lane] += p;
      scores[i + lane] = kDrops ? (draws[i + lane] < threshold ? Value(0) : p * keep) : p;
    }
  }
  for (int64_t width = kRowStep / 2; width > 0; width /= 2)
    for (int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return {shift, lanes[0]};
}

template <class Value>
[[gnu::always_inline]] inline Value dot(const Value* a, const Value* b, int64_t count) {
  Value lanes[kRowStep] = {};
  int64_t i = 0;
  for (; i + kRowStep <= count; i += kRowStep)
    for (int64_t lane = 0; lane < kRowStep; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  for (int64_t lane = 0; i + lane < count; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  for (int64_t width = kRowStep / 2; width > 0; width /= 2)
    for (int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0];
}

template <class Value>
[[gnu::always_inline]] inline void add(Value* to, const Value* of, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += of[i];
}

// A selection, so that rows that are not wanted may hold anything; NaN stays NaN.
template <class Value>
[[gnu::always_inline]] inline void divide(Value* row, int64_t count, Value sum) {
  const Value factor = 1 / sum;
  for (int64_t i = 0; i < count; ++i) row[i] = sum == 0 ? Value(0) : row[i] * factor;
}

}  // namespace

XFORMER_VECTORISED
RowSum<float> weigh_row(float* scores, int64_t count, const uint16_t* draws, uint32_t threshold, float keep) {
  return draws == nullptr ? weigh<false>(scores, count, draws, threshold, keep)
                          : weigh<true>(scores, count, draws, threshold, keep);
}
RowSum<double> weigh_row(double* scores, int64_t count, const uint16_t* draws, uint32_t threshold, double keep) {
  return draws == nullptr ? weigh<false>(scores, count, draws, threshold, keep)
                          : weigh<true>(scores, count, draws, threshold, keep);
}

XFORMER_VECTORISED
float dot_row(const float* a, const float* b, int64_t count) { return dot(a, b, count); }
double dot_row(const double* a, const double* b, int64_t count) { return dot(a, b, count); }

XFORMER_VECTORISED
void add_row(float* to, const float* of, int64_t count) { add(to, of, count); }
void add_row(double* to, const double* of, int64_t count) { add(to, of, count); }

XFORMER_VECTORISED
void divide_row(float* row, int64_t count, float sum) { divide(row, count, sum); }
void divide_row(double* row, int64_t count, double sum) { divide(row, count, sum); }

}  // namespace xformer::kernels
