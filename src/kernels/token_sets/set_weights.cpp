// Weights of sets of tokens and their gradients: large sets are rows of weights (attention/weight_rows.h); of small
// ones, which would each be less than a step of a row, some go by at once.
#include <algorithm>
#include <limits>

#include "kernels/attention/weight_rows.h"
#include "kernels/token_sets/cpu.h"

namespace xformer::kernels {

namespace {

// Whether sets are rows.
bool is_large(const SetRun& run) { return run.size >= kSumLanes; }

template <class Value>
[[gnu::always_inline]] inline void weigh_small(const SetRun& run, const uint16_t* draws, uint32_t threshold, Value keep,
                                               Value* __restrict scores, Value* __restrict shifts,
                                               Value* __restrict sums) {
  constexpr auto kFactor = static_cast<Value>(kLog2OfE);
  constexpr Value kNone = -std::numeric_limits<Value>::infinity();
  const int64_t sets = run.sets(), line = run.line();
  for (int64_t set = 0; set < sets; ++set) {
    Value* const own = scores + set * run.size;
    Value most = kNone;
    for (int64_t i = 0; i < run.size; ++i) most = own[i] > most ? own[i] : most;
    shifts[set] = most == kNone ? Value(0) : most;
    for (int64_t i = 0; i < run.size; ++i) own[i] -= shifts[set];
  }
  for (int64_t i = 0; i < line; ++i) scores[i] = exp2_of(kFactor * scores[i]);
  for (int64_t set = 0; set < sets; ++set) {
    sums[set] = 0;
    for (int64_t i = 0; i < run.size; ++i) sums[set] += scores[set * run.size + i];
  }
  if (draws == nullptr) return;
  for (int64_t i = 0; i < line; ++i) scores[i] = draws[i] < threshold ? Value(0) : scores[i] * keep;
}

template <class Value>
[[gnu::always_inline]] inline void slope_small(const SetRun& run, const uint16_t* draws, uint32_t threshold, Value keep,
                                               const Value* __restrict log_sums, const Value* __restrict deltas,
                                               Value* __restrict scores, Value* __restrict slopes) {
  constexpr auto kFactor = static_cast<Value>(kLog2OfE);
  const int64_t line = run.line();
  Value taken[kRunTokens], kept[kRunTokens];
  for (int64_t set = 0; set < run.sets(); ++set)
    for (int64_t i = set * run.size; i < (set + 1) * run.size; ++i) {
      scores[i] -= log_sums[set];
      taken[i] = deltas[set];
    }
  for (int64_t i = 0; i < line; ++i) kept[i] = draws == nullptr ? Value(1) : draws[i] < threshold ? Value(0) : keep;
  for (int64_t i = 0; i < line; ++i) {
    const Value p = exp2_of(kFactor * scores[i]);
    scores[i] = p * kept[i];
    slopes[i] = p * (slopes[i] * kept[i] - taken[i]);
  }
}

template <class Value>
void weigh_large(const SetRun& run, const uint16_t* draws, uint32_t threshold, Value keep, Value* scores, Value* shifts,
                 Value* sums) {
  constexpr Value kNone = -std::numeric_limits<Value>::infinity();
  for (int64_t set = 0; set < run.sets(); ++set) {
    Value* const own = scores + set * run.size;
    const Value most = row_largest(own, run.size, kNone);
    shifts[set] = most == kNone ? Value(0) : most;
    const uint16_t* const drawn = draws == nullptr ? nullptr : draws + set * run.size;
    sums[set] = row_weights(own, run.size, natural_weights(shifts[set], drawn, threshold, keep), own);
  }
}

template <class Value>
void slope_large(const SetRun& run, const uint16_t* draws, uint32_t threshold, Value keep, const Value* log_sums,
                 const Value* deltas, Value* scores, Value* slopes) {
  for (int64_t set = 0; set < run.sets(); ++set) {
    const int64_t first = set * run.size;
    const uint16_t* const drawn = draws == nullptr ? nullptr : draws + first;
    row_gradients(scores + first, slopes + first, run.size, natural_weights(log_sums[set], drawn, threshold, keep),
                  deltas[set]);
  }
}

}  // namespace

namespace by_compiler {

XFORMER_VECTORISED
void weigh_small_sets(const SetRun& run, const uint16_t* draws, uint32_t threshold, float keep, float* scores,
                      float* shifts, float* sums) {
  weigh_small(run, draws, threshold, keep, scores, shifts, sums);
}
XFORMER_VECTORISED
void slope_small_sets(const SetRun& run, const uint16_t* draws, uint32_t threshold, float keep, const float* log_sums,
                      const float* deltas, float* scores, float* slopes) {
  slope_small(run, draws, threshold, keep, log_sums, deltas, scores, slopes);
}

}  // namespace by_compiler

void weigh_sets(const SetRun& run, const uint16_t* draws, uint32_t threshold, float keep, float* scores, float* shifts,
                float* sums) {
  is_large(run) ? weigh_large(run, draws, threshold, keep, scores, shifts, sums)
                : by_compiler::weigh_small_sets(run, draws, threshold, keep, scores, shifts, sums);
}
void weigh_sets(const SetRun& run, const uint16_t* draws, uint32_t threshold, double keep, double* scores,
                double* shifts, double* sums) {
  is_large(run) ? weigh_large(run, draws, threshold, keep, scores, shifts, sums)
                : weigh_small(run, draws, threshold, keep, scores, shifts, sums);
}

void slope_sets(const SetRun& run, const uint16_t* draws, uint32_t threshold, float keep, const float* log_sums,
                const float* deltas, float* scores, float* slopes) {
  is_large(run) ? slope_large(run, draws, threshold, keep, log_sums, deltas, scores, slopes)
                : by_compiler::slope_small_sets(run, draws, threshold, keep, log_sums, deltas, scores, slopes);
}
void slope_sets(const SetRun& run, const uint16_t* draws, uint32_t threshold, double keep, const double* log_sums,
                const double* deltas, double* scores, double* slopes) {
  is_large(run) ? slope_large(run, draws, threshold, keep, log_sums, deltas, scores, slopes)
                : slope_small(run, draws, threshold, keep, log_sums, deltas, scores, slopes);
}

}  // namespace xformer::kernels
