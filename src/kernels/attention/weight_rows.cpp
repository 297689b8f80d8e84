// Rows of attention weights: the loops that are not products.
#include "kernels/attention/weight_rows.h"

#include <algorithm>

#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/row_sums.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

namespace {

// Sums side by side, because a compiler may not reorder one; fewer lanes are unrolled before they are vectorised.
constexpr int64_t kRowLanes = 64;

// What is left of a row behind its steps of kRowLanes goes by in steps of a register, the last one filled up: rows of
// real lengths are seldom multiples of kRowLanes, and a step number by number would take as long as all others.
constexpr int64_t kTailLanes = 16;

template <bool kDrops, class Value>
[[gnu::always_inline]] inline Value weights_of(Value* scores, int64_t count, const RowWeights<Value>& row) {
  const auto [factor, shift, draws, threshold, keep] = row;
  Value tail[kTailLanes] = {};
  const auto weigh = [&](int64_t i, Value& sum) {
    const Value p = exp2_of(factor * scores[i] - shift);
    sum += p;
    scores[i] = kDrops ? (draws[i] < threshold ? Value(0) : p * keep) : p;
  };
  int64_t i = 0;
  if (count >= kRowLanes) {
    Value lanes[kRowLanes] = {};
    for (; i + kRowLanes <= count; i += kRowLanes)
      for (int64_t lane = 0; lane < kRowLanes; ++lane) weigh(i + lane, lanes[lane]);
    for (int64_t first = 0; first < kRowLanes; first += kTailLanes)
      for (int64_t lane = 0; lane < kTailLanes; ++lane) tail[lane] += lanes[first + lane];
  }
  for (; i + kTailLanes <= count; i += kTailLanes)
    for (int64_t lane = 0; lane < kTailLanes; ++lane) weigh(i + lane, tail[lane]);
  if (i < count)
    for (int64_t lane = 0; lane < kTailLanes; ++lane)
      if (i + lane < count) weigh(i + lane, tail[lane]);
  for (int64_t width = kTailLanes / 2; width > 0; width /= 2)
    for (int64_t lane = 0; lane < width; ++lane) tail[lane] += tail[lane + width];
  return tail[0];
}

template <bool kDrops, class Value>
[[gnu::always_inline]] inline void gradients_of(Value* __restrict scores, Value* __restrict gradient, int64_t count,
                                                const RowWeights<Value>& row, Value delta, Value slope) {
  const auto [factor, shift, draws, threshold, keep] = row;
  const auto one = [&](int64_t i) {
    const Value p = exp2_of(factor * scores[i] - shift);
    const Value kept = kDrops ? (draws[i] < threshold ? Value(0) : keep) : Value(1);
    scores[i] = p * kept;
    gradient[i] = slope * p * (gradient[i] * kept - delta);
  };
  const int64_t whole = count / kTailLanes * kTailLanes;
  for (int64_t i = 0; i < whole; ++i) one(i);
  if (whole == count) return;
  for (int64_t lane = 0; lane < kTailLanes; ++lane)
    if (whole + lane < count) one(whole + lane);
}

}  // namespace

XFORMER_VECTORISED
float row_largest(const float* scores, int64_t count, float start) { return largest_of(scores, count, start); }
double row_largest(const double* scores, int64_t count, double start) { return largest_of(scores, count, start); }

XFORMER_VECTORISED
float row_product(const float* x, const float* y, int64_t count) { return dot_of(x, y, count); }
double row_product(const double* x, const double* y, int64_t count) { return dot_of(x, y, count); }

namespace {

XFORMER_VECTORISED
float weights_in_place(float* scores, int64_t count, const RowWeights<float>& weights) {
  return weights.draws == nullptr ? weights_of<false>(scores, count, weights)
                                  : weights_of<true>(scores, count, weights);
}

float weights_by_compiler(const float* scores, int64_t count, const RowWeights<float>& weights, float* out) {
  if (out != scores) std::copy_n(scores, count, out);
  return weights_in_place(out, count, weights);
}

XFORMER_VECTORISED
void gradients_by_compiler(float* scores, float* gradient, int64_t count, const RowWeights<float>& weights, float delta,
                           float slope) {
  weights.draws == nullptr ? gradients_of<false>(scores, gradient, count, weights, delta, slope)
                           : gradients_of<true>(scores, gradient, count, weights, delta, slope);
}

const WeightLoops& loops() {
  static const WeightLoops first = ways_to_weigh().front();
  return first;
}

}  // namespace

std::vector<WeightLoops> ways_to_weigh() {
  std::vector<WeightLoops> ways;
#ifdef XFORMER_BY_512
  if (has_512()) ways.push_back({by_512::row_weights, by_512::row_gradients});
#endif
  ways.push_back({weights_by_compiler, gradients_by_compiler});
  return ways;
}

float row_weights(float* scores, int64_t count, const RowWeights<float>& weights, float* out) {
  return loops().weights(scores, count, weights, out);
}
float row_weights(float* scores, int64_t count, const RowWeights<float>& weights, c10::BFloat16* out) {
#ifdef XFORMER_BY_512
  if (has_bf16_512()) return by_512::row_weights(scores, count, weights, out);
#endif
  const float sum = row_weights(scores, count, weights, scores);
  narrow(1, count, scores, count, out, count);
  return sum;
}
double row_weights(double* scores, int64_t count, const RowWeights<double>& weights, double* out) {
  if (out != scores) std::copy_n(scores, count, out);
  return weights.draws == nullptr ? weights_of<false>(out, count, weights) : weights_of<true>(out, count, weights);
}

void row_gradients(float* scores, float* gradient, int64_t count, const RowWeights<float>& weights, float delta,
                   float slope) {
  loops().gradients(scores, gradient, count, weights, delta, slope);
}
void row_gradients(double* scores, double* gradient, int64_t count, const RowWeights<double>& weights, double delta,
                   double slope) {
  weights.draws == nullptr ? gradients_of<false>(scores, gradient, count, weights, delta, slope)
                           : gradients_of<true>(scores, gradient, count, weights, delta, slope);
}

}  // namespace xformer::kernels
