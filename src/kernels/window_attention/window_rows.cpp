#include "kernels/window_attention/window_rows.h"

#include <limits>

#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/row_sums.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

namespace {

// Rows are so short that what lies between their ends counts: lanes meet in registers, and each loop does one thing,
// because the compiler vectorises exponentials only where nothing is summed beside them.
template <bool kDrops, class Value>
[[gnu::always_inline]] inline RowSum<Value> weigh(Value* scores, int64_t count, const uint16_t* draws,
                                                  uint32_t threshold, Value keep) {
  constexpr Value kNone = -std::numeric_limits<Value>::infinity();
  SumRegisters<Value> largest, sums = {}, part;
  largest.fill(kNone);
  for (int64_t i = 0; i < count; i += kRowStep) {
    part.load_from(scores + i);
    largest.take_larger(part);
  }
  const Value most = largest.largest(), shift = most == kNone ? Value(0) : most;
  for (int64_t i = 0; i < count; ++i) scores[i] = exp_below(scores[i] - shift);
  for (int64_t i = 0; i < count; i += kRowStep) {
    part.load_from(scores + i);
    sums += part;
  }
  if (kDrops)
    for (int64_t i = 0; i < count; ++i) scores[i] = draws[i] < threshold ? Value(0) : scores[i] * keep;
  return {shift, sums.sum()};
}

template <class Value>
[[gnu::always_inline]] inline void add(Value* to, const Value* of, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += of[i];
}

}  // namespace

namespace {

XFORMER_VECTORISED
RowSum<float> weigh_plainly(float* scores, int64_t count, const uint16_t* draws, uint32_t threshold, float keep) {
  return draws == nullptr ? weigh<false>(scores, count, draws, threshold, keep)
                          : weigh<true>(scores, count, draws, threshold, keep);
}

}  // namespace

std::vector<WeighRow*> ways_to_weigh_rows() {
  std::vector<WeighRow*> ways;
  if (has_512()) ways.push_back(by_512::weigh_row);
  ways.push_back(weigh_plainly);
  return ways;
}

RowSum<float> weigh_row(float* scores, int64_t count, const uint16_t* draws, uint32_t threshold, float keep) {
  static WeighRow* const weigh = ways_to_weigh_rows().front();
  return weigh(scores, count, draws, threshold, keep);
}
RowSum<double> weigh_row(double* scores, int64_t count, const uint16_t* draws, uint32_t threshold, double keep) {
  return draws == nullptr ? weigh<false>(scores, count, draws, threshold, keep)
                          : weigh<true>(scores, count, draws, threshold, keep);
}

XFORMER_VECTORISED
void add_row(float* to, const float* of, int64_t count) { add(to, of, count); }
void add_row(double* to, const double* of, int64_t count) { add(to, of, count); }

}  // namespace xformer::kernels
