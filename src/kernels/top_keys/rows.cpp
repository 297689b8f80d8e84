#include "kernels/top_keys/rows.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <type_traits>

#include "kernels/cpu/lanes_512.h"
#include "kernels/cpu/vectorised.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kColumns = 64;
template <class Value>
inline constexpr Value kClosed = -std::numeric_limits<Value>::infinity();

template <class Value>
[[gnu::always_inline]] inline int64_t count_open(const Value* row, int64_t count) {
  int64_t open = 0;
  for (int64_t j = 0; j < count; ++j) open += row[j] != kClosed<Value>;
  return open;
}

// The largest of each column of a row that is written in lines of kColumns.
template <class Value>
[[gnu::always_inline]] inline void column_tops(const Value* row, int64_t count, Value* tops) {
  std::fill_n(tops, kColumns, kClosed<Value>);
  int64_t first = 0;
  const auto take = [&](int64_t lane) __attribute__((always_inline)) {
    tops[lane] = row[first + lane] > tops[lane] ? row[first + lane] : tops[lane];
  };
  for (; first + kColumns <= count; first += kColumns)
    for (int64_t lane = 0; lane < kColumns; ++lane) take(lane);
  if (first < count)  // half as many
    for (int64_t lane = 0; lane < kColumns / 2; ++lane) take(lane);
}

XFORMER_VECTORISED void find_column_tops(const float* row, int64_t count, float* tops) {
  column_tops(row, count, tops);
}
void find_column_tops(const double* row, int64_t count, double* tops) { column_tops(row, count, tops); }

// The k-th largest of a few numbers: the least of those that fewer than k are larger than. Each is compared with all,
// which takes a fraction of the time of moving them about.
template <class Value>
[[gnu::always_inline]] inline Value among_few(const Value* numbers, int64_t count, int64_t k) {
  using Count = std::conditional_t<sizeof(Value) == 4, int32_t, int64_t>;
  Value least[kSumLanes];
  std::fill_n(least, kSumLanes, std::numeric_limits<Value>::infinity());
  for (int64_t first = 0; first < count; first += kSumLanes) {
    Count larger[kSumLanes] = {};
    for (int64_t i = 0; i < count; ++i)
      for (int64_t lane = 0; lane < kSumLanes; ++lane)
        larger[lane] += static_cast<Count>(numbers[i] > numbers[first + lane]);
    for (int64_t lane = 0; lane < kSumLanes; ++lane) {
      const Value one = larger[lane] < static_cast<Count>(k) ? numbers[first + lane] : least[lane];
      least[lane] = one < least[lane] ? one : least[lane];
    }
  }
  return *std::min_element(least, least + kSumLanes);
}

XFORMER_VECTORISED float largest_of_few(const float* numbers, int64_t count, int64_t k) {
  return among_few(numbers, count, k);
}
double largest_of_few(const double* numbers, int64_t count, int64_t k) { return among_few(numbers, count, k); }

// The k-th largest of numbers with room for kSumLanes more, which are moved about; NaN is larger than all.
template <class Value>
Value largest_but(Value* numbers, int64_t count, int64_t k) {
  for (int64_t i = 0; i < count; ++i) numbers[i] = numbers[i] == numbers[i] ? numbers[i] : -kClosed<Value>;
  if (count <= kColumns) {
    std::fill_n(numbers + count, kSumLanes, kClosed<Value>);
    return largest_of_few(numbers, count, k);
  }
  std::nth_element(numbers, numbers + k - 1, numbers + count, std::greater<>());
  return numbers[k - 1];
}

template <class Value>
int64_t reaching(const Value* row, int64_t count, Value bound, Value* room, int32_t* places) {
  int64_t reached = 0;
  for (int64_t j = 0; j < count; ++j) {
    room[reached] = row[j], places[reached] = static_cast<int32_t>(j);
    reached += static_cast<int64_t>(!(row[j] < bound)) & static_cast<int64_t>(row[j] != kClosed<Value>);
  }
  return reached;
}

int64_t reaching_plainly(const float* row, int64_t count, float bound, float* room, int32_t* places) {
  return reaching(row, count, bound, room, places);
}

int64_t reach(const float* row, int64_t count, float bound, float* room, int32_t* places) {
  static ReachingScores* const first = ways_to_reach().front();
  return first(row, count, bound, room, places);
}
int64_t reach(const double* row, int64_t count, double bound, double* room, int32_t* places) {
  return reaching(row, count, bound, room, places);
}

// k columns have a number each that is not below the k-th of their largest ones: no number below that is looked at.
template <class Value>
int64_t top_of(const Value* row, int64_t count, int64_t k, Value* room, int32_t* places) {
  Value bound = kClosed<Value>;
  if (k <= kColumns) {
    Value tops[kColumns + kSumLanes];
    find_column_tops(row, count, tops);
    int64_t columns = kColumns;
    for (; columns > kSumLanes && columns >= 4 * k; columns /= 2)  // twice k are enough
      for (int64_t i = 0; i < columns / 2; ++i) tops[i] = std::max(tops[i], tops[i + columns / 2]);
    bound = largest_but(tops, columns, k);
  }
  const int64_t reached = reach(row, count, bound, room, places);
  if (reached <= k) return reached;
  const Value least = largest_but(room, reached, k);
  int64_t kept = 0;
  for (int64_t i = 0; i < reached; ++i) {
    const int32_t place = places[i];
    places[kept] = place;
    kept += static_cast<int64_t>(!(row[place] < least));
  }
  return kept;
}

}  // namespace

std::vector<ReachingScores*> ways_to_reach() {
  std::vector<ReachingScores*> ways;
  if (has_512()) ways.push_back(by_512::reaching_scores);
  ways.push_back(reaching_plainly);
  return ways;
}

XFORMER_VECTORISED int64_t open_scores(const float* row, int64_t count) { return count_open(row, count); }
int64_t open_scores(const double* row, int64_t count) { return count_open(row, count); }

int64_t top_of_row(const float* row, int64_t count, int64_t k, float* room, int32_t* places) {
  return top_of(row, count, k, room, places);
}
int64_t top_of_row(const double* row, int64_t count, int64_t k, double* room, int32_t* places) {
  return top_of(row, count, k, room, places);
}

namespace by_512 {

#ifdef XFORMER_BY_512
XFORMER_BY_512 int64_t reaching_scores(const float* row, int64_t count, float bound, float* room, int32_t* places) {
  const __m512 least = _mm512_set1_ps(bound), closed = _mm512_set1_ps(kClosed<float>);
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  int64_t reached = 0;
  for (int64_t j = 0; j < count; j += 16) {
    const __m512 x = _mm512_loadu_ps(row + j);
    const __mmask16 reach = _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ), x, closed, _CMP_NEQ_UQ);
    if (reach == 0) continue;
    _mm512_storeu_ps(room + reached, _mm512_maskz_compress_ps(reach, x));
    _mm512_storeu_si512(
        places + reached,
        _mm512_maskz_compress_epi32(reach, _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<int32_t>(j)))));
    reached += __builtin_popcount(reach);
  }
  return reached;
}
#else
// For the linker: has_512() is false here.
int64_t reaching_scores(const float*, int64_t, float, float*, int32_t*) { return 0; }
#endif

}  // namespace by_512

}  // namespace xformer::kernels
