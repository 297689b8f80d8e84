// Rows of attention weights: the loops that are not products.
#include "kernels/attention/weight_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/heads.h"
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

template <class Value>
[[gnu::always_inline]] inline const Value* numbers_of(const Value* x) {
  return x;
}
[[gnu::always_inline]] inline const uint16_t* numbers_of(const c10::BFloat16* x) {
  return reinterpret_cast<const uint16_t*>(x);
}

// Where a register holds a row's sums, those of as many rows are added up together.
template <int64_t kRegister, class Stored, class Value>
[[gnu::always_inline]] inline void products_of(int64_t rows, int64_t count, const Stored* x, int64_t x_stride,
                                               const Stored* y, int64_t y_stride, Value* sums) {
  int64_t r = 0;
  if constexpr (kRegister >= kSumLanes * static_cast<int64_t>(sizeof(Value)))
    for (; r + kSumLanes <= rows && count % kSumLanes == 0; r += kSumLanes) {
      SumLanes<Value> lanes[kSumLanes] = {};
      for (int64_t l = 0; l < kSumLanes; ++l) {
        const Stored *const one = x + (r + l) * x_stride, *const other = y + (r + l) * y_stride;
        fetch_row_ahead(one, x_stride, count);
        fetch_row_ahead(other, y_stride, count);
        for (int64_t c = 0; c < count; c += kSumLanes) {
          SumRegisters<Value, kRegister> a, b;
          fetch(one + c, a);
          fetch(other + c, b);
          lanes[l] += a.all * b.all;
        }
      }
      fold_all<kSumLanes, Value>(lanes);
      store(lanes[0], sums + r);
    }
  for (; r < rows; ++r) {
    fetch_row_ahead(x + r * x_stride, x_stride, count);
    fetch_row_ahead(y + r * y_stride, y_stride, count);
    sums[r] = dot_of(numbers_of(x + r * x_stride), numbers_of(y + r * y_stride), count);
  }
}

// A NaN stays one, as it does in std::log.
template <class Value>
[[gnu::always_inline]] inline void logs(const Value* shifts, const Value* sums, int64_t count, Value none,
                                        Value* log_sums) {
  for (int64_t i = 0; i < count; ++i) {
    const Value sum = sums[i], log = shifts[i] + log_of(sum);
    log_sums[i] = sum == 0 ? none : sum != sum ? sum : log;
  }
}

// The vectors of a row's span, in which what is beside it is closed.
template <class Value>
RowSpan closed(const RowSpan& span, Value* scores) {
  constexpr Value kNone = -std::numeric_limits<Value>::infinity();
  const RowSpan steps = span.steps();
  if (steps.end == 0) return steps;
  std::fill(scores + steps.begin, scores + span.begin, kNone);
  std::fill(scores + span.end, scores + steps.end, kNone);
  return steps;
}
// Zeros beside some of a row of `count` numbers.
template <class Stored>
void zero_beside(const RowSpan& span, int64_t count, Stored* row) {
  std::fill(row, row + span.begin, Stored(0));
  std::fill(row + span.end, row + count, Stored(0));
}

[[nodiscard]] const uint16_t* draws_from(const uint16_t* draws, int64_t begin) {
  return draws == nullptr ? nullptr : draws + begin;
}

// Row by row.
template <class Value, class Stored>
void weigh_rows(const WeightTile<Value>& tile, Stored* out) {
  constexpr Value kNone = -std::numeric_limits<Value>::infinity();
  for (int64_t r = 0; r < tile.rows; ++r) {
    Value* const line = tile.scores + r * tile.stride;
    const RowSpan span = tile.spans == nullptr ? tile.steps(r) : closed(tile.spans[r], line);
    const int64_t count = span.end - span.begin;
    Value* const scores = line + span.begin;
    Stored* const to = out + r * tile.stride;
    const Value before = tile.largest[r], now = row_largest(scores, count, before);
    const Value shift = now == kNone ? Value(0) : tile.factor * now;
    const Value sum = row_weights(
        scores, count, {tile.factor, shift, draws_from(tile.draws[r], span.begin), tile.threshold, tile.keep},
        to + span.begin);
    zero_beside(span, tile.count, to);
    tile.rescale[r] = rescaled(tile.factor, before, now);
    tile.sum[r] = tile.sum[r] * tile.rescale[r] + sum;
    tile.largest[r] = now;
  }
}

template <class Value>
void slope_rows(const SlopeTile<Value>& tile) {
  for (int64_t r = 0; r < tile.rows; ++r) {
    Value *const scores = tile.scores + r * tile.stride, *const gradient = tile.gradient + r * tile.stride;
    const RowSpan span = closed(tile.spans[r], scores);
    row_gradients(scores + span.begin, gradient + span.begin, span.end - span.begin,
                  {tile.factor, tile.shift[r], draws_from(tile.draws[r], span.begin), tile.threshold, tile.keep},
                  tile.delta[r]);
    zero_beside(span, tile.count, scores);
    zero_beside(span, tile.count, gradient);
  }
}

}  // namespace

XFORMER_VECTORISED
float row_largest(const float* scores, int64_t count, float start) { return largest_of(scores, count, start); }
double row_largest(const double* scores, int64_t count, double start) { return largest_of(scores, count, start); }

XFORMER_VECTORISED
float row_product(const float* x, const float* y, int64_t count) { return dot_of(x, y, count); }
double row_product(const double* x, const double* y, int64_t count) { return dot_of(x, y, count); }

XFORMER_VECTORISED_BY_REGISTER(void, row_products,
                               (int64_t rows, int64_t count, const float* x, int64_t x_stride, const float* y,
                                int64_t y_stride, float* sums),
                               (rows, count, x, x_stride, y, y_stride, sums),
                               products_of<kRegister>(rows, count, x, x_stride, y, y_stride, sums))
XFORMER_VECTORISED_BY_REGISTER(void, row_products,
                               (int64_t rows, int64_t count, const c10::BFloat16* x, int64_t x_stride,
                                const c10::BFloat16* y, int64_t y_stride, float* sums),
                               (rows, count, x, x_stride, y, y_stride, sums),
                               products_of<kRegister>(rows, count, x, x_stride, y, y_stride, sums))
void row_products(int64_t rows, int64_t count, const double* x, int64_t x_stride, const double* y, int64_t y_stride,
                  double* sums) {
  products_of<kPlainRegister>(rows, count, x, x_stride, y, y_stride, sums);
}

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

void weigh_tile(const WeightTile<float>& tile, float* out) {
#ifdef XFORMER_BY_512
  if (has_512()) return by_512::weigh_tile(tile, out);
#endif
  weigh_rows(tile, out);
}
void weigh_tile(const WeightTile<float>& tile, c10::BFloat16* out) {
#ifdef XFORMER_BY_512
  if (has_bf16_512()) return by_512::weigh_tile(tile, out);
#endif
  weigh_rows(tile, out);
}
void weigh_tile(const WeightTile<double>& tile, double* out) { weigh_rows(tile, out); }

void slope_tile(const SlopeTile<float>& tile) {
#ifdef XFORMER_BY_512
  if (has_512()) return by_512::slope_tile(tile);
#endif
  slope_rows(tile);
}
void slope_tile(const SlopeTile<double>& tile) { slope_rows(tile); }

XFORMER_VECTORISED
void log_rows(const float* shifts, const float* sums, int64_t count, float none, float* log_sums) {
  logs(shifts, sums, count, none, log_sums);
}
void log_rows(const double* shifts, const double* sums, int64_t count, double none, double* log_sums) {
  logs(shifts, sums, count, none, log_sums);
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
