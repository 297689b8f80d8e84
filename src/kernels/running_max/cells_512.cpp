// Running maxima by AVX-512: what runs from cell to cell is in registers, not in the results, which every next cell
// would wait for. A NaN is remembered as a bit, so that a maximum need not carry it on.
#include <vector>

#include "kernels/cpu/lanes_512.h"
#include "kernels/running_max/cpu.h"

#ifdef XFORMER_BY_512

namespace xformer::kernels::by_512 {

namespace {

// As many registers as run side by side, and for how many places before their turn gradients are asked for: between two
// places lie other cells. (Asked for on the way there, cells of columns come twice as slowly: they lie in few sets of
// the cache.)
constexpr int64_t kMost = 8, kLanes = 16, kPlacesAhead = 4;

// The first of a cell's numbers that `count` registers have.
struct Part {
  const RunningCells& cells;
  int64_t first;

  [[nodiscard]] int64_t at(int64_t i, int64_t k) const { return i * cells.step + first + kLanes * k; }
  // All lanes or none, as the cell counts that a register's numbers are of.
  [[nodiscard]] __mmask16 counts(int64_t i, int64_t k) const {
    return cells.valid[i * cells.valid_step + (first + kLanes * k) / cells.d] ? kAllLanes : __mmask16{0};
  }
};

XFORMER_BY_512 [[gnu::always_inline]] inline __mmask16 no_number(const __m512& x) {
  return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
}

// What has run so far: the largest number of the cells that counted, whether there was one, and whether one was a NaN.
template <int count>
struct Running {
  __m512 largest[count];
  __mmask16 any[count] = {}, none[count] = {};

  XFORMER_BY_512 [[gnu::always_inline]] inline Running() {
    for (int k = 0; k < count; ++k) largest[k] = _mm512_set1_ps(-INFINITY);
  }
  XFORMER_BY_512 [[gnu::always_inline]] inline __m512 before(int k) const {
    return _mm512_maskz_mov_ps(any[k], _mm512_mask_mov_ps(largest[k], none[k], _mm512_set1_ps(NAN)));
  }
  XFORMER_BY_512 [[gnu::always_inline]] inline void add(int k, const __m512& x, __mmask16 counts) {
    largest[k] = _mm512_mask_max_ps(largest[k], counts, largest[k], x);
    none[k] |= static_cast<__mmask16>(counts & no_number(x));
    any[k] |= counts;
  }
};

template <int count>
XFORMER_BY_512 void run(const Part& part, const float* x, float* out) {
  Running<count> so_far;
  for (int64_t i = 0; i < part.cells.count; ++i)
    for (int k = 0; k < count; ++k) {
      const __m512 own = _mm512_loadu_ps(x + part.at(i, k));
      _mm512_storeu_ps(out + part.at(i, k), so_far.before(k));
      so_far.add(k, own, part.counts(i, k));
    }
}

template <int count>
XFORMER_BY_512 void run_back(const Part& part, const float* x, const float* slope, float* room, float* out) {
  Running<count> so_far;
  int64_t begin[count];  // the first cell that counts
  for (int k = 0; k < count; ++k) begin[k] = part.cells.count;
  for (int64_t i = 0; i < part.cells.count; ++i)
    for (int k = 0; k < count; ++k) {
      _mm512_storeu_ps(room + (i * count + k) * kLanes, so_far.before(k));
      const __mmask16 counts = part.counts(i, k);
      if (begin[k] > i && counts != 0) begin[k] = i;
      so_far.add(k, _mm512_loadu_ps(x + part.at(i, k)), counts);
    }
  // On the way back a cell that is the largest so far takes what the cells behind it have left.
  __m512 sums[count];
  for (int k = 0; k < count; ++k) sums[k] = _mm512_setzero_ps();
  for (int64_t i = part.cells.count - 1; i >= 0; --i)
    for (int k = 0; k < count; ++k) {
      __builtin_prefetch(slope + part.at(i - kPlacesAhead, k));
      const __m512 own = _mm512_loadu_ps(x + part.at(i, k)), before = _mm512_loadu_ps(room + (i * count + k) * kLanes);
      const auto larger = static_cast<__mmask16>(_mm512_cmp_ps_mask(own, before, _CMP_GE_OQ) | no_number(own));
      const auto takes = static_cast<__mmask16>(part.counts(i, k) & (i == begin[k] ? kAllLanes : larger));
      _mm512_storeu_ps(out + part.at(i, k), _mm512_maskz_mov_ps(takes, sums[k]));
      sums[k] = _mm512_add_ps(_mm512_maskz_mov_ps(static_cast<__mmask16>(~takes), sums[k]),
                              _mm512_loadu_ps(slope + part.at(i, k)));
    }
}

// work.template operator()<registers>(part) for all numbers of a cell.
template <class Work>
void for_parts(const RunningCells& cells, const Work& work) {
  int64_t first = 0;
  const auto parts = [&]<int count>() {
    for (; first + count * kLanes <= cells.width; first += count * kLanes)
      work.template operator()<count>(Part{cells, first});
  };
  parts.template operator()<kMost>();
  parts.template operator()<4>();
  parts.template operator()<2>();
  parts.template operator()<1>();
}

}  // namespace

void running_max_of(const RunningCells& cells, const float* x, float* out) {
  for_parts(cells, [&]<int count>(const Part& part) { run<count>(part, x, out); });
}

void running_max_slopes(const RunningCells& cells, const float* x, const float* slope, std::vector<float>& room,
                        float* out) {
  room.resize(static_cast<size_t>(cells.count * kMost * kLanes));
  for_parts(cells, [&]<int count>(const Part& part) { run_back<count>(part, x, slope, room.data(), out); });
}

}  // namespace xformer::kernels::by_512

#endif
